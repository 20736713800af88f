"""Long absences from a store, and lives that are short: what participants find when they come back."""

from __future__ import annotations

import pytest

from fairway.events import IrretrievableMessage, MessageReceived
from fairway.simulation import World
from fairway.testing import DiskFault, SimulatedDisk
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
