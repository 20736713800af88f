"""Relay peers that flood a node with forged proofs: others are served meanwhile, and their messages not suppressed."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from contextlib import AsyncExitStack

import pytest
from msgspec import structs

from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.gossipsub.codec import Message, encode_message, publish_frame
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.relay import RELAY_PROTOCOL, Relay
from fairway.nodes.protocols.rules import MessageRules
from fairway.nodes.proving import with_proof
from fairway.protocol.ratelimit import rln_signal
from fairway.rln.field import ELEMENT_BYTES, hash_to_field
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import SignalProof
from fairway.rln.validation import ProofFault
from fairway.service.node import parts_of
from fairway.service.proof_gate import MAX_WAITING, ProofGate
from patience import PATIENCE_S, until

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def honest(harbour):
    """Messages of one member, with proofs."""

    async def made(count):
        membership = harbour.membership(0)
        return [await with_proof(membership, harbour.message(b"%d" % number)) for number in range(count)]

    return made


def forged(routed, number):
    """Return a message of which all is right that costs a node nothing to see."""
    proof = SignalProof.decode(routed.message.rate_limit_proof)
    changed = dataclasses.replace(proof, nullifier=number.to_bytes(ELEMENT_BYTES, "little")).encode()
    return RoutedMessage.of(routed.pubsub_topic, structs.replace(routed.message, rate_limit_proof=changed))


def frame(routed):
    return publish_frame(encode_message(Message(topic=routed.pubsub_topic, data=routed.encoded)))


async def relay_peer(harbour, node, exits, seed):
    """A peer of the node's mesh: its relay, and what it hears."""
    host = await exits.enter_async_context(await Host.start())
    rules = MessageRules.of_network(16, (harbour.shard,))
    relay = await exits.enter_async_context(Relay(host, rules, rng=random.Random(seed)))
    heard = relay.subscribe(harbour.shard)
    await host.connect(node.addresses[0])
    await until(lambda: len(relay.mesh_of(harbour.shard)) == 1)
    return relay, heard


async def flooding(node, exits):
    """A peer that writes whatever it likes; returns its stream."""
    host = await exits.enter_async_context(await Host.start())
    await host.connect(node.addresses[0])
    return await host.open_stream(node.peer_id, [RELAY_PROTOCOL])


def refused(node, fault):
    return parts_of(node).gate.statistics().refused[fault]


def of_unknown_root(routed, number):
    """Return a message as a member makes it who joined after the node looked at the group."""
    proof = SignalProof.decode(routed.message.rate_limit_proof)
    message = structs.replace(routed.message, timestamp_ns=routed.message.timestamp_ns + number)
    signal = rln_signal(message.payload, message.content_topic, message.timestamp_ns)
    changed = dataclasses.replace(proof, root=number.to_bytes(ELEMENT_BYTES, "little"), share_x=hash_to_field(signal))
    return RoutedMessage.of(routed.pubsub_topic, structs.replace(message, rate_limit_proof=changed.encode()))


async def test_a_peer_that_relays_proofs_of_unknown_roots_is_not_penalised(harbour, honest):
    good, template = await honest(2)
    count = 30
    async with harbour:
        node = await harbour.node()
        async with AsyncExitStack() as exits:
            alice, _ = await relay_peer(harbour, node, exits, 1)
            _, heard = await relay_peer(harbour, node, exits, 2)
            for number in range(1, count + 1):
                await alice.publish(harbour.shard, of_unknown_root(template, number).encoded)
            await until(lambda: refused(node, ProofFault.UNKNOWN_ROOT) == count)
            assert len(parts_of(node).relay.mesh_of(harbour.shard)) == 2
            await alice.publish(harbour.shard, good.encoded)
            async with asyncio.timeout(PATIENCE_S):
                assert (await anext(heard)).message.data == good.encoded
            assert refused(node, ProofFault.INVALID) == 0


async def test_messages_of_unknown_roots_do_not_delay_others_while_the_group_is_read(harbour, honest):
    good, template = await honest(2)
    may_answer = threading.Event()

    class Slow(MembershipFile):
        def refresh(self):
            may_answer.wait(PATIENCE_S)
            return super().refresh()

    async with harbour:
        gate = ProofGate(Slow(harbour.group))
        gate.start()
        try:
            await asyncio.sleep(1.1)  # a refresh that began less than a second ago is not repeated
            flood = [asyncio.create_task(gate.judge("flood", of_unknown_root(template, n))) for n in range(1, 2_001)]
            await until(lambda: sum(task.done() for task in flood) == 2_000 - MAX_WAITING)
            assert await gate.judge("honest", good) is None
            may_answer.set()
            for refusal in await asyncio.gather(*flood):
                assert refusal.fault is ProofFault.UNKNOWN_ROOT
        finally:
            may_answer.set()
            await gate.close()


@pytest.mark.full
async def test_a_flooding_peer_cannot_suppress_a_message_by_relaying_it_first(harbour, honest):
    good, other = await honest(2)
    async with harbour:
        node = await harbour.node()
        async with AsyncExitStack() as exits:
            alice, _ = await relay_peer(harbour, node, exits, 1)
            _, heard = await relay_peer(harbour, node, exits, 2)
            stream = await flooding(node, exits)
            many = [frame(forged(other, number)) for number in range(MAX_WAITING)]
            await stream.write(b"".join([*many, frame(good)]))
            await until(lambda: refused(node, ProofFault.NOT_VERIFIED) > 0)
            await alice.publish(harbour.shard, good.encoded)
            async with asyncio.timeout(PATIENCE_S):
                assert (await anext(heard)).message.data == good.encoded


@pytest.mark.full
async def test_relay_peers_are_served_during_a_flood_of_a_peer_that_changes_its_key(harbour, honest):
    *messages, template = await honest(11)
    frames = [frame(forged(template, number)) for number in range(1, 3_001)]

    async def flood(node):
        sent = 0
        while sent < len(frames):
            async with AsyncExitStack() as exits:
                try:
                    stream = await flooding(node, exits)
                    while sent < len(frames):
                        await stream.write(b"".join(frames[sent : sent + 20]))
                        sent += 20
                        await asyncio.sleep(0)
                except Libp2pError:
                    continue  # disconnected: a new key

    async with harbour:
        node = await harbour.node()
        async with AsyncExitStack() as exits:
            alice, _ = await relay_peer(harbour, node, exits, 1)
            _, heard = await relay_peer(harbour, node, exits, 2)
            attack = asyncio.create_task(flood(node))
            for message in messages:
                await alice.publish(harbour.shard, message.encoded)
                async with asyncio.timeout(PATIENCE_S):
                    assert (await anext(heard)).message.data == message.encoded
            async with asyncio.timeout(PATIENCE_S):
                await attack
            assert not len(heard)
            assert parts_of(node).gate.statistics().admitted == len(messages)
            assert refused(node, ProofFault.INVALID) + refused(node, ProofFault.NOT_VERIFIED) > 0
