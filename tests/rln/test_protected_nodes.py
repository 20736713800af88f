"""Nodes of a network that asks for RLN proofs: what passes by relay, light push and REST, and what is refused why."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import time
import urllib.error
import urllib.request

import pytest
from msgspec import structs

import fairway
from chain_node import ADDRESS, ChainNode, serving
from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, RlnError
from fairway.libp2p.host import Host
from fairway.nodes.node import NodeQuota, RoutedMessage, StoreQuery
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.proving import with_proof
from fairway.nodes.rest.shapes import PushRequest, json_of, relay_shape
from fairway.options import ReliableChannelOptions
from fairway.rln import RlnMembership
from fairway.rln.contract import ContractMembership
from fairway.rln.field import ELEMENT_BYTES, element
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership_file import MembershipFile
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from fairway.rln.validation import ProofFault
from fairway.service.node import parts_of
from fairway.service.options import StoreSyncOptions
from fairway.service.proof_gate import ProofGate
from fairway.service.rest import RestOptions, RestServer
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    encode_lightpush_request,
)
from patience import PATIENCE_S, until


async def proven(harbour, number=0, name="ids", payload=b"hello"):
    """A message with a proof, made by a membership of its own."""
    return await with_proof(harbour.membership(number, name), harbour.message(payload))


def changed(routed: RoutedMessage, **fields) -> RoutedMessage:
    return RoutedMessage.of(routed.pubsub_topic, structs.replace(routed.message, **fields))


def with_changed_proof(routed, **fields):
    proof = SignalProof.decode(routed.message.rate_limit_proof)
    return changed(routed, rate_limit_proof=dataclasses.replace(proof, **fields).encode())


async def push(host, node, routed):
    """Push a message, and return the status code."""
    request = LightPushRequest(request_id="push", pubsub_topic=routed.pubsub_topic, message_bytes=routed.encoded)
    answer = await PeerRequests(host).ask(
        node.peer_id,
        LIGHTPUSH_PROTOCOL,
        encode_lightpush_request(request),
        max_response_bytes=1 << 16,
        timeout_s=PATIENCE_S,
    )
    return decode_lightpush_response(answer).status_code


def refused(node):
    return {fault: count for fault, count in parts_of(node).gate.statistics().refused.items() if count}


async def test_messages_of_a_member_carry_proofs_and_reach_members_of_another_node(harbour):
    async with harbour:
        first = await harbour.node()
        second = await harbour.node(first.addresses[0])
        await until(
            lambda: (
                len(parts_of(first).relay.peers_of(harbour.shard)) == 1
                and len(parts_of(second).relay.mesh_of(harbour.shard)) == 1
            )
        )
        alice = await harbour.client(first, harbour.membership(0))
        bob = await harbour.client(second)
        heard = await bob.subscribe(harbour.shard, [harbour.topic])
        assert (await alice.send(harbour.message(b"one"))).accepted
        [got] = await asyncio.wait_for(heard.next_batch(), PATIENCE_S)
        assert got.message.payload == b"one"
        assert SignalProof.decode(got.message.rate_limit_proof).nullifier
        assert not refused(first)
        assert not refused(second)
        assert parts_of(second).gate.statistics().admitted == 1


async def test_a_node_that_starts_prepares_the_proofs_of_its_membership(harbour, prover):
    class Recording:
        def __init__(self):
            self.done = []

        def prepare(self, member):
            self.done.append("prepared")
            prover.prepare(member)

        def prove(self, *arguments):
            self.done.append("proven")
            return prover.prove(*arguments)

    def membership(name):
        recording = Recording()
        ids = MessageIds.create(harbour.folder / name, first_epoch=0)
        made = RlnMembership(harbour.identities[0], MembershipFile(harbour.group), ids, recording)
        harbour.exits.callback(made.close)
        return made, recording.done

    async with harbour:
        of_node, done_by_node = membership("node.ids")
        of_client, done_by_client = membership("client.ids")
        node = await harbour.node(rln=of_node)
        client = await harbour.client(node, of_client)
        await until(lambda: done_by_node == done_by_client == ["prepared"])
        assert (await client.send(harbour.message())).accepted
        assert done_by_client == ["prepared", "proven"]


async def test_a_node_proves_what_its_own_program_sends_and_refuses_it_without_a_membership(harbour):
    async with harbour:
        first = await harbour.node(rln=harbour.membership(0))
        second = await harbour.node(first.addresses[0])
        await until(lambda: len(parts_of(first).relay.peers_of(harbour.shard)) == 1)
        heard = await second.subscribe(harbour.shard, [harbour.topic])
        assert (await first.send(harbour.message(b"own"))).accepted
        [got] = await asyncio.wait_for(heard.next_batch(), PATIENCE_S)
        assert got.message.payload == b"own"
        result = await second.send(harbour.message(b"bare"))
        assert not result.accepted
        assert "no RLN proof" in result.detail
        assert refused(second) == {ProofFault.MISSING: 1}


def faulty(kind, good):
    """A message with a fault that light push answers with a status code."""
    epoch = SignalProof.decode(good.message.rate_limit_proof).epoch
    match kind:
        case ProofFault.MISSING:
            return changed(good, rate_limit_proof=None)
        case ProofFault.MALFORMED:
            return changed(good, rate_limit_proof=b"\x0a\x03abc")
        case ProofFault.OTHER_NETWORK:
            return with_changed_proof(good, identifier=b"another".ljust(ELEMENT_BYTES, b"\0"))
        case ProofFault.EPOCH_GAP:
            return with_changed_proof(good, epoch=epoch - 5)
        case ProofFault.UNKNOWN_ROOT:
            return with_changed_proof(good, root=bytes(ELEMENT_BYTES))
    return changed(good, payload=b"another payload")


async def test_light_push_answers_504_and_420_and_counts_the_reason(harbour):
    good = await proven(harbour)
    kinds = [
        (ProofFault.MISSING, 504),
        (ProofFault.MALFORMED, 420),
        (ProofFault.OTHER_NETWORK, 420),
        (ProofFault.EPOCH_GAP, 420),
        (ProofFault.UNKNOWN_ROOT, 420),
        (ProofFault.INVALID, 420),
    ]
    async with harbour:
        node = await harbour.node()
        async with await Host.start() as host:
            await host.connect(node.addresses[0])
            for count, (kind, status) in enumerate(kinds, 1):
                assert await push(host, node, faulty(kind, good)) == status
                assert len(refused(node)) == count
            assert set(refused(node)) == {kind for kind, _ in kinds}
            assert await push(host, node, good) == 200


async def test_the_same_bytes_pass_again_and_other_bytes_around_the_same_signal_do_not(harbour):
    good = await proven(harbour)
    async with harbour:
        node = await harbour.node()
        async with await Host.start() as host:
            await host.connect(node.addresses[0])
            assert [await push(host, node, good) for _ in range(2)] == [200, 200]
            assert await asyncio.gather(push(host, node, good), push(host, node, good)) == [200, 200]
            assert await push(host, node, changed(good, meta=b"changed")) == 420
            assert refused(node) == {ProofFault.DUPLICATE: 1}
            assert parts_of(node).gate.statistics().repeated == 3
            assert parts_of(node).distribution.statistics().messages == 1


async def test_a_double_signal_is_refused_and_its_secret_recorded(harbour):
    # Two files of message ids for one identity, which is what nobody must do.
    one, other = [await proven(harbour, 1, name, name.encode()) for name in ("one", "two")]
    doubles = []
    async with harbour:
        node = await harbour.node(record=lambda double, now_ms: doubles.append((double, now_ms)))
        async with await Host.start() as host:
            await host.connect(node.addresses[0])
            assert await push(host, node, one) == 200
            assert await push(host, node, other) == 420
            assert refused(node) == {ProofFault.DOUBLE_SIGNAL: 1}
            await until(lambda: doubles)
    [(double, now_ms)] = doubles
    assert double.secret == harbour.identities[1].secret
    assert double.first.epoch == now_ms // 600_000 or double.first.epoch + 1 == now_ms // 600_000


async def test_proofs_of_a_new_member_are_accepted_at_once(harbour):
    async with harbour:
        node = await harbour.node()
        await asyncio.sleep(1.1)  # a node looks at its group for an unknown root at most once a second
        newcomer = RlnIdentity.create()
        MembershipFile(harbour.group).register(newcomer.commitment, 5)
        harbour.identities = [newcomer]
        alice = await harbour.client(node, harbour.membership(0, "new"))
        assert (await alice.send(harbour.message())).accepted
        assert not refused(node)


async def test_a_light_client_without_a_membership_gets_an_error_that_names_rln(harbour):
    async with harbour:
        node = await harbour.node()
        alice = await harbour.client(node)
        result = await alice.send(harbour.message())
        assert not result.accepted
        assert not result.permanent
        assert "504" in result.detail
        assert "rln=fairway.rln.RlnMembership" in result.detail


class Rest:
    """A client of a REST server."""

    def __init__(self, server):
        self.server = server

    async def push(self, routed):
        request = PushRequest(message=relay_shape(routed.message), pubsub_topic=routed.pubsub_topic)
        return await asyncio.to_thread(self._ask, "/lightpush/v3/message", json_of(request))

    async def relay(self, body):
        return await asyncio.to_thread(self._ask, "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F0", body)

    async def metrics(self):
        _, text = await asyncio.to_thread(self._ask, "/metrics")
        return text

    async def health(self):
        _, text = await asyncio.to_thread(self._ask, "/health")
        return {name: state for each in json.loads(text)["protocolsHealth"] for name, state in each.items()}

    def _ask(self, path, body=None):
        request = urllib.request.Request(
            f"{self.server.url}{path}", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


async def test_the_rest_api_asks_for_proofs_and_metrics_count_by_reason(harbour):
    good, other = await proven(harbour), await proven(harbour, 1)
    async with harbour:
        node = await harbour.node()
        async with await RestServer.start(node, RestOptions()) as server:
            rest = Rest(server)
            status, text = await rest.push(changed(good, rate_limit_proof=None))
            assert status == 504
            assert "no RLN proof" in json.loads(text)["statusDesc"]
            assert (await rest.push(changed(good, payload=b"x")))[0] == 420
            assert (await rest.push(good))[0] == 200
            bare = {"payload": base64.b64encode(b"x").decode(), "contentTopic": harbour.topic}
            status, text = await rest.relay(json.dumps(bare).encode())
            assert status == 400
            assert "Failed to publish: the message has no RLN proof" in text
            assert (await rest.relay(json_of(relay_shape(other.message))))[0] == 200
            said = await rest.metrics()
            for line in (
                'fairway_rln_messages_total{verdict="missing"} 2.0',
                'fairway_rln_messages_total{verdict="invalid"} 1.0',
                'fairway_rln_messages_total{verdict="admitted"} 2.0',
                'fairway_rln_messages_total{verdict="double-signal"} 0.0',
                "fairway_rln_nullifiers 2.0",
                "fairway_rln_waiting 0.0",
            ):
                assert line in said
            assert (await rest.health())["Rln Relay"] == "READY"


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.full)])
async def test_honest_members_are_served_amid_a_flood_of_invalid_proofs(harbour, count):
    good = await proven(harbour, 1)
    proof = SignalProof.decode(good.message.rate_limit_proof)

    def forged(number):
        # As good as it can be without a membership: all that costs the node nothing to see is right.
        return with_changed_proof(good, nullifier=number.to_bytes(ELEMENT_BYTES, "little"), share_y=proof.share_y)

    async def flood(node, first):
        codes = []
        async with await Host.start() as host:
            await host.connect(node.addresses[0])
            for at in range(first, first + count // 4, 50):
                codes += await asyncio.gather(*(push(host, node, forged(at + number)) for number in range(50)))
        return codes

    async with harbour:
        node = await harbour.node()
        alice = await harbour.client(node, harbour.membership(0))
        floods = [asyncio.create_task(flood(node, 1_000_000 + quarter * count)) for quarter in range(4)]
        served = 0
        while not all(one.done() for one in floods):
            result = await alice.send(harbour.message(b"%d" % served))
            assert result.accepted, result.detail
            served += 1
        codes = [code for one in floods for code in one.result()]
        assert served >= 1
        assert len(codes) == count
        assert set(codes) <= {420, 429}
        counted = refused(node)
        assert sum(counted.values()) == count
        assert parts_of(node).gate.statistics().admitted == served


async def test_a_relay_peer_that_passes_on_forged_proofs_gets_nothing_through(harbour):
    good = await proven(harbour)
    async with harbour:
        careless = await harbour.careless_node()
        careful = await harbour.node(careless.addresses[0])
        await until(lambda: len(parts_of(careful).relay.mesh_of(harbour.shard)) == 1)
        heard = await careful.subscribe(harbour.shard, [harbour.topic])
        for number in range(12):
            await careless.send(changed(good, payload=b"forged %d" % number))
        await until(lambda: refused(careful).get(ProofFault.INVALID, 0) >= 4)
        assert not len(heard)
        assert parts_of(careful).relay.statistics().received == 0


@pytest.mark.full
async def test_nothing_waits_for_a_node_that_closes(harbour):
    *good, late = [await proven(harbour, number) for number in range(4)]
    async with harbour:
        node = await harbour.node()
        judging = [asyncio.create_task(parts_of(node).gate.judge("somebody", one)) for one in good]
        await asyncio.sleep(0)
        await node.close()
        answers = await asyncio.wait_for(asyncio.gather(*judging), PATIENCE_S)
        assert all(answer is None or answer.fault is ProofFault.NOT_VERIFIED for answer in answers)
        refusal = await parts_of(node).gate.judge("somebody", late)
        assert refusal.fault is ProofFault.NOT_VERIFIED


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), asyncio.CancelledError("out of luck")], ids=repr)
async def test_a_verifier_that_fails_at_one_message_continues_with_the_next(harbour, verifier, caplog, error):
    class FailingOnce:
        failed = False

        def verify(self, proof, signal):
            if self.failed:
                return verifier.verify(proof, signal)
            self.failed = True
            raise error

    first, second = await proven(harbour, 0), await proven(harbour, 1)

    gate = ProofGate(MembershipFile(harbour.group), FailingOnce())
    gate.start()
    try:
        refusal, admitted = await gate.judge("one", first), await gate.judge("another", second)
    finally:
        await gate.close()
    assert refusal.fault is ProofFault.NOT_VERIFIED
    assert admitted is None
    assert "out of luck" in caplog.text


async def test_cheap_checks_refuse_messages_before_the_verification(harbour, verifier):
    class Counting:
        verified = 0

        def verify(self, proof, signal):
            self.verified += 1
            return verifier.verify(proof, signal)

    counting = Counting()
    good = await proven(harbour)
    of_another_message = changed(good, payload=b"x")
    same_signal = with_changed_proof(good, share_y=element(7))

    gate = ProofGate(MembershipFile(harbour.group), counting)
    gate.start()
    try:
        admitted, wrong, again = [
            await gate.judge(f"source {at}", one) for at, one in enumerate((good, of_another_message, same_signal))
        ]
    finally:
        await gate.close()
    assert admitted is None
    assert (wrong.fault, again.fault) == (ProofFault.INVALID, ProofFault.DUPLICATE)
    assert counting.verified == 1


async def test_a_membership_that_cannot_count_sends_nothing(harbour):
    async with harbour:
        node = await harbour.node()
        membership = harbour.membership(0)
        alice = await harbour.client(node, membership)
        membership.close()
        result = await alice.send(harbour.message())
        assert not result.accepted
        assert "transient" in result.detail
        with pytest.raises(RlnError):
            membership.generate_proof(b"signal", 0)


async def test_the_channels_of_a_client_with_a_membership_prove_what_they_send(harbour):
    async with harbour:
        node = await harbour.node()
        people = {
            name: await harbour.client(node, harbour.membership(number)) for number, name in enumerate(("alice", "bob"))
        }
        channels = {}
        for name, client in people.items():
            options = ReliableChannelOptions(cluster_id=16, shard_count=1, sync_min_interval_ms=500)
            opened = await create_reliable_channel(client, "room", name, harbour.topic, options=options)
            channels[name] = await harbour.exits.enter_async_context(opened)
        heard = aiter(channels["bob"])
        receipt = await channels["alice"].send(b"hello")
        assert (await asyncio.wait_for(anext(heard), PATIENCE_S)).payload == b"hello"
        acknowledgement = await asyncio.wait_for(receipt.delivered(), PATIENCE_S)
        assert "bob" in str(acknowledgement)
        assert not refused(node)


async def test_only_configured_nodes_put_messages_into_the_archive_without_a_proof(harbour):
    """Archives keep no proofs, so what a store transfers cannot be verified."""
    old = harbour.message(timestamp_ns=time.time_ns() - 60_000_000_000)
    often, waiting = StoreSyncOptions(interval_s=0.2), StoreSyncOptions()
    async with harbour:
        stranger = await harbour.node(store_sync=waiting)
        careless = await harbour.careless_node(stranger.addresses[0], store_sync=often)
        parts_of(careless).archive.put(old, time.time_ns())
        trusting = await harbour.node(careless.addresses[0], store_sync=often)
        await until(lambda: parts_of(trusting).store_sync.statistics().received)
        await until(lambda: parts_of(stranger).store_sync.statistics().refused)
        assert [one.message_hash for one in (await trusting.query(StoreQuery())).messages] == [old.message_hash]
        assert (await stranger.query(StoreQuery())).messages == ()


async def test_a_network_whose_group_is_in_a_contract(harbour):
    with serving(ChainNode()) as chain:
        chain.register(harbour.identities[0].commitment, 7)
        async with harbour:
            gate = ProofGate(ContractMembership(chain.url, ADDRESS, timeout_s=PATIENCE_S))
            node = await harbour.node(gate=gate)
            ids = MessageIds.create(harbour.folder / "contract.ids", first_epoch=0)
            group = ContractMembership(chain.url, ADDRESS, timeout_s=PATIENCE_S)
            with RlnMembership(harbour.identities[0], group, ids) as membership:
                alice = await harbour.client(node, membership)
                assert (await alice.send(harbour.message(b"one"))).accepted
                chain.recent.clear()  # what the contract says from now on is of no use
                assert (await alice.send(harbour.message(b"two"))).accepted
                assert membership.epoch_quota(time.time_ns() // 1_000_000).rate_limit == 7
            stranger = RlnMembership.open(RlnIdentity.create(), group, harbour.folder / "stranger.ids", never_used=True)
            with stranger:
                result = await (await harbour.client(node, stranger)).send(harbour.message())
                assert not result.accepted
                assert "register it first" in result.detail


async def test_a_network_file_sets_the_limit_and_refuses_memberships_with_other_epochs(harbour):
    described = harbour.folder / "ours.toml"

    def describe(epoch_s):
        described.write_text(
            'source = "a test"\ncluster = 16\nshards = 1\n'
            'peers = ["/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAmQ9X2xDfPG3uL77V9piYDhjq14JhKCtcmNYsTMKNqrKCj"]\n'
            f"[rln]\nepoch_s = {epoch_s}\nmessages_per_epoch = 30\n",
            encoding="utf-8",
        )

    async def connect(membership):
        return await fairway.connect(
            f"waku:{described}", connect_timeout_s=None, rln=membership, state=harbour.folder / "state"
        )

    async with harbour:
        membership = harbour.membership(0)
        describe(600)
        async with await connect(membership) as node:
            assert node.quota == NodeQuota(limit=30, epoch_ms=600_000)
            assert node.rln is membership
        describe(60)
        with pytest.raises(ConfigurationError, match="epochs of 60000 ms"):
            await connect(membership)
