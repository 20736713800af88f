"""Sends whose participants are away: they fail, are sent again at a falling rate, and are delivered late."""

from __future__ import annotations

import pytest

from fairway.events import (
    DeliveryError,
    FailureReason,
    Limit,
    LimitReached,
    MessageDelivered,
    MessageSent,
)
from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Purpose

QUIET = ReliableChannelOptions(sync_min_interval_ms=0)
FILE = bytes(range(256)) * 2
"""Eight segments and one parity segment."""
FAILED_MS = 330_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def fail(peer, *payloads, **wanted):
    """Send, and let the retries be used up; return the ids of the requests."""
    ids = [peer.send(payload, **wanted).request_id for payload in payloads]
    peer.pass_time(FAILED_MS)
    assert [event.request_id for event in peer.events(DeliveryError)] == ids
    peer.effects.clear()
    return ids


def stranger(peer, name):
    """Return the first message of a participant that knows nothing."""
    other = peer(name, QUIET)
    other.send(b"here I am")
    return other.content()


def test_a_failed_send_is_delivered_late_when_its_acknowledgement_comes(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    accepted = alice.send(b"hello", required_from=["bob"])
    message = alice.content()
    alice.pass_time(FAILED_MS)
    [error] = alice.events(DeliveryError)
    assert (error.reason, error.missing, error.missing_count) == (FailureReason.NOT_ACKNOWLEDGED, ("bob",), 1)
    assert alice.stack.statistics().failed_requests == 1
    alice.pass_time(3 * DAY_MS)
    bob.now_ms = alice.now_ms
    bob.receive(*message)
    bob.send(b"I was away")
    alice.receive(*bob.content())
    [delivered] = alice.events(MessageDelivered)
    assert (delivered.request_id, delivered.delivered_to, delivered.late) == (accepted.request_id, ("bob",), True)
    assert alice.stack.statistics().failed_requests == alice.stack.statistics().unacknowledged == 0
    alice.check_rows()
    before = len(alice.published())
    alice.pass_time(DAY_MS)
    assert len(alice.published()) == before


@pytest.mark.parametrize("failed_before", [True, False])
def test_a_restart_between_failure_and_acknowledgement_changes_nothing(peer, failed_before):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    accepted = alice.send(b"hello", required_from=["bob"])
    message = alice.content()
    if failed_before:
        alice.pass_time(FAILED_MS)
    alice = alice.restart()
    alice.check_rows()
    alice.pass_time(FAILED_MS)
    assert len(alice.events(DeliveryError)) == (not failed_before)
    assert alice.published(Purpose.RETRY), "it is still sent again"
    bob.receive(*message)
    bob.send(b"I was away")
    alice.receive(*bob.content())
    [delivered] = alice.events(MessageDelivered)
    assert (delivered.request_id, delivered.late) == (accepted.request_id, True)
    alice.check_rows()


@pytest.mark.parametrize("count", [1, 50])
def test_while_nobody_returns_a_channel_sends_one_copy_at_a_falling_rate_however_many_sends_failed(peer, count):
    alice = peer("alice", QUIET)
    fail(alice, *(b"%d" % number for number in range(count)), required_from=["bob"])
    began_ms = alice.now_ms
    alice.pass_time(7 * DAY_MS)
    times = [copy.message.timestamp_ns // 1_000_000 - began_ms for copy in alice.published()]
    pauses = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert pauses[:6] == [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000]
    assert set(pauses[6:]) == {HOUR_MS}
    assert not alice.events(DeliveryError)
    newest = [copy.sds_id for copy in alice.published()[: min(count, 5)]]
    assert len(set(newest)) == len(newest), "in turn"


def test_the_newest_failed_send_goes_first_since_it_descends_from_the_others(peer):
    alice = peer("alice", QUIET)
    for payload in (b"one", b"two", b"three"):
        alice.send(payload)
    newest = alice.content()[-1]
    alice.pass_time(FAILED_MS)
    alice.effects.clear()
    alice.pass_time(60_000)
    assert [copy.sds_id for copy in alice.published()] == [newest.sds_id]


def test_a_participant_that_returns_gets_copies_soon_and_twice_as_many_each_time_it_acknowledges_them(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    fail(alice, *(b"%d" % number for number in range(40)), required_from=["bob"])
    alice.pass_time(2 * DAY_MS)
    bob.now_ms = alice.now_ms
    alice.effects.clear()
    bob.send(b"I am back")
    alice.receive(*bob.content())
    rounds = []
    while alice.stack.statistics().failed_requests and len(rounds) < 20:
        alice.effects.clear()
        alice.pass_time(7_500)
        rounds.append(len(alice.published()))
        bob.now_ms = alice.now_ms
        bob.receive(*alice.published())
        bob.effects.clear()
        bob.send(b"got %d" % len(rounds))
        alice.receive(*bob.content())
    assert rounds[:5] == [1, 2, 4, 8, 16]
    assert sum(rounds) == 40, "each once"
    assert max(rounds) <= 20


def test_a_participant_that_has_hundreds_of_overdue_messages_acknowledges_them_all_with_one_filter(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    payloads = [b"%d" % number for number in range(300)]
    for payload in payloads:
        alice.send(payload, required_from=["bob"])
    stored = [(each.message, each.message_hash) for each in alice.content()]
    alice.pass_time(DAY_MS)
    assert alice.stack.statistics().failed_requests == 300
    alice.effects.clear()
    bob.now_ms = alice.now_ms
    bob.do(bob.stack.receive_stored(stored, bob.now_ms))
    bob.send(b"I am back")
    alice.receive(*bob.content())
    copies = 0
    while alice.stack.statistics().failed_requests and copies < 100:
        alice.effects.clear()
        alice.pass_time(30_000)
        bob.now_ms = alice.now_ms
        bob.receive(*alice.published())
        bob.send(b"got %d" % copies)
        alice.receive(bob.content()[-1])
        copies += len(alice.published())
    assert bob.payloads() == payloads, "each once"
    assert alice.stack.statistics().failed_requests == 0
    assert copies < 40


def test_a_participant_that_never_acknowledges_gets_one_copy_for_each_return(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    fail(alice, *(b"%d" % number for number in range(10)), required_from=["bob"])
    alice.pass_time(DAY_MS)
    alice.effects.clear()
    for number in range(5):
        bob.now_ms = alice.now_ms
        bob.effects.clear()
        bob.send(b"%d" % number)
        alice.receive(*bob.content())
        alice.receive(*bob.content())
        alice.pass_time(30_000)
        assert len(alice.published(Purpose.RETRY)) == 1
        alice.pass_time(20 * HOUR_MS)
        alice.effects.clear()


@pytest.mark.parametrize(("wanted", "copies"), [(["bob"], 0), ([], 1)], ids=["bob is asked for", "anybody will do"])
def test_a_participant_that_returns_gets_a_copy_only_if_its_acknowledgement_counts(peer, wanted, copies):
    alice = peer("alice", QUIET)
    fail(alice, b"hello", required_from=wanted)
    alice.receive(*stranger(peer, "mallory"))
    alice.pass_time(30_000)
    assert len(alice.published(Purpose.RETRY)) == copies


# The same request id again


@pytest.mark.parametrize("is_restarted", [True, False])
def test_the_same_request_id_after_a_failure_sends_the_same_message_at_once(peer, is_restarted):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    alice.send(b"hello", request_id="order 7", required_from=["bob"])
    bob.receive(*alice.content())
    [first] = alice.content()
    alice.pass_time(FAILED_MS)
    if is_restarted:
        alice = alice.restart()
    alice.effects.clear()
    assert alice.send(b"hello", request_id="order 7", required_from=["bob"]).request_id == "order 7"
    alice.pass_time(0)
    assert [copy.sds_id for copy in alice.published()] == [first.sds_id]
    assert alice.stack.statistics().open_requests == 1
    alice.check_rows()
    bob.receive(*alice.published())
    assert bob.payloads() == [b"hello"]
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert [(event.request_id, event.late) for event in alice.events(MessageDelivered)] == [("order 7", False)]


def test_a_send_that_is_repeated_after_its_failure_fails_again_after_as_many_retries(peer):
    alice = peer("alice", QUIET)
    fail(alice, b"hello", request_id="order 7")
    alice.send(b"hello", request_id="order 7")
    alice.pass_time(FAILED_MS)
    assert len(alice.events(DeliveryError)) == 1
    assert len(alice.published(Purpose.RETRY)) == 11


def test_a_repeated_send_asks_for_what_it_says_and_ends_at_once_if_that_is_known(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    alice.send(b"hello", request_id="order 7", required_from=["bob", "dave"])
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    alice.pass_time(FAILED_MS)
    alice.effects.clear()
    alice.send(b"hello", request_id="order 7", required_from=["bob"])
    assert [event.delivered_to for event in alice.events(MessageDelivered)] == [("bob",)]
    assert not alice.published()
    alice.check_rows()


# Bounds


def test_beyond_the_bound_the_oldest_failed_send_is_given_up_with_an_event(peer):
    alice = peer(
        "alice", ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_overdue_bytes=5 * 4_200))
    )
    ids = [alice.send(b"%d" % number).request_id for number in range(8)]
    alice.pass_time(FAILED_MS)
    errors = alice.events(DeliveryError)
    assert [error.request_id for error in errors if error.reason is FailureReason.NOT_ACKNOWLEDGED] == ids
    assert [error.request_id for error in errors if error.reason is FailureReason.GIVEN_UP] == ids[:3]
    assert alice.events(LimitReached) == [LimitReached(limit=Limit.OVERDUE_SENDS, bound=5 * 4_200)]
    statistics = alice.stack.statistics()
    assert (statistics.failed_requests, statistics.unacknowledged, statistics.open_requests) == (5, 5, 0)
    alice.check_rows()


def test_rows_of_sends_that_nobody_acknowledges_stay_bounded(peer):
    options = ReliableChannelOptions(
        sync_min_interval_ms=0, advanced=Advanced(max_overdue_bytes=20 * 4_200), sds=SdsConfig(max_history=50)
    )
    alice = peer("alice", options)
    sizes = []
    for number in range(300):
        alice.send(b"reading %d" % number)
        alice.pass_time(60_000)
        sizes.append(len([key for key in alice.rows if key[0] in ("requests", "segments", "outgoing")]))
    assert max(sizes[100:]) <= max(sizes[:100])


def test_one_failed_send_is_kept_whatever_its_size(peer):
    alice = peer("alice", ReliableChannelOptions(sync_min_interval_ms=0, advanced=Advanced(max_overdue_bytes=1)))
    fail(alice, bytes(1_000))
    assert alice.stack.statistics().failed_requests == 1


@pytest.mark.parametrize("off", [{"max_retry_attempts": 0}, {"retry_interval_ms": 0}])
def test_without_retransmissions_a_failed_send_is_not_sent_again_and_may_be_delivered_late(peer, off):
    alice, bob = peer("alice", ReliableChannelOptions(sync_min_interval_ms=0, **off)), peer("bob", QUIET)
    alice.send(b"hello")
    alice.pass_time(DAY_MS)
    assert len(alice.published()) == 1
    assert len(alice.events(DeliveryError)) == 1
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert [event.late for event in alice.events(MessageDelivered)] == [True]


def test_under_a_rate_limit_sends_fail_and_new_content_does_not_wait_for_retries(peer):
    options = ReliableChannelOptions(rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=20))
    alice = peer("alice", options)
    for number in range(120):
        alice.send(b"reading %d" % number, required_from=["bob"])
        before = len(alice.content())
        alice.pass_time(0)
        assert len(alice.content()) == before == number + 1
        alice.pass_time(60_000)
    statistics = alice.stack.statistics()
    assert statistics.open_requests <= 6
    assert statistics.failed_requests >= 114
    assert alice.published(Purpose.RETRY)
    assert alice.published(Purpose.SYNC)


# Deadlines


@pytest.fixture
def refusing(peer):
    """Make a participant whose node refuses everything, and let it send with a deadline of a minute."""

    def make(*payloads):
        alice = peer("alice", QUIET)
        for payload in payloads:
            alice.send(payload, deadline_ms=60_000)
        refuse(alice, 20_000)
        return alice

    return make


def refuse(alice, for_ms):
    """Let the node refuse everything for a time."""
    end_ms = alice.now_ms + for_ms
    while alice.now_ms < end_ms:
        alice.pass_time(min(1_000, end_ms - alice.now_ms), answer=False)
        if alice.unanswered:
            alice.answer(*alice.unanswered, accepted=False, detail="no")


def test_after_its_deadline_a_send_is_not_sent_again_and_fails_with_that_reason(peer):
    alice = peer("alice", QUIET)
    accepted = alice.send(b"hello", deadline_ms=100_000, required_from=["bob"])
    alice.pass_time(100_000)
    [error] = alice.events(DeliveryError)
    assert (error.request_id, error.reason) == (accepted.request_id, FailureReason.EXPIRED)
    assert "100 s" in error.detail
    assert len(alice.published()) == 4
    alice.pass_time(DAY_MS)
    assert len(alice.published()) == 4
    assert len(alice.events(DeliveryError)) == 1
    alice.check_rows()


def test_an_overdue_send_expires_too(peer):
    alice = peer("alice", QUIET)
    alice.send(b"hello", deadline_ms=HOUR_MS)
    alice.pass_time(DAY_MS)
    reasons = [error.reason for error in alice.events(DeliveryError)]
    assert reasons == [FailureReason.NOT_ACKNOWLEDGED, FailureReason.EXPIRED]
    latest_ms = max(copy.message.timestamp_ns for copy in alice.published()) // 1_000_000
    assert latest_ms < alice.now_ms - DAY_MS + HOUR_MS


def test_an_acknowledgement_after_the_deadline_counts(peer):
    alice, bob = peer("alice", QUIET), peer("bob", QUIET)
    alice.send(b"hello", deadline_ms=60_000)
    alice.pass_time(90_000)
    bob.receive(*alice.content())
    bob.send(b"thanks")
    alice.receive(*bob.content())
    assert [event.late for event in alice.events(MessageDelivered)] == [True]
    alice.check_rows()


def test_what_waits_for_an_absent_node_until_its_deadline_is_not_sent(peer):
    alice = peer("alice", QUIET)
    alice.connect(False)
    alice.send(b"late", deadline_ms=60_000)
    alice.send(b"in time", deadline_ms=HOUR_MS)
    alice.pass_time(61_000)
    assert [error.reason for error in alice.events(DeliveryError)] == [FailureReason.EXPIRED]
    alice.check_rows()
    alice.connect()
    alice.pass_time(1_000)
    assert [alice.sds(each).content for each in alice.published()] == [b"in time"]


def test_a_deadline_that_passes_while_the_program_is_down_counts_when_it_starts(peer):
    alice = peer("alice", QUIET)
    alice.connect(False)
    alice.send(b"late", deadline_ms=60_000)
    alice.now_ms += HOUR_MS
    alice = alice.restart()
    assert [error.reason for error in alice.events(DeliveryError)] == [FailureReason.EXPIRED]
    assert not alice.published()
    alice.check_rows()


def test_what_waits_for_the_rate_limit_until_its_deadline_is_not_sent(peer):
    limited = ReliableChannelOptions(
        sync_min_interval_ms=0, rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=1)
    )
    alice = peer("alice", limited)
    alice.send(b"first")
    alice.send(b"late", deadline_ms=1_000)
    alice.send(b"in time")
    alice.pass_time(3 * 600_000)
    assert [alice.sds(each).content for each in alice.content()] == [b"first", b"in time"]


def test_the_rest_of_a_long_message_is_not_sent_after_its_deadline(peer):
    limited = ReliableChannelOptions(
        sync_min_interval_ms=0,
        segmentation=SegmentationConfig(segment_size_bytes=64),
        rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=4),
    )
    alice = peer("alice", limited)
    alice.send(FILE, deadline_ms=1_000)
    alice.pass_time(3 * 600_000)
    assert len(alice.published()) == 4
    assert len(alice.events(DeliveryError)) == 1
    alice.check_rows()


@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_the_node_refused_until_its_deadline_is_not_sent_when_the_node_takes_messages_again(
    refusing, peer, is_restarted
):
    alice, bob = refusing(b"late", b"late, too"), peer("bob", QUIET)
    alice.send(b"in time")
    refuse(alice, 60_000)
    assert [error.reason for error in alice.events(DeliveryError)] == [FailureReason.EXPIRED] * 2
    assert "no" in alice.events(DeliveryError)[0].refusal
    alice.check_rows()
    alice.effects.clear()
    if is_restarted:
        alice = alice.restart()
    alice.pass_time(20_000)
    assert [alice.sds(each).content for each in alice.published()] == [b"in time"]
    bob.now_ms = alice.now_ms
    bob.receive(*alice.published())
    assert bob.payloads() == [b"in time"], "it waits for nothing that was not sent"
    alice.check_rows()


def test_what_others_may_wait_for_is_sent_although_its_deadline_has_passed(refusing, peer):
    alice, bob = refusing(b"refused"), peer("bob", QUIET)
    refused = alice.published()
    alice.send(b"taken")
    alice.pass_time(5_000, answer=False)
    while not alice.events(MessageSent):
        for each in alice.unanswered:
            alice.answer(each, accepted=alice.sds(each).content == b"taken", detail="no")
        alice.pass_time(500, answer=False)
    alice.effects.clear()
    alice.pass_time(60_000)
    assert refused[0].sds_id in {each.sds_id for each in alice.published()}
    bob.receive(*alice.published())
    assert bob.payloads() == [b"refused", b"taken"]


def test_a_repeated_send_has_a_deadline_of_its_own(peer):
    alice = peer("alice", QUIET)
    alice.send(b"hello", request_id="order 7", deadline_ms=40_000)
    alice.pass_time(60_000)
    alice.send(b"hello", request_id="order 7", deadline_ms=100_000)
    alice.pass_time(90_000)
    assert len(alice.events(DeliveryError)) == 1
    alice.pass_time(10_000)
    assert [error.reason for error in alice.events(DeliveryError)] == [FailureReason.EXPIRED] * 2
    assert len({each.sds_id for each in alice.published()}) == 1


def test_a_clock_that_was_ahead_prolongs_no_deadline(peer):
    alice = peer("alice", QUIET)
    alice.now_ms += DAY_MS
    alice.tick()
    alice.send(b"hello", deadline_ms=60_000)
    alice.answer()
    alice.now_ms -= DAY_MS
    alice.tick()
    alice.pass_time(60_000)
    assert [error.reason for error in alice.events(DeliveryError)] == [FailureReason.EXPIRED]
