"""What can happen to participants of a world beside absences and crashes, and how they ask the store."""

from __future__ import annotations

import pytest

from fairway.events import (
    EphemeralMessageDropped,
    IrretrievableMessage,
    MessageDelivered,
    MessageReceived,
    MessageSending,
)
from fairway.protocol.effects import Publish, QueryStore
from fairway.simulation import NetworkFaults, World

MINUTE_MS = 60_000


def received(world, name):
    return [event.payload for _, event in world.participants[name].events if isinstance(event, MessageReceived)]


def told(world, name, kind):
    return [event for _, event in world.participants[name].events if isinstance(event, kind)]


def test_whoever_left_hears_and_says_nothing_more():
    world = World(["alice", "bob", "carol"], seed=1)
    world.send("alice", b"one")
    left = world.leave("bob")
    world.run(MINUTE_MS)
    assert "bob" not in world.participants
    assert world.departed == {"bob": left}
    assert not [event for _, event in left.events if isinstance(event, MessageReceived)]
    assert received(world, "carol") == [b"one"]


def test_what_somebody_sent_before_leaving_still_arrives():
    world = World(["alice", "bob"], seed=1)
    world.send("alice", b"farewell")
    world.leave("alice")
    world.run(MINUTE_MS)
    assert received(world, "bob") == [b"farewell"]


def test_a_severed_part_hears_only_itself_until_it_is_mended():
    world = World(["alice", "bob", "carol", "dave"], seed=1)
    world.sever(["alice", "bob"])
    world.send("alice", b"here")
    world.send("carol", b"there")
    world.run(MINUTE_MS)
    assert [received(world, name) for name in ("alice", "bob")] == [[], [b"here"]]
    assert b"there" in received(world, "dave")
    world.mend()
    world.run(3 * MINUTE_MS)
    assert all(set(received(world, name)) >= {b"here", b"there"} for name in ("bob", "dave"))
    assert (received(world, "alice"), received(world, "carol")) == ([b"there"], [b"here"])


def test_whoever_is_cut_off_does_not_know_it():
    world = World(["alice", "bob"], seed=1)
    world.cut_off("alice")
    world.send("alice", b"hello")
    assert told(world, "alice", MessageSending)
    world.run(1_000)
    assert received(world, "bob") == []
    world.go_online("alice")
    world.run(MINUTE_MS)
    assert received(world, "bob") == [b"hello"]


def test_a_send_that_a_crash_interrupts_before_it_leaves_is_sent_by_the_next_life():
    world = World(["alice", "bob"], seed=1)
    lives, published = [], []
    world.restarted = lives.append
    world.effect_observers.append(
        lambda at_ms, name, effect: published.append(name) if isinstance(effect, Publish) and not lives else None
    )
    world.crash_amid_next("alice")
    world.send("alice", b"hello")
    assert (lives, published) == (["alice"], [])
    world.run(2 * MINUTE_MS)
    assert lives == ["alice"]
    assert received(world, "bob") == [b"hello"]
    assert len(told(world, "alice", MessageDelivered)) == 1


def test_a_crash_amid_a_transmission_waits_for_one_that_is_to_last():
    world = World(["alice", "bob"], seed=1)
    lives = []
    world.restarted = lives.append
    world.crash_amid_next("alice")
    world.send_ephemeral("alice", b"typing")
    assert lives == []
    world.run(1_000)
    assert received(world, "bob") == [b"typing"]


def test_after_a_crash_whoever_is_offline_knows_it():
    world = World(["alice", "bob"], seed=1)
    world.cut_off("alice")
    world.crash("alice")
    world.send_ephemeral("alice", b"typing")
    assert told(world, "alice", EphemeralMessageDropped)


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_a_joiner_asks_the_store_for_everything_page_by_page(loss):
    world = World(["alice", "bob"], seed=1, faults=NetworkFaults(loss=loss))
    payloads = [f"message {number}".encode() for number in range(250)]
    for payload in payloads:
        world.send("alice", payload)
        world.run(1_000)
    world.run(10 * MINUTE_MS)
    world.leave("alice")
    queries = []
    world.effect_observers.append(
        lambda at_ms, name, effect: queries.append(effect) if isinstance(effect, QueryStore) else None
    )
    world.join("carol")
    world.run(2 * MINUTE_MS)
    assert [query.catch_up for query in queries][:1] == [True]
    assert sorted(received(world, "carol")) == sorted(payloads)
    assert ("caught_up", "") in world.participants["carol"].rows


def test_nobody_asks_a_store_that_cannot_be_reached():
    world = World(["alice", "bob"], seed=1)
    world.send("alice", b"one")
    world.run(MINUTE_MS)
    world.sever(["carol"])
    world.join("carol")
    world.run(MINUTE_MS)
    assert received(world, "carol") == []
    world.mend()
    world.run(2 * MINUTE_MS)
    assert received(world, "carol") == [b"one"]


# Short lives


@pytest.fixture
def world_with_a_loss():
    """Dave sent two things and left; the first reached nobody, not even the store, and the second cites it."""
    world = World(["alice", "carol", "dave"], seed=1, faults=NetworkFaults(min_delay_ms=20, max_delay_ms=60))
    world.network.faults = NetworkFaults(loss=0.999999, store_loss=1.0)
    world.send("dave", b"lost to all")
    world.run(10_000)
    world.network.faults = NetworkFaults(min_delay_ms=20, max_delay_ms=60)
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
    assert sorted(received(world, "carol")) == [*sent, b"second"]
    assert len(told(world, "carol", IrretrievableMessage)) == 1


def test_nothing_is_given_up_while_a_store_is_being_read_and_a_silent_one_holds_up_nothing(world_with_a_loss):
    world = world_with_a_loss
    carol = world.participants["carol"]
    world.run(50 * MINUTE_MS)
    carol.stack.set_connected(False, world.now_ms)
    carol.stack.set_connected(True, world.now_ms)
    assert any(isinstance(effect, QueryStore) for effect in carol.stack.store_connected(world.now_ms))
    before_ms = carol.stack.sds.dependencies.clock.waited_ms
    world.run(2 * MINUTE_MS - 1_000)
    assert carol.stack.sds.dependencies.clock.waited_ms == before_ms
    world.run(15 * MINUTE_MS)
    assert received(world, "carol") == [b"second"], "the store, asked by nobody here, brought nothing for long"
