"""Messages that became deliverable stay parked while the application has no room for them."""

from __future__ import annotations

import pytest

from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesLost
from fairway.protocol.sds.state import SdsState
from fairway.wire.batch import encode_batch

AWHILE = 50_000


@pytest.fixture
def bob(new_channel, a_message, start):
    """Bob, who lacks m0, on which four messages of ten bytes depend in a row."""
    bob = new_channel("bob")
    for number in range(1, 5):
        bob.receive(a_message(f"m{number}", f"m{number - 1}", content=b"ten bytes."), None, start)
    return bob


def test_a_missing_message_brings_as_many_others_as_there_is_room_for(bob, a_message, start, ready):
    bob.dependencies.set_room(3, 1_000)
    assert ready(bob.receive(a_message("m0"), None, start)) == ["m0", "m1", "m2"]
    assert bool(bob.dependencies.held_back)
    assert ready(bob.dependencies.deliver_held_back(start)) == []
    bob.dependencies.set_room(1, 1_000)
    assert ready(bob.dependencies.deliver_held_back(start)) == ["m3"]
    bob.dependencies.set_room(5, 1_000)
    assert ready(bob.dependencies.deliver_held_back(start)) == ["m4"]
    assert not bool(bob.dependencies.held_back)
    assert not bob.parked


def test_room_is_counted_in_bytes_too_and_the_last_message_may_exceed_it(bob, a_message, start, ready):
    bob.dependencies.set_room(100, 25)
    assert ready(bob.receive(a_message("m0", content=b"ten bytes."), None, start)) == ["m0", "m1", "m2"]


def test_a_batch_uses_up_the_room_because_it_may_hold_any_number_of_messages(new_channel, a_message, start, ready):
    bob, batch = new_channel("bob"), encode_batch([b"one", b"two"])
    for number in range(1, 4):
        bob.receive(a_message(f"m{number}", f"m{number - 1}", content=batch), None, start)
    bob.dependencies.set_room(500, 1_000)
    assert ready(bob.receive(a_message("m0"), None, start)) == ["m0", "m1"]
    for message_id in ("m2", "m3"):
        bob.dependencies.set_room(500, 1_000)
        assert ready(bob.dependencies.deliver_held_back(start)) == [message_id]


def test_what_comes_meanwhile_keeps_its_causal_place(bob, a_message, start, ready):
    bob.dependencies.set_room(2, 1_000)
    assert ready(bob.receive(a_message("m0"), None, start)) == ["m0", "m1"]
    assert ready(bob.receive(a_message("m5", "m4"), None, start)) == []
    bob.dependencies.set_room(100, 1_000)
    assert ready(bob.dependencies.deliver_held_back(start)) == ["m2", "m3", "m4", "m5"]


def test_messages_held_back_are_delivered_after_a_restart(bob, a_message, start, ready):
    bob.dependencies.set_room(2, 1_000)
    bob.receive(a_message("m0"), None, start)
    rows = list(SdsState(bob).rows())
    again = MessageChannel("ch", "bob", bob.config, now_ms=start)
    SdsState(again).load(rows)
    assert again.dependencies.held_back
    assert ready(again.dependencies.deliver_held_back(start)) == ["m2", "m3", "m4"]


@pytest.mark.parametrize("options", [{"gap_timeout_ms": AWHILE}, {"lost_timeout_ms": AWHILE}])
def test_a_sweep_passes_over_no_message_that_is_held_back(new_channel, a_message, start, ready, options):
    bob = new_channel("bob", **options)
    bob.receive(a_message("m2", "m1", "other"), None, start)
    bob.receive(a_message("m1", "m0"), None, start)
    bob.dependencies.set_room(0, 1_000)
    assert ready(bob.dependencies.sweep(start + AWHILE + 1)) == []
    bob.dependencies.set_room(9, 1_000)
    assert ready(bob.dependencies.deliver_held_back(start + AWHILE + 1)) == ["m1", "m2"]


@pytest.mark.parametrize("options", [{"gap_timeout_ms": AWHILE}, {"lost_timeout_ms": AWHILE}])
def test_a_sweep_holds_back_what_it_gives_up_waiting_for(new_channel, a_message, start, ready, options):
    bob = new_channel("bob", **options)
    for number in range(1, 5):
        bob.receive(a_message(f"m{number}", "m0"), None, start)
    bob.dependencies.set_room(2, 1_000)
    assert ready(bob.dependencies.sweep(start + AWHILE + 1)) == ["m1", "m2"]
    bob.dependencies.set_room(0, 1_000)
    outcomes = bob.dependencies.sweep(start + 2 * AWHILE)
    assert ready(outcomes) == []
    assert not any(isinstance(outcome, DependenciesLost) for outcome in outcomes)
    bob.dependencies.set_room(9, 1_000)
    assert ready(bob.dependencies.deliver_held_back(start + 2 * AWHILE)) == ["m3", "m4"]


def test_messages_that_cite_each_other_are_not_given_up_while_others_are_held_back(bob, a_message, start, ready):
    bob.dependencies.set_room(1, 1_000)
    bob.receive(a_message("m0"), None, start)
    bob.receive(a_message("a", "b"), None, start)
    bob.receive(a_message("b", "a"), None, start)
    later = start + 60_000
    while later < start + 2 * bob.config.lost_timeout_ms:
        assert ready(bob.dependencies.sweep(later)) == []
        later += 60_000
    bob.dependencies.set_room(9, 1_000)
    assert ready(bob.dependencies.deliver_held_back(later)) == ["m1", "m2", "m3", "m4"]
    assert sorted(ready(bob.dependencies.sweep(later))) == ["a", "b"]
