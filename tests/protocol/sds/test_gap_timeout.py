"""Delivery around gaps: what waits too long is delivered without what is missing, which is still asked for."""

from __future__ import annotations

import pytest

from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesMissing, MessageReady
from fairway.protocol.sds.state import SdsState

AWHILE = 50_000
"""Below a minute, which is the most that one reading of the clock counts for."""


def delivered(outcomes):
    return [(o.message_id, o.dependencies_met) for o in outcomes if isinstance(o, MessageReady)]


def missing(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesMissing) for entry in o.entries]


@pytest.fixture
def bob(new_channel):
    return new_channel("bob", gap_timeout_ms=AWHILE)


def test_each_message_waits_for_its_own_time(next_deadline, bob, a_message, start):
    bob.receive(a_message("m2", "m1"), None, start)
    bob.receive(a_message("m9", "m8"), None, start + 30_000)
    assert delivered(bob.dependencies.sweep(start + AWHILE + 1)) == [("m2", False)]
    assert next_deadline(bob) <= start + 30_000 + AWHILE + 1
    assert delivered(bob.dependencies.sweep(start + 30_000 + AWHILE + 1)) == [("m9", False)]


def test_what_comes_after_it_does_not_wait_for_the_same_gap_again(bob, a_message, start):
    bob.receive(a_message("m2", "m1"), None, start)
    bob.dependencies.sweep(start + AWHILE + 1)
    assert delivered(bob.receive(a_message("m4", "m1", "m2"), None, start + AWHILE + 2)) == [("m4", False)]


def test_what_was_missing_is_delivered_when_it_comes_and_is_no_gap_any_more(bob, a_message, start):
    bob.receive(a_message("m2", "m1"), None, start)
    bob.dependencies.sweep(start + AWHILE + 1)
    assert delivered(bob.receive(a_message("m1", lamport=start - 1), None, start + 2 * AWHILE)) == [("m1", True)]
    assert missing(bob.dependencies.sweep(start + 2 * AWHILE)) == []
    assert delivered(bob.receive(a_message("m5", "m1"), None, start + 2 * AWHILE)) == [("m5", True)]
    assert [record.message_id for record in bob.history][:2] == ["m1", "m2"]


def test_without_a_time_for_losses_the_missing_are_asked_for_for_ever(next_deadline, new_channel, a_message, start):
    bob = new_channel("bob", gap_timeout_ms=AWHILE, lost_timeout_ms=0, repair={"enabled": False})
    bob.receive(a_message("m2", "m1"), None, start)
    assert next_deadline(bob) == start + AWHILE + 1
    assert delivered(bob.dependencies.sweep(start + AWHILE + 1)) == [("m2", False)]
    assert next_deadline(bob) is None
    assert missing(bob.dependencies.sweep(start + 10**12)) == ["m1"]


def test_the_time_away_does_not_count(bob, a_message, start):
    bob.receive(a_message("m2", "m1"), None, start)
    bob.dependencies.can_come(False, start + AWHILE // 2)
    assert delivered(bob.dependencies.sweep(start + 10 * AWHILE)) == []
    bob.dependencies.can_come(True, start + 10 * AWHILE)
    assert delivered(bob.dependencies.sweep(start + 10 * AWHILE + AWHILE // 2 + 1)) == [("m2", False)]


def test_a_restart_neither_waits_again_for_a_gap_nor_forgets_it(bob, a_message, start):
    bob.receive(a_message("m2", "m1"), None, start)
    bob.receive(a_message("m3", "m1", "m0"), None, start + 30_000)
    assert delivered(bob.dependencies.sweep(start + AWHILE + 1)) == [("m2", False)]
    reborn = MessageChannel("ch", "bob", bob.config, now_ms=start)
    SdsState(reborn).load(list(SdsState(bob).rows()))
    reborn.dependencies.let_time_pass(start + AWHILE + 1)
    assert sorted(missing(reborn.dependencies.sweep(start + AWHILE + 1))) == ["m0", "m1"]
    # It waits for the other one only, and is marked because of the first.
    ready = delivered(reborn.receive(a_message("m0"), None, start + AWHILE + 2))
    assert ready == [("m0", True), ("m3", False)]


def test_on_demand_the_oldest_go_first_and_some_go_on_waiting(new_channel, a_message, start):
    bob = new_channel("bob")
    for number in range(5):
        bob.receive(a_message(f"m{number}", f"lost-{number}"), None, start + number)
    assert delivered(bob.dependencies.deliver_around_gaps(start, keep=2)) == [
        ("m0", False),
        ("m1", False),
        ("m2", False),
    ]
    assert delivered(bob.dependencies.deliver_around_gaps(start)) == [("m3", False), ("m4", False)]
    assert len(missing(bob.dependencies.sweep(start))) == 5
