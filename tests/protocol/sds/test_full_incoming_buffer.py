"""A participant with a full incoming buffer gets the messages that it lacks from other participants.

A message that is turned away names the messages that it cites. Once the first of those is here, the rest follows.
"""

import pytest

from fairway.events import LossReason
from fairway.protocol.sds.outcome import ContentRefusal, DependenciesLost, MessageReady
from fairway.protocol.sds.state import SdsState
from fairway.wire.sds import WAKU_SDS

A_MINUTE = 60_000
AN_HOUR = 60 * A_MINUTE


def asked_for(channel):
    return {scheduled.message_id for scheduled in channel.repair.requests}


def a_chain(a_message, length):
    return [a_message("m0"), *(a_message(f"m{n}", f"m{n - 1}") for n in range(1, length))]


def filled(new_channel, chain, start, **options):
    """Make a channel that lacks the first of a chain, and has been shown all others, the last one first."""
    bob = new_channel("bob", **options)
    for message in reversed(chain[1:]):
        bob.receive(message, None, start)
    bob.dependencies.sweep(start + 1)
    return bob


@pytest.mark.parametrize("cited", [2, pytest.param(5, marks=pytest.mark.full)])
def test_a_participant_gets_more_messages_than_its_buffer_holds_from_others_within_hours(
    new_channel, send, ready, start, cited
):
    count = 450
    alice = new_channel("alice", bloom_capacity=1_000, causal_history_size=cited)
    bob = new_channel("bob", bloom_capacity=1_000, causal_history_size=cited, max_incoming_buffer=12)
    said = [send(alice, b"%d" % number, start + number) for number in range(count)]
    outcomes = []
    for message in said[-30:]:
        outcomes += bob.receive(message, None, start + count)
    for now_ms in range(start + A_MINUTE, start + 24 * AN_HOUR, 5_000):
        outcomes += bob.dependencies.sweep(now_ms)
        if now_ms % A_MINUTE == start % A_MINUTE:
            outcomes += bob.receive(alice.send_sync(now_ms), None, now_ms)
        is_due = (bob.repair.requests.next_at() or now_ms + 1) <= now_ms
        if now_ms % 30_000 == start % 30_000 and is_due:
            alice.receive(bob.send_sync(now_ms), None, now_ms)
        for _, encoded in alice.sweep_repair(now_ms):
            outcomes += bob.receive(WAKU_SDS.decode(encoded), None, now_ms, encoded)
        outcomes = [o for o in outcomes if isinstance(o, MessageReady | DependenciesLost)]
        if len(bob.history) == count:
            break
    assert not [o for o in outcomes if isinstance(o, DependenciesLost)]
    assert ready(outcomes) == [message.message_id for message in said]


def test_what_came_just_before_a_restart_lets_the_next_be_asked_for(new_channel, a_message, ready, start):
    chain = a_chain(a_message, 60)
    bob = filled(new_channel, chain, start, max_incoming_buffer=16)
    assert ready(bob.receive(chain[0], None, start + 2)) == ["m0"]
    kept = list(SdsState(bob).rows())
    reborn = new_channel("bob", start + 3, max_incoming_buffer=16)
    SdsState(reborn).load(kept)
    assert sorted(kept, key=repr) == sorted(SdsState(reborn).rows(), key=repr)
    reborn.dependencies.sweep(start + 4)
    assert asked_for(reborn) == {"m1"}


def test_what_was_to_be_asked_for_later_is_given_up_in_the_end_however_often_a_program_is_started_again(
    new_channel, a_message, start
):
    bob, now_ms = filled(new_channel, a_chain(a_message, 40), start, max_incoming_buffer=8), start
    for _ in range(200):
        for _ in range(50):
            bob.dependencies.sweep(now_ms := now_ms + A_MINUTE)
        rows = list(SdsState(bob).rows())
        bob = new_channel("bob", now_ms, max_incoming_buffer=8)
        SdsState(bob).load(rows)
        if not bob.missing:
            break
    assert (bob.missing, bob.parked) == ({}, {})


