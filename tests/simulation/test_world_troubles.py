"""Long absences from a store, and lives that are short: what participants find when they come back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.events import IrretrievableMessage, Limit, LimitReached, MessageDelivered, MessageReceived, MessageSent
from fairway.options import ReliableChannelOptions
from fairway.protocol.encryption.aead import AesGcm
from fairway.simulation import World
from fairway.simulation.cipher import TroubledCipher
from fairway.simulation.program import Habits
from fairway.testing import DiskFault, DiskFaults, SimulatedDisk
from fairway.waku.local import NetworkFaults

MINUTE_MS = 60_000


@pytest.fixture
def make():
    """Make worlds whose programs run, and let go of them after the test."""
    worlds = []

    def make(*names, **more):
        worlds.append(World(names, seed=1, **more))
        worlds[-1].run(1_000)
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def received(world, name):
    return [event.payload for event in told(world, name, MessageReceived)]


def told(world, name, kind):
    return [event for _, event in world.participants[name].events if isinstance(event, kind)]


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_a_joiner_asks_the_store_for_everything_page_by_page(make, loss):
    world = make("alice", "bob", faults=NetworkFaults(loss=loss))
    payloads = [b"message %d" % number for number in range(250)]
    for payload in payloads:
        world.send("alice", payload)
        world.run(1_000)
    world.run(10 * MINUTE_MS)
    world.leave("alice")
    asked = world.network.statistics().queries
    world.join("carol")
    assert world.run(60 * MINUTE_MS, until=lambda: len(received(world, "carol")) >= len(payloads))
    assert received(world, "carol") == payloads
    assert world.network.statistics().queries - asked > 2


def test_a_store_that_cannot_be_reached_is_read_when_it_can(make):
    world = make("alice", "bob")
    world.send("alice", b"one")
    world.run(MINUTE_MS)
    carol = world.join("carol")
    carol.node.store_available = False
    world.run(MINUTE_MS)
    assert received(world, "carol") == []
    carol.node.store_available = True
    world.run(2 * MINUTE_MS)
    assert received(world, "carol") == [b"one"]


# Short lives


@pytest.fixture
def world_with_a_loss(make):
    """Dave sent two things and left; the first reached nobody, not even the store, and the second cites it."""
    world = make("alice", "carol", "dave", faults=NetworkFaults(max_delay_ms=60))
    world.network.faults = NetworkFaults(loss=0.999999, store_loss=1.0)
    world.send("dave", b"lost to all")
    world.run(10_000)
    world.network.faults = NetworkFaults(max_delay_ms=60)
    world.send("dave", b"second")
    world.run(5_000)
    world.leave("dave")
    return world


def live_in_pieces(world, interrupt, piece_ms, pieces):
    sent = []
    for number in range(pieces):
        world.run(piece_ms - MINUTE_MS)
        sent.append(b"%d" % number)
        world.send("alice", sent[-1])
        world.run(MINUTE_MS)
        interrupt(world)
    world.run(MINUTE_MS)
    return sent


def offline_for_a_minute(world):
    world.go_offline("carol")
    world.run(MINUTE_MS)
    world.go_online("carol")


@pytest.mark.parametrize(
    ("interrupt", "piece_ms"),
    [(lambda world: world.crash("carol"), 50 * MINUTE_MS), (offline_for_a_minute, 30 * MINUTE_MS)],
    ids=["restarts every 50 minutes", "reconnects every 30 minutes"],
)
def test_a_message_that_is_lost_to_all_holds_up_whoever_is_never_connected_for_an_hour_no_longer_than_others(
    world_with_a_loss, interrupt, piece_ms
):
    world = world_with_a_loss
    sent = live_in_pieces(world, interrupt, piece_ms, 4)
    new = [message.payload for message in told(world, "carol", MessageReceived) if not message.redelivered]
    assert sorted(new) == [*sent, b"second"]
    assert len(told(world, "carol", IrretrievableMessage)) == 1


def test_a_machine_that_crashes_while_its_store_is_opened_again_has_one_life_after_it(make):
    with SimulatedDisk(seed=1) as disk:
        world = make("alice", "bob", disk=disk)
        for fault in (DiskFault.CRASH_AFTER, DiskFault.CRASH_BEFORE):
            disk.strike("bob", fault)
        world.send("bob", b"one")
        world.run(MINUTE_MS)
        assert world.participants["bob"].lives == 3
        world.send("alice", b"two")
        world.run(MINUTE_MS)
        assert received(world, "bob") == [b"two"]


def test_who_was_away_reads_no_more_from_the_store_than_the_application_has_room_for(make):
    options = replace(ReliableChannelOptions(), max_unread_messages=5)
    slow = Habits(slow_ms=60_000)
    world = make(
        "alice",
        options=options,
        faults=NetworkFaults(store_page=10),
        habits_of=lambda n: slow if n == "bob" else Habits(),
    )
    for number in range(40):
        world.send("alice", b"%d" % number)
    world.run(MINUTE_MS)
    bob = world.join("bob")
    most = 0
    for _ in range(120):
        world.run(1_000)
        most = max(most, bob.channel.statistics().unfinished)
    assert most == 5
    assert told(world, "bob", LimitReached)[0].limit is Limit.UNREAD_MESSAGES
    assert world.run(300 * MINUTE_MS, until=lambda: len(received(world, "bob")) == 40)
    assert sorted(received(world, "bob")) == sorted(b"%d" % number for number in range(40))


def test_a_slow_disk_lets_in_no_more_messages_than_the_application_has_room_for(make):
    options = replace(ReliableChannelOptions(), max_unread_messages=5, max_concurrent_publishes=16)
    with SimulatedDisk(seed=1) as disk:
        disk.faults = DiskFaults(latency_ms=(2_000.0, 3_000.0))
        slow = Habits(slow_ms=5_000)
        world = make(
            "alice",
            "bob",
            options=options,
            disk=disk,
            faults=NetworkFaults(min_delay_ms=20, max_delay_ms=20, store_loss=1.0),
            habits_of=lambda name: slow if name == "bob" else Habits(),
        )
        for number in range(20):
            world.send("alice", b"%d" % number)
        most = 0
        for _ in range(100):
            world.run(500)
            most = max(most, world.participants["bob"].channel.statistics().unfinished)
        assert most == 5
        assert told(world, "bob", LimitReached)[0] == LimitReached(limit=Limit.UNREAD_MESSAGES, bound=5)
        assert world.run(10 * MINUTE_MS, until=lambda: len(received(world, "bob")) == 20)


def test_who_leaves_acknowledges_what_he_has_read_also_where_sealing_takes_a_while(make):
    def cipher(name):
        dice = random.Random(name)
        return TroubledCipher(AesGcm(bytes(32), random_bytes=dice.randbytes), dice, 100, 0.0)

    world = make("alice", "bob", encryption=cipher)
    world.run(1_000)
    world.send("alice", b"until soon", by=("bob",))
    assert world.run(5_000, until=lambda: bool(received(world, "bob")))
    world.stop("bob")
    assert world.run(5_000, until=lambda: bool(told(world, "alice", MessageDelivered)))


def test_a_node_that_never_answers_has_taken_nothing_and_is_asked_again(make):
    world = make("alice", "bob")
    world.run(1_000)
    world.network.faults = NetworkFaults(silence=1.0)
    world.send("alice", b"one")
    world.run(MINUTE_MS)
    assert told(world, "alice", MessageSent) == []
    assert world.participants["alice"].stack.statistics().not_taken >= 1
    world.network.faults = NetworkFaults()
    assert world.run(5 * MINUTE_MS, until=lambda: received(world, "bob") == [b"one"])


def test_a_channel_that_is_stopped_amid_everything_goes_on_where_it_was(make):
    world = make("alice", "bob", faults=NetworkFaults(loss=0.3))
    for number in range(30):
        world.send("alice", b"%d" % number)
        world.pause(("alice", "bob")[number % 2], 500 * (number % 3))
        world.run(5_000)
    assert world.run(20 * MINUTE_MS, until=lambda: len(received(world, "bob")) == 30)
    assert received(world, "bob") == [b"%d" % number for number in range(30)]
    world.run(5 * MINUTE_MS)
    ended = [event.request_id for event in told(world, "alice", MessageDelivered)]
    assert sorted(ended) == sorted(f"alice-{number}" for number in range(1, 31))
