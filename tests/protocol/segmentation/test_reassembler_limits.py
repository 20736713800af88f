"""What a reassembler keeps has an end: timeouts, quotas of each sender, and a total."""

import random

import pytest

from fairway.events import LossReason
from fairway.protocol.segmentation.completed_sets import IDS_PER_SET
from fairway.protocol.segmentation.open_sets import MIN_SEGMENTS
from fairway.protocol.segmentation.outcomes import (
    SegmentDiscarded,
    SegmentDuplicate,
    SegmentStored,
    SegmentSurplus,
    SetLost,
)
from fairway.wire.segment import SEED_003, Segment


def payload_of(length, seed=0):
    return random.Random(f"{length},{seed}").randbytes(length)


def messages_of(send, count, sender_id="alice", size=320):
    """Return some messages of as many segments, without parity."""
    return [
        send(payload_of(5 * size, seed), sender_id=sender_id, base=seed * 100, segment_size_bytes=size, parity_rate=0)
        for seed in range(count)
    ]


# Timeouts


def test_a_set_that_gains_nothing_for_the_timeout_is_lost(receiver, send, segment_format):
    bob = receiver(segment_format, reassembly_timeout_ms=1_000)
    bob.now_ms = 5_000
    messages = send(payload_of(1_000), segment_format=segment_format)
    stored = bob.receive(*messages[:2][::-1])
    assert bob.reassembler.next_deadline() == 6_000
    assert bob.reassembler.expire(5_999) == ()
    (lost,) = bob.reassembler.expire(6_000)
    assert lost == SetLost(
        set_key=stored.set_key,
        reason=LossReason.SEGMENTS_EXPIRED,
        held=2,
        needed=stored.needed,
        sds_ids=(messages[0].sds_id, messages[1].sds_id),
    )
    assert (lost.sender_id, lost.payload_hash) == ("alice", stored.set_key.payload_hash)
    assert bob.reassembler.next_deadline() is None
    assert bob.statistics.sets_expired == 1
    assert (bob.statistics.open_sets, bob.statistics.buffered_bytes) == (0, 0)