def test_nothing_is_given_up_while_what_it_waits_for_comes_in_however_slowly(
    new_channel, a_message, ready, sweep_until, start
):
    chain = a_chain(a_message, 40)
    bob, outcomes, now_ms = filled(new_channel, chain, start, max_incoming_buffer=4), [], start
    for message in chain:
        outcomes += bob.receive(message, None, now_ms)
        outcomes += sweep_until(bob, now_ms, now_ms + 50 * A_MINUTE)
        now_ms += 50 * A_MINUTE
    assert ready(outcomes) == [message.message_id for message in chain]
    assert not [o for o in outcomes if isinstance(o, DependenciesLost)]


def test_what_the_layer_above_refused_is_asked_for_once_what_it_cites_is_here_and_then_at_once(
    new_channel, a_message, start
):
    bob = new_channel("bob")
    bob.receive(a_message("m3", "m2"), None, start)
    bob.receive(a_message("sync-1", "m1", content=None), None, start)
    bob.refuse(a_message("m2", "m1"), start + 1, ContentRefusal.NO_ROOM)
    for second in range(60):
        bob.dependencies.sweep(start + 1_000 * second)
        assert asked_for(bob) == {"m1"}, "there is room here, but not where it was refused"
    bob.receive(a_message("m1"), None, start + AN_HOUR)
    bob.dependencies.sweep(start + AN_HOUR + 1)
    assert asked_for(bob) == {"m2"}
    assert bob.repair.requests.next_at() == start + AN_HOUR + 1


def test_what_the_layer_above_refused_is_not_asked_for_after_a_restart_for_the_room_that_is_here(
    new_channel, a_message, found, sweep_until, start
):
    bob = new_channel("bob")
    bob.receive(a_message("m3", "m2"), None, start)
    bob.refuse(a_message("m2", "m1"), start + 1, ContentRefusal.NO_ROOM)
    reborn = new_channel("bob", start + 2)
    SdsState(reborn).load(SdsState(bob).rows())
    reborn.dependencies.sweep(start + 3)
    assert asked_for(reborn) == {"m1"}
    lost = found(sweep_until(reborn, start + 3, start + 3 * AN_HOUR), DependenciesLost)
    reasons = {entry.message_id: each.reason for each in lost for entry in each.entries}
    assert reasons == {"m1": LossReason.TIMEOUT, "m2": LossReason.NO_ROOM}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_came_and_is_of_no_use_is_not_waited_for_again_once_what_it_cites_is_given_up(
    new_channel, a_message, found, ready, sweep_until, start, is_restarted
):
    bob, chain = new_channel("bob"), a_chain(a_message, 6)
    bob.receive(a_message("last", "m5"), None, start)
    for message in reversed(chain[1:]):
        bob.refuse(message, start + 1, ContentRefusal.USELESS)
    if is_restarted:
        rows = list(SdsState(bob).rows())
        bob = new_channel("bob", start + 2)
        SdsState(bob).load(rows)
        assert sorted(rows) == sorted(SdsState(bob).rows())
    outcomes = sweep_until(bob, start + 2, start + AN_HOUR + 2 * A_MINUTE)
    assert ready(outcomes) == ["last"]
    assert [entry.message_id for o in found(outcomes, DependenciesLost) for entry in o.entries] == ["m0"]
    assert not bob.missing


def test_what_came_and_is_of_no_use_still_keeps_its_place_before_what_follows_it(new_channel, a_message, ready, start):
    bob = new_channel("bob")
    bob.receive(a_message("last", "useless"), None, start)
    bob.refuse(a_message("useless", "m1", "m2"), start + 1, ContentRefusal.USELESS)
    assert ready(bob.receive(a_message("m2"), None, start + 2)) == ["m2"]
    assert ready(bob.dependencies.sweep(start + 3)) == []
    assert ready(bob.receive(a_message("m1"), None, start + 4)) == ["m1"]
    assert ready(bob.dependencies.sweep(start + 5)) == ["last"]
