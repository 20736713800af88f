"""Giving up: losses, circles and bounds (SDS, "Periodic Incoming Buffer Sweep")."""

from fairway.events import Limit, LossReason
from fairway.protocol.sds.dependencies import PARKED_BYTES
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    Ignored,
    MessageIgnored,
    MessageReady,
)
from fairway.protocol.sds.state import SdsState

AN_HOUR = 3_600_000


def missing_ids(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesMissing) for entry in o.entries]


def lost_ids(outcomes):
    return [entry.message_id for o in outcomes if isinstance(o, DependenciesLost) for entry in o.entries]


# Losses


def test_a_message_tells_whether_something_it_cites_was_lost_also_if_it_comes_after_the_loss(
    new_channel, a_message, found, sweep_until, start
):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    sweep_until(bob, start, start + AN_HOUR + 1)

    def met(message):
        (outcome,) = found(bob.receive(message, None, start + AN_HOUR + 2), MessageReady)
        return outcome.dependencies_met

    assert not met(a_message("m3", "m1", "m2"))
    assert met(a_message("m4", "m2", "m3"))
    bob.receive(a_message("m1"), None, start)
    assert met(a_message("m5", "m1"))


def test_what_was_lost_while_a_message_waited_and_came_before_it_was_ready_was_not_lost_to_it(
    new_channel, a_message, found, sweep_until, start
):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    bob.receive(a_message("m3", "m1", "m0"), None, start + 1_000)
    sweep_until(bob, start + 1_000, start + AN_HOUR + 1)
    bob.receive(a_message("m1"), None, start)
    (outcome,) = found(bob.receive(a_message("m0"), None, start), MessageReady)[1:]
    assert outcome.message_id == "m3"
    assert outcome.dependencies_met


