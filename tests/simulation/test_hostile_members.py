"""What members who forge can do to the others: cost them little, and keep nothing from them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.events import DeliveryError, IrretrievableMessage, MessageDelivered, MessageReceived
from fairway.options import Profile, ReliableChannelOptions, SdsConfig
from fairway.simulation import World
from fairway.simulation.hostile import Mallory
from fairway.simulation.ledger import Ledger
from fairway.simulation.wire_rules import WireRules
from fairway.simulation.world import DEFAULT_CHANNEL_ID
from fairway.units import NS_PER_MS
from fairway.waku.local import NetworkFaults
from fairway.waku.node import RoutedMessage
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

MINUTE_MS = 60_000
NAMES = ("alice", "bob", "carol")
OPTIONS = ReliableChannelOptions(sds=SdsConfig(bloom_capacity=1_000))
TOPIC = "/fairway/1/harbour/proto"


class Hostile:
    """A world of honest participants, and somebody who sends what no participant would."""

    def __init__(self, seed):
        self.world = World(NAMES, seed=seed, faults=NetworkFaults(loss=0.3), options=OPTIONS, content_topic=TOPIC)
        self.mallory = self.world.network.node("mallory")
        self.forged = self.forged_bytes = 0

    @property
    def honest_bytes(self):
        """What the honest transmitted."""
        return self.world.network.statistics().published_bytes - self.forged_bytes

    def forge(self, *, cites=(), asks=(), content=b"x"):
        """Send a forged message."""
        world, self.forged = self.world, self.forged + 1
        forged = SdsMessage(
            message_id=f"{'' if content else 'sync-'}{self.forged:064x}",
            sender_id=f"mallory {self.forged}",
            channel_id=DEFAULT_CHANNEL_ID,
            lamport_timestamp=world.now_ms,
            causal_history=tuple(HistoryEntry(name, None, "nobody") for name in cites),
            repair_request=tuple(asks),
            content=content,
        )
        message = RoutedMessage.of(
            autoshard(TOPIC, 1, 8),
            WakuMessage(payload=WAKU_SDS.encode(forged), content_topic=TOPIC, timestamp_ns=world.now_ms * 1_000_000),
        )
        assert world.loop.run_until_complete(self.mallory.send(message)).accepted
        self.forged_bytes += len(message.encoded)

    def talk(self, attack):
        """Let the honest talk for 20 minutes, with an attack every 20 seconds; return what was said."""
        said = []
        self.world.run(1_000)
        for turn in range(60):
            attack(self, turn)
            if turn % 3 == 0:
                name = NAMES[turn // 3 % len(NAMES)]
                said.append((name, b"%d " % turn + bytes(2_000)))
                self.world.send(name, said[-1][1], count=len(NAMES) - 1)
            self.world.run(20_000)
        self.world.run(20 * MINUTE_MS)
        return said

    def told(self, name, kind):
        return [event for _, event in self.world.participants[name].events if isinstance(event, kind)]

    def missed(self, said):
        """Return whom what was said did not reach."""
        return [
            (name, payload[:3])
            for name in NAMES
            for sender, payload in said
            if sender != name and payload not in [e.payload for e in self.told(name, MessageReceived)]
        ]


def invents(hostile, turn):
    if turn < 8:
        hostile.forge(cites=[f"{turn}-{number}" for number in range(1_000)])


def invents_in_sync_messages(hostile, turn):
    if turn < 8:
        hostile.forge(cites=[f"{turn}-{number}" for number in range(1_000)], content=None)


def asks_for_everything(hostile, turn):
    history = hostile.world.participants["alice"].stack.sds.log()[-100:]
    for start in range(0, len(history), 10):
        hostile.forge(asks=[record.entry for record in history[start : start + 10]], content=None)


@pytest.fixture
def hostile():
    hostile = Hostile(seed=1)
    yield hostile
    hostile.world.close()


@pytest.fixture(scope="module")
def peaceful_bytes():
    hostile = Hostile(seed=1)
    with hostile.world:
        # A stranger who says as much, and harmless things: whatever is said is acknowledged.
        assert hostile.missed(hostile.talk(lambda stranger, _: stranger.forge())) == []
        return hostile.honest_bytes


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(invents, marks=pytest.mark.full),
        pytest.param(invents_in_sync_messages, marks=pytest.mark.full),
        asks_for_everything,
    ],
)
def test_under_attack_all_that_is_honest_arrives_and_nobody_transmits_three_times_as_much(
    hostile, attack, peaceful_bytes
):
    said = hostile.talk(attack)
    assert hostile.forged
    assert hostile.missed(said) == []
    assert sum(len(hostile.told(name, MessageDelivered)) for name in NAMES) == len(said)
    assert not any(hostile.told(name, DeliveryError) for name in NAMES)
    honest = {
        record.message_id for record in hostile.world.participants["alice"].stack.sds.log() if record.sender_id in NAMES
    }
    assert not any(event.message_id in honest for name in NAMES for event in hostile.told(name, IrretrievableMessage))
    assert hostile.honest_bytes < 3 * peaceful_bytes


def test_who_answers_in_haste_does_not_answer_what_was_forged():
    """Others repeat it when they are asked to, and that they are asked to by him, so that it would never end."""

    class Eager(random.Random):
        def random(self):
            return 0.0

    options = replace(OPTIONS, profile=Profile.LOGOS)
    ledger = Ledger(lambda *_: True, WireRules(Profile.LOGOS, options.sds))
    with World(["alice"], seed=1, options=options, content_topic=TOPIC) as world:
        mallory = Mallory(world, options, None, ledger, Eager(1))

        def answers_to(message_id):
            said = SdsMessage(
                message_id=message_id,
                sender_id="alice",
                channel_id=DEFAULT_CHANNEL_ID,
                lamport_timestamp=world.now_ms,
                content=b"hello",
            )
            carrier = WakuMessage(
                payload=Profile.LOGOS.codec.encode(said), content_topic=TOPIC, timestamp_ns=world.now_ms * NS_PER_MS
            )
            before = len(ledger.forged)
            mallory.published(world.now_ms, "alice", RoutedMessage.of(autoshard(TOPIC, 1, 8), carrier))
            world.run(1_000)
            return len(ledger.forged) - before

        assert answers_to("what alice said") > 0
        ledger.forged.add("what she did not say")
        assert answers_to("what she did not say") == 0