def test_a_new_segment_extends_the_life_of_its_set_and_a_duplicate_does_not(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    first, second, *_ = send(payload_of(1_400))
    bob.receive(first)
    bob.now_ms = 600
    assert isinstance(bob.receive(first), SegmentDuplicate)
    assert bob.reassembler.next_deadline() == 1_000
    bob.receive(second)
    assert bob.reassembler.next_deadline() == 1_600
    bob.now_ms = 900
    bob.receive(first)
    bob.receive(second)
    assert bob.reassembler.next_deadline() == 1_600


def test_a_segment_that_comes_too_late_finds_its_set_expired(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    first, second, *_ = send(payload_of(1_400))
    bob.receive(first)
    bob.now_ms = 1_000
    stored = bob.receive(second)
    assert stored.held == 1
    assert [lost.reason for lost in stored.lost] == [LossReason.SEGMENTS_EXPIRED]


def test_sets_expire_in_the_order_in_which_they_last_grew(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    messages = messages_of(send, 4)
    for now_ms, index in enumerate([0, 1, 2, 3]):
        bob.now_ms = now_ms
        bob.receive(messages[index][0])
    bob.now_ms = 10
    bob.receive(messages[1][1])
    assert bob.reassembler.next_deadline() == 1_000
    lost = bob.reassembler.expire(2_000)
    assert [known.sds_ids[0] for known in lost] == [messages[index][0].sds_id for index in (0, 2, 3, 1)]


def test_a_clock_that_is_set_back_expires_nothing_early(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    first, second, *_ = send(payload_of(1_400))
    bob.now_ms = 50_000
    bob.receive(first)
    bob.now_ms = 100
    bob.receive(second)
    assert bob.reassembler.next_deadline() == 1_100
    assert bob.reassembler.expire(1_099) == ()


def test_a_completed_message_does_not_expire(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    bob.receive(*send(payload_of(1_400)))
    assert bob.reassembler.expire(10**12) == ()


def test_deadlines_stay_right_over_many_changes(receiver, send):
    bob, chance = receiver(reassembly_timeout_ms=1_000), random.Random(1)
    messages = messages_of(send, 20)
    grown = {}
    for now_ms in range(400):
        bob.now_ms = now_ms
        index = chance.randrange(20)
        outcome = bob.receive(chance.choice(messages[index]))
        if isinstance(outcome, SegmentStored):
            grown[index] = now_ms
        elif not isinstance(outcome, SegmentDuplicate):
            grown.pop(index, None)
        assert bob.reassembler.next_deadline() == (min(grown.values()) + 1_000 if grown else None)


# Quotas


def test_too_many_sets_cost_a_sender_the_one_that_grew_longest_ago(receiver, send):
    bob = receiver(max_sets_per_sender=3)
    first, second, third, fourth = messages_of(send, 4)
    bob.receive(first[0], second[0], third[0], first[1])
    stored = bob.receive(fourth[0])
    (lost,) = stored.lost
    assert (lost.reason, lost.sds_ids) == (LossReason.SEGMENTS_EVICTED, (second[0].sds_id,))
    assert bob.statistics.sets_evicted == 1
    assert bob.statistics.open_sets == 3


def test_too_many_bytes_cost_a_sender_the_set_that_grew_longest_ago(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=320 * 4)
    first, second, third = messages_of(send, 3)
    assert bob.receive(*first[:2], *second[:2]).lost == ()
    stored = bob.receive(third[0])
    assert [lost.sds_ids for lost in stored.lost] == [(first[0].sds_id, first[1].sds_id)]
    assert bob.statistics.buffered_bytes == 320 * 3


def test_a_set_that_exceeds_the_quota_alone_is_given_up(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=320 * 3)
    (message,) = messages_of(send, 1)
    outcome = bob.receive(*message[:4])
    assert isinstance(outcome, SegmentDiscarded)
    assert outcome.reason == "no-room"
    assert [len(lost.sds_ids) for lost in outcome.lost] == [4]
    assert bob.statistics.open_sets == 0


def test_the_segment_that_completes_a_message_needs_no_room(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=320 * 5)
    first, second = messages_of(send, 2)
    completed = bob.receive(*first[:4], second[0], first[4])
    assert completed.lost == ()
    assert len(bob.delivered) == 1


def test_one_sender_cannot_evict_the_sets_of_another(receiver, send):
    bob = receiver(max_sets_per_sender=2, max_buffered_bytes_per_sender=320 * 4, max_buffered_bytes=320 * 8)
    (honest,) = messages_of(send, 1, sender_id="carol")
    bob.receive(*honest[:2])
    for flood in messages_of(send, 50, sender_id="mallory"):
        outcome = bob.receive(*flood[:3])
        assert {lost.sender_id for lost in outcome.lost} <= {"mallory"}
    bob.receive(*honest[2:])
    assert [sender_id for sender_id, _ in bob.delivered] == ["carol"]


def test_what_exceeds_the_total_costs_the_sender_that_holds_most(receiver, send):
    bob = receiver(max_buffered_bytes=320 * 6)
    holdings = {"carol": 1, "mallory": 3, "dave": 2}
    for sender_id, count in holdings.items():
        (message,) = messages_of(send, 1, sender_id=sender_id)
        bob.receive(*message[:count])
    (message,) = messages_of(send, 1, sender_id="erin")
    stored = bob.receive(message[0])
    assert [lost.sender_id for lost in stored.lost] == ["mallory"]
    assert bob.statistics.buffered_bytes == 320 * 4


def test_a_sender_that_holds_most_pays_with_its_other_sets_first(receiver, send):
    bob = receiver(max_buffered_bytes=320 * 4)
    (small,) = messages_of(send, 1, sender_id="carol")
    old, new = messages_of(send, 2)
    bob.receive(small[0], old[0], *new[:2])
    stored = bob.receive(new[2])
    assert isinstance(stored, SegmentStored)
    assert [lost.sds_ids for lost in stored.lost] == [(old[0].sds_id,)]


def empty_segment(number, sender_id):
    segment = Segment(
        payload_hash=number.to_bytes(32, "big"),
        index=0,
        data_count=2,
        parity_count=0,
        is_parity=False,
        payload=b"",
        payload_length=None,
    )
    return sender_id, f"{number}", number, SEED_003.encode(segment), 0


def test_empty_segments_of_many_senders_are_bounded_too(receiver):
    bob = receiver(max_buffered_bytes=1)
    for number in range(MIN_SEGMENTS + 10):
        bob.reassembler.add(*empty_segment(number, f"sender {number}"))
    assert bob.statistics.open_segments == MIN_SEGMENTS
    assert bob.statistics.sets_evicted == 10


def test_completed_messages_are_remembered_up_to_a_number(receiver, send):
    bob = receiver(max_completed_sets=2)
    messages = [send(payload_of(2_500, seed), base=seed * 100) for seed in range(3)]
    for message in messages:
        bob.receive(*message[:8])
    assert bob.statistics.completed_sets == 2
    assert isinstance(bob.receive(messages[1][8]), SegmentSurplus)
    assert isinstance(bob.receive(messages[0][8]), SegmentStored)


def test_completed_messages_are_forgotten_the_least_recently_touched_first(receiver, send):
    bob = receiver(max_completed_sets=2)
    messages = [send(payload_of(2_500, seed), base=seed * 100) for seed in range(3)]
    bob.receive(*messages[0][:8], *messages[1][:8])
    bob.receive(messages[0][8])
    bob.receive(*messages[2][:8])
    assert isinstance(bob.receive(messages[0][9]), SegmentSurplus)
    assert isinstance(bob.receive(messages[1][8]), SegmentStored)


@pytest.mark.parametrize("sets", [3, 10])
def test_the_ids_of_completed_messages_are_bounded_too(receiver, send, sets):
    bob = receiver(max_completed_sets=sets)
    for seed in range(sets):
        bob.receive(*send(payload_of(64 * 100, seed), base=seed * 1_000, segment_size_bytes=64, parity_rate=0.0))
    assert len(bob.delivered) == sets
    assert bob.statistics.completed_sets == sets * IDS_PER_SET // 100
