"""Channels whose network asks for RLN proofs: what the shell does with the protocol's wish for a proof."""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import RlnError, RlnErrorKind
from fairway.events import MessageSendError, SendErrorReason
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.protocol.ratelimit import rln_signal
from fairway.testing import virtual_time
from patience import PATIENCE_S
from patience import run as run_in_bounded_time
from rln_testing import ProofVerdict, RlnTestValidator, StrictRlnProvider

TOPIC = "/fairway/1/harbour/proto"
EPOCH_MS = 600_000
LIMIT = 500
NS_PER_MS = 1_000_000


class Validating(LocalNetwork):
    """A network that looks at the proof of each message that a program hands to its node."""

    def __init__(self, faults=None, *, limit=LIMIT):
        super().__init__(faults, seed=1)
        self.verdicts = Counter()
        self._validator = RlnTestValidator(rate_limit=limit, epoch_ms=EPOCH_MS)

    def handed_over(self, publisher, message):
        super().handed_over(publisher, message)
        one = message.message
        signal = rln_signal(one.payload, one.content_topic, one.timestamp_ns)
        at_ms = one.timestamp_ns // NS_PER_MS
        self.verdicts[self._validator.validate(one.rate_limit_proof or b"", signal, at_ms)] += 1


def member(name="alice", limit=LIMIT, **more):
    return StrictRlnProvider(rate_limit=limit, epoch_ms=EPOCH_MS, member=name, **more)


async def channel(exits, network, name, rln, *, channel_id="harbour", options=None, node=None):
    opened = await create_reliable_channel(
        node or network.node(name), channel_id, name, TOPIC, options=options, rln=rln
    )
    exits.push_async_callback(opened.close)
    return opened


@virtual_time()
async def test_all_is_delivered_through_loss_and_every_message_is_proven_once():
    options = ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=3_600_000))
    async with AsyncExitStack() as exits:
        network = Validating(NetworkFaults(loss=0.3))
        alice, bob = [await channel(exits, network, name, member(name), options=options) for name in ("alice", "bob")]
        wanted = [b"message %d" % number for number in range(30)]
        stream = aiter(bob)
        for payload in wanted:
            await alice.send(payload)
        assert [(await anext(stream)).payload for _ in wanted] == wanted
        assert set(network.verdicts) == {ProofVerdict.VALID}
        assert network.verdicts[ProofVerdict.VALID] >= 30


@virtual_time()
async def test_the_channels_of_a_membership_share_its_message_ids():
    async with AsyncExitStack() as exits:
        network = Validating(limit=10)
        node, rln = network.node("alice"), member(limit=10)
        both = [
            await channel(exits, network, "alice", rln, channel_id=channel_id, node=node)
            for channel_id in ("one", "two")
        ]
        for number in range(10):
            await asyncio.gather(*(one.send(b"%d" % number) for one in both))
        await asyncio.sleep(20)
        assert network.verdicts == {ProofVerdict.VALID: 10}
        await asyncio.sleep(600)
        assert set(network.verdicts) == {ProofVerdict.VALID}
        assert network.verdicts[ProofVerdict.VALID] == 20


@pytest.mark.parametrize("answer", [lambda: "text", lambda: 12, object, lambda: asyncio.sleep(0)])
def test_a_proof_of_a_wrong_type_ends_the_send_with_an_event(answer):
    class Wrong(StrictRlnProvider):
        def generate_proof(self, signal, now_ms):
            return answer()

    @virtual_time()
    async def scenario():
        async with AsyncExitStack() as exits:
            network = LocalNetwork()
            alice = await channel(exits, network, "alice", Wrong(rate_limit=5, epoch_ms=EPOCH_MS))
            events = alice.events()
            await alice.send(b"hello")
            async for event in events:
                if isinstance(event, MessageSendError):
                    break
            assert event.reason is SendErrorReason.RLN_PROOF_FAILED
            assert "not bytes or None" in event.detail

    scenario()


@pytest.mark.parametrize(
    "error",
    [OSError("prover crashed"), RlnError(RlnErrorKind.TRANSIENT), KeyError("x"), CancelledError(), GeneratorExit()],
)
@pytest.mark.parametrize("method", ["generate_proof", "epoch_quota"])
def test_a_provider_that_fails_now_and_then_costs_time_and_no_message(error, method):
    failures = [error] * 3

    class Failing(StrictRlnProvider):
        def fails(self, name):
            if name == method and failures:
                raise failures.pop()

        def generate_proof(self, signal, now_ms):
            self.fails("generate_proof")
            return super().generate_proof(signal, now_ms)

        def epoch_quota(self, now_ms):
            self.fails("epoch_quota")
            return super().epoch_quota(now_ms)

    @virtual_time()
    async def scenario():
        async with AsyncExitStack() as exits:
            network = Validating()
            alice = await channel(exits, network, "alice", Failing(rate_limit=LIMIT, epoch_ms=EPOCH_MS))
            bob = await channel(exits, network, "bob", member("bob"))
            stream = aiter(bob)
            for payload in (b"one", b"two"):
                await alice.send(payload)
            assert {(await anext(stream)).payload for _ in range(2)} == {b"one", b"two"}
            await asyncio.sleep(60)
            assert not failures
            assert set(network.verdicts) == {ProofVerdict.VALID}

    scenario()


def test_proofs_are_made_beside_the_event_loop_and_beside_sending():
    seen = threading.Event()

    class Slow(StrictRlnProvider):
        threads: set[int] = set()  # noqa: RUF012 - of this one test

        def generate_proof(self, signal, now_ms):
            self.threads.add(threading.get_ident())
            # The second proof is there only when the first message has arrived.
            if len(self._next_number.values()) and not seen.wait(PATIENCE_S):
                raise AssertionError("nothing was sent while a proof was being made")
            return super().generate_proof(signal, now_ms)

    async def scenario():
        async with AsyncExitStack() as exits:
            network = LocalNetwork()
            slow = Slow(rate_limit=LIMIT, epoch_ms=EPOCH_MS)
            alice = await channel(exits, network, "alice", slow)
            bob = await channel(exits, network, "bob", None)
            stream = aiter(bob)
            await alice.send(b"one")
            await alice.send(b"two")
            assert (await anext(stream)).payload == b"one"
            seen.set()
            assert (await anext(stream)).payload == b"two"
            assert threading.get_ident() not in slow.threads
            assert len(slow.threads) == 1

    run_in_bounded_time(scenario())