def test_the_time_away_does_not_count_and_what_was_waited_before_does(
    next_deadline, new_channel, a_message, sweep_until, start
):
    bob, now_ms = new_channel("bob"), start
    bob.receive(a_message("m2", "m1"), None, start)
    for _ in range(3):
        assert lost_ids(sweep_until(bob, now_ms, now_ms + AN_HOUR // 3)) == []
        bob.dependencies.can_come(False, now_ms + AN_HOUR // 3)
        assert next_deadline(bob) is None or next_deadline(bob) == bob.repair.requests.next_at()
        now_ms += 5 * AN_HOUR
        bob.dependencies.can_come(True, now_ms)
    assert lost_ids(bob.dependencies.sweep(now_ms)) == []
    assert lost_ids(bob.dependencies.sweep(now_ms + 1)) == ["m1"]


def test_waiting_adds_up_over_restarts(new_channel, a_message, sweep_until, start):
    bob, now_ms, lives = new_channel("bob"), start, 0
    bob.receive(a_message("m2", "m1"), None, start)
    while not (lost := lost_ids(sweep_until(bob, now_ms, now_ms + 50_000 * 60))):
        now_ms += 50_000 * 60 + AN_HOUR
        rows = list(SdsState(bob).rows())
        bob = new_channel("bob", now_ms)
        SdsState(bob).load(rows)
        lives += 1
        assert lives < 3, "50 minutes and 50 minutes are more than an hour"
    assert lost == ["m1"]
    assert lives == 1


def test_no_leap_of_a_clock_is_taken_for_time_waited_and_none_stops_the_waiting(new_channel, a_message, start):
    bob, now_ms = new_channel("bob"), start
    bob.receive(a_message("m2", "m1"), None, start + 1_000 * AN_HOUR)
    for leap in (10 * AN_HOUR, -20 * AN_HOUR, 1_000 * AN_HOUR, -2_000 * AN_HOUR):
        now_ms += leap
        assert lost_ids(bob.dependencies.sweep(now_ms)) == []
    swept = 0
    while not lost_ids(bob.dependencies.sweep(now_ms := now_ms + 30_000)):
        swept += 1
        assert bob.dependencies.next_loss_at() <= now_ms + 60_000
    assert 115 <= swept <= 120, "an hour, whatever the clock says"


# Circles


def test_messages_that_cite_each_other_are_released_after_the_timeout(
    next_deadline, new_channel, a_message, ready, sweep_until, start
):
    bob = new_channel("bob")
    bob.receive(a_message("a", "c"), None, start)
    bob.receive(a_message("b", "a"), None, start)
    bob.receive(a_message("c", "b"), None, start)
    bob.receive(a_message("d", "c"), None, start)
    assert not bob.missing
    assert ready(sweep_until(bob, start, start + AN_HOUR)) == []
    assert next_deadline(bob) == start + AN_HOUR + 1
    assert sorted(ready(bob.dependencies.sweep(start + AN_HOUR + 1))) == ["a", "b", "c", "d"]
    assert not bob.parked
    assert bob.statistics().parked_bytes == 0


def test_a_message_that_waits_long_for_a_chain_is_no_circle(new_channel, a_message, ready, sweep_until, start):
    bob = new_channel("bob")
    bob.receive(a_message("c", "b"), None, start)
    sweep_until(bob, start, start + AN_HOUR)
    bob.receive(a_message("b", "a"), None, start + AN_HOUR)
    assert ready(bob.dependencies.sweep(start + AN_HOUR + 1)) == []
    assert ready(bob.receive(a_message("a"), None, start + AN_HOUR + 2)) == ["a", "b", "c"]


# Bounds


def ignored_as(outcomes):
    return [outcome.why for outcome in outcomes if isinstance(outcome, MessageIgnored)]


def biting(channel):
    return [limit for limit, _, bites in channel.dependencies.limits() if bites]


def everything(channel):
    return list(SdsState(channel).rows()), channel.bloom.set_positions()


def test_what_does_not_fit_is_not_received_at_all_and_is_taken_in_when_it_comes_again(
    new_channel, a_message, ready, start
):
    bob = new_channel("bob", max_incoming_buffer=3)
    for number in range(3):
        bob.receive(a_message(f"b{number}", f"a{number}"), None, start)
    before, late = everything(bob), a_message("b3", "a3", sender="a stranger")
    assert not bob.judge(late).is_new_content
    assert ignored_as(bob.receive(late, b"hint", start)) == [Ignored.NO_ROOM]
    assert everything(bob) == before, "whatever tells that it was received, nothing does"
    assert biting(bob) == [Limit.INCOMING_BUFFER]
    assert ready(bob.receive(a_message("lacks nothing"), None, start)) == ["lacks nothing"]

    assert ready(bob.receive(a_message("a1"), None, start)) == ["a1", "b1"]
    assert bob.judge(late).is_new_content
    assert ignored_as(bob.receive(late, b"hint", start)) == []
    assert ready(bob.receive(a_message("a3"), None, start)) == ["a3", "b3"]


def test_nothing_is_given_up_because_a_buffer_is_full(new_channel, a_message, sweep_until, start):
    bob, outcomes = new_channel("bob", max_incoming_buffer=3), []
    for number in range(50):
        outcomes += bob.receive(a_message(f"b{number}", f"a{number}"), None, start)
    outcomes += sweep_until(bob, start, start + AN_HOUR)
    assert lost_ids(outcomes) == []


def test_a_full_buffer_empties_when_what_it_waits_for_comes_also_if_that_waits_itself(
    new_channel, a_message, ready, start
):
    bob = new_channel("bob", max_incoming_buffer=5)
    chain = [a_message("m0"), *(a_message(f"m{n}", f"m{n - 1}") for n in range(1, 10))]
    for message in chain[5:]:
        bob.receive(message, None, start)
    assert len(bob.parked) == 5
    for message in reversed(chain[1:5]):
        assert ignored_as(bob.receive(message, None, start)) == [], "a parked one waits for it"
    assert len(bob.parked) == 9
    assert ready(bob.receive(chain[0], None, start)) == [message.message_id for message in chain]


def test_what_a_message_cites_that_found_no_room_is_asked_for_if_others_wait_for_it(
    new_channel, a_message, ready, start
):
    """Only then can it find room, and maybe nobody else cites that."""
    bob = new_channel("bob", max_incoming_buffer=5)
    chain = [a_message("m0"), *(a_message(f"m{n}", f"m{n - 1}") for n in range(1, 20))]
    for message in reversed(chain[9:]):
        bob.receive(message, None, start)
    assert len(bob.parked) == 10
    for number in range(9, 0, -1):
        assert ignored_as(bob.receive(chain[number], None, start)) == [Ignored.NO_ROOM]
        assert f"m{number - 1}" in missing_ids(bob.dependencies.sweep(start + 1))
    assert ready(bob.receive(chain[0], None, start)) == ["m0"]
    for message in chain[1:9]:
        assert ready(bob.receive(message, None, start)) == [message.message_id]
    assert ready(bob.receive(chain[9], None, start)) == [message.message_id for message in chain[9:]]


def test_even_what_is_waited_for_is_bounded_and_that_is_the_reason_if_it_is_given_up(
    new_channel, a_message, sweep_until, ready, found, start
):
    bob = new_channel("bob", max_incoming_buffer=5)
    for number in range(20, 0, -1):
        bob.receive(a_message(f"m{number}", f"m{number - 1}"), None, start)
    assert list(bob.parked) == [f"m{n}" for n in range(20, 10, -1)]
    assert ready(bob.receive(a_message("m0"), None, start)) == ["m0"]
    outcomes = sweep_until(bob, start, start + 4 * AN_HOUR + 60_000)
    lost = found(outcomes, DependenciesLost)
    assert sorted(lost_ids(outcomes)) == sorted(f"m{number}" for number in range(1, 11))
    assert {outcome.reason for outcome in lost} == {LossReason.NO_ROOM}
    assert ready(outcomes) == [f"m{n}" for n in range(11, 21)]


def test_a_message_that_came_and_found_no_room_is_not_given_up_while_others_keep_it_out(
    new_channel, a_message, sweep_until, ready, start
):
    """Somebody invents what others must wait for, until all room is taken; that must not cost an honest message."""
    bob, outcomes = new_channel("bob", max_incoming_buffer=2), []
    for number in range(2):
        bob.receive(a_message(f"forged {number}", f"invented {number}", sender="mallory"), None, start)
    chain = [a_message("m0"), *(a_message(f"m{n}", f"m{n - 1}") for n in range(1, 9))]
    bob.receive(a_message("sync-1", "m8", content=None), None, start)
    for message in reversed(chain[1:]):
        bob.receive(message, None, start)
    outcomes += sweep_until(bob, start, start + AN_HOUR - 60_000)
    bob.receive(chain[0], None, start + AN_HOUR - 60_000)
    outcomes += sweep_until(bob, start + AN_HOUR - 60_000, start + AN_HOUR + 120_000)
    assert sorted(lost_ids(outcomes)) == ["invented 0", "invented 1"]
    for message in chain:
        outcomes += bob.receive(message, None, start + AN_HOUR + 180_000)
    assert ready(outcomes)[-8:] == [f"m{n}" for n in range(1, 9)]


def test_what_comes_again_and_again_and_finds_no_room_each_time_is_given_up_in_the_end(
    new_channel, a_message, sweep_until, start
):
    """Its sender may cite something else that nobody has each time, and so keep out all others for ever."""
    bob, lost, now_ms = new_channel("bob", max_incoming_buffer=1), [], start
    bob.receive(a_message("a", "b", sender="mallory"), None, start)
    for time in range(10):
        again = a_message("b", f"invented {time}", sender="mallory", content=bytes(30_000))
        assert ignored_as(bob.receive(again, None, now_ms)) == [Ignored.NO_ROOM]
        lost += lost_ids(sweep_until(bob, now_ms, now_ms + AN_HOUR // 2))
        now_ms += AN_HOUR // 2
        if "b" in lost:
            break
    assert 3 * AN_HOUR < now_ms - start <= 4 * AN_HOUR + AN_HOUR // 2
    assert "b" in lost


def test_forged_circles_keep_nobody_out_for_long(new_channel, a_message, ready, start):
    bob = new_channel("bob", max_incoming_buffer=10)
    for number in range(5):
        bob.receive(a_message(f"a{number}", f"b{number}", sender="mallory"), None, start)
        bob.receive(a_message(f"b{number}", f"a{number}", sender="mallory"), None, start)
    assert ready(bob.dependencies.sweep(start)) == []
    assert ignored_as(bob.receive(a_message("n", "o"), None, start)) == [Ignored.NO_ROOM]
    assert len(ready(bob.dependencies.sweep(start + 5_000))) == 10
    assert ignored_as(bob.receive(a_message("n", "o"), None, start)) == []
    assert list(bob.missing) == ["o"]


def test_parked_bytes_are_bounded(new_channel, a_message, ready, start):
    bob = new_channel("bob", max_incoming_buffer=10)
    for number in range(50):
        bob.receive(a_message(f"b{number}", f"a{number}", content=bytes(20_000)), None, start)
        assert bob.statistics().parked_bytes <= 10 * PARKED_BYTES
    assert 5 < len(bob.parked) < 10
    assert biting(bob) == [Limit.INCOMING_BUFFER_BYTES]
    huge = a_message("huge", "x", content=bytes(300_000))
    assert ignored_as(bob.receive(huge, None, start)) == [Ignored.NO_ROOM]
    bob.receive(a_message("x"), None, start)
    assert ready(bob.receive(huge, None, start)) == ["huge"], "what need not wait needs no room"


def test_only_the_newest_entries_of_a_long_history_are_looked_at(new_channel, a_message, start):
    bob = new_channel("bob")
    outcomes = bob.receive(a_message("m", *(f"a{n}" for n in range(1_003))), None, start)
    assert missing_ids(outcomes) == [f"a{n}" for n in range(3, 1_003)]


def test_messages_that_cite_many_missing_ones_fill_half_of_what_may_be_missing(new_channel, a_message, start):
    """21 forged messages must not crowd out what honest ones cite."""
    bob = new_channel("bob")
    bob.receive(a_message("honest 1", "first"), None, start)
    ignored = []
    for number in range(21):
        ids = [f"a{number}-{i}" for i in range(1_000)]
        ignored += ignored_as(bob.receive(a_message(f"forged {number}", *ids, sender="mallory"), None, start))
    assert ignored == [Ignored.NO_ROOM] * 17
    assert biting(bob) == [Limit.MISSING_MESSAGES]
    for number in range(2, 100):
        assert ignored_as(bob.receive(a_message(f"honest {number}", f"late {number}"), None, start)) == []
    assert "first" in bob.missing
    assert len(bob.missing) == 4_000 + 99


def test_what_sync_messages_cite_is_bounded_too(new_channel, a_message, start):
    bob, outcomes = new_channel("bob", repair={"enabled": False}), []
    for number in range(25):
        ids = [f"a{number}-{i}" for i in range(1_000)]
        outcomes += bob.receive(a_message(f"sync-{number}", *ids, content=None), None, start)
    assert len(bob.missing) == 5_000
    assert lost_ids(outcomes) == []
