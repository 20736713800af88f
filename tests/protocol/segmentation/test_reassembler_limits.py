"""What a reassembler keeps has an end: timeouts, quotas of each sender, and a total."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.events import Limit, LossReason
from fairway.protocol.segmentation.open_sets import SEGMENT_OVERHEAD_BYTES
from fairway.protocol.segmentation.outcomes import Refused, SetLost
from fairway.protocol.segmentation.reassembler import IDS_PER_SET
from fairway.wire.segment import WAKU_SEGMENTS, Segment
from segment_answers import answered


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
        key=stored.segments.key,
        reason=LossReason.SEGMENTS_EXPIRED,
        sds_ids=(messages[0].sds_id, messages[1].sds_id),
    )
    assert lost.key.sender_id == "alice"
    assert bob.reassembler.next_deadline() is None
    assert bob.statistics.sets_expired == 1
    assert (bob.statistics.open_sets, bob.statistics.buffered_bytes) == (0, 0)


def test_a_new_segment_extends_the_life_of_its_set_and_a_duplicate_does_not(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    first, second, *_ = send(payload_of(1_400))
    bob.receive(first)
    bob.now_ms = 600
    assert answered(bob.receive(first)) == "duplicate"
    assert bob.reassembler.next_deadline() == 1_000
    bob.receive(second)
    assert bob.reassembler.next_deadline() == 1_600
    bob.now_ms = 900
    bob.receive(first)
    bob.receive(second)
    assert bob.reassembler.next_deadline() == 1_600


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


# Quotas: what was taken in stays, what finds no room is turned away

COST = 320 + SEGMENT_OVERHEAD_BYTES


def turned_away(outcome):
    return outcome.full if isinstance(outcome, Refused) and outcome.reason == "no-room" else None


def test_beyond_so_many_sets_of_a_sender_none_is_begun_until_one_is_whole(receiver, send):
    bob = receiver(quotas={"sets_per_sender": 3})
    first, second, third, fourth = messages_of(send, 4)
    bob.receive(first[0], second[0], third[0], first[1])
    assert turned_away(bob.receive(fourth[0])) is Limit.SEGMENT_SETS_OF_SENDER
    assert bob.statistics.open_sets == 3
    bob.receive(*first[2:])
    assert answered(bob.receive(fourth[0])) == "kept"


def test_new_sets_are_begun_up_to_half_of_a_senders_bytes_and_open_ones_may_use_the_rest(receiver, send):
    bob = receiver(quotas={"bytes_per_sender": COST * 8})
    first, second, third = messages_of(send, 3)
    bob.receive(*first[:2], *second[:2])
    assert turned_away(bob.receive(third[0])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert answered(bob.receive(*second[2:4])) == "kept"
    assert bob.statistics.open_segments == 6


def add_next(bob, one):
    return bob.reassembler.accept(one.sender_id, one.sds_id, one.order_key, one.content, 0, is_next=lambda: True)


def test_the_last_room_is_for_the_rest_of_what_has_begun(receiver, send):
    bob = receiver(quotas={"bytes_per_sender": COST * 4})
    *begun, late = messages_of(send, 7)
    for message in begun:
        for segment in message[:2]:
            assert answered(add_next(bob, segment)) == "kept"
    # There is room for twelve; for what lacks three more, there is room for sixteen.
    assert turned_away(add_next(bob, late[0])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert answered(add_next(bob, begun[0][2])) == "kept"
    assert answered(add_next(bob, begun[1][2])) == "kept"
    # Two places are left: whatever lacks three would leave too few for the two messages that fit in.
    assert turned_away(add_next(bob, begun[2][2])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert answered(add_next(bob, begun[0][3])) == "kept"
    assert answered(add_next(bob, begun[0][4])) == "complete"


def test_a_message_that_is_next_may_use_three_times_the_room(receiver, send):
    bob = receiver(quotas={"sets_per_sender": 1, "all_bytes": COST * 4})
    segments = [segment for message in messages_of(send, 4) for segment in message[:4]]
    outcomes = [
        bob.reassembler.accept(one.sender_id, one.sds_id, one.order_key, one.content, 0, is_next=lambda: True)
        for one in segments
    ]
    assert [turned_away(outcome) for outcome in outcomes] == [None] * 12 + [Limit.SEGMENT_BYTES] * 4


def test_whole_messages_that_wait_for_their_turn_take_room_too(receiver, send):
    bob = receiver(quotas={"all_bytes": COST * 4})
    (message,) = messages_of(send, 1)
    one = message[0]
    waiting = {"waiting_bytes": COST * 2}
    assert turned_away(bob.reassembler.accept(one.sender_id, one.sds_id, 0, one.content, 0, **waiting))
    assert answered(bob.receive(one)) == "kept"


def test_the_segment_that_completes_a_message_needs_no_room(receiver, send):
    bob = receiver(quotas={"bytes_per_sender": COST * 9})
    first, second = messages_of(send, 2)
    completed = bob.receive(*second[:1], *first[:4], first[4])
    assert answered(completed) == "complete"


def test_all_senders_together_have_a_bound_that_no_set_grows_beyond(receiver, send):
    bob = receiver(quotas={"all_bytes": COST * 6})
    for number in range(20):
        (message,) = messages_of(send, 1, sender_id=f"sender {number}")
        for segment in message[:4]:
            outcome = bob.receive(segment)
    assert turned_away(outcome) is Limit.SEGMENT_BYTES
    # The first set of one sender, and no other could be begun.
    assert bob.statistics.open_segments == 4


def test_who_reads_an_archive_may_evict_what_is_oldest(receiver, send):
    bob = receiver()
    old, new = messages_of(send, 2)
    (small,) = messages_of(send, 1, sender_id="carol")
    bob.receive(small[0], *old[:2], new[0])
    assert bob.reassembler.evict("carol").sds_ids == (small[0].sds_id,)
    lost = bob.reassembler.evict("dave")
    assert (lost.reason, lost.sds_ids) == (LossReason.SEGMENTS_EVICTED, tuple(one.sds_id for one in old[:2]))
    bob.reassembler.evict("alice")
    assert bob.reassembler.evict("alice") is None
    assert bob.statistics.sets_evicted == 3


@examples(0.3)
@given(seed=st.integers(0, 2**32), quota=st.integers(6, 40))
def test_whatever_finds_no_room_at_first_is_whole_after_enough_repetitions(receiver, send, seed, quota):
    bob, chance = receiver(quotas={"bytes_per_sender": COST * quota, "sets_per_sender": 4}), random.Random(seed)
    left = [(order, segment) for order, message in enumerate(messages_of(send, 30)) for segment in message]
    for _ in range(300):
        chance.shuffle(left)
        # What is next in causal order waits for nothing.
        first = min((order for order, _ in left), default=None)
        kept = [
            (order, one)
            for order, one in left
            if chance.random() > 0.3
            and not isinstance(
                bob.reassembler.accept(
                    "alice",
                    one.sds_id,
                    one.order_key,
                    one.content,
                    0,
                    is_next=lambda is_first=order == first: is_first,
                ),
                Refused,
            )
        ]
        left = [one for one in left if one not in kept]
    assert left == []
    assert bob.statistics.messages_completed == 30
    assert bob.statistics.sets_evicted == 0


@examples(0.3)
@given(seed=st.integers(0, 2**32), quota=st.integers(5, 40))
def test_messages_that_are_all_next_become_whole_one_after_another(receiver, send, seed, quota):
    # Where gaps have timed out each segment counts as waiting for nothing, and all of them may be begun.
    bob, chance = receiver(quotas={"bytes_per_sender": COST * quota, "sets_per_sender": 4}), random.Random(seed)
    left = [segment for message in messages_of(send, 100) for segment in message[:5]]
    for _ in range(100):
        chance.shuffle(left)
        kept = [one for one in left if not isinstance(add_next(bob, one), Refused)]
        left = [one for one in left if one not in kept]
    assert left == []
    assert bob.statistics.messages_completed == 100


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
    return sender_id, f"{number}", number, WAKU_SEGMENTS.encode(segment), 0


def test_empty_segments_of_many_senders_are_bounded_too(receiver):
    bob = receiver(quotas={"all_bytes": SEGMENT_OVERHEAD_BYTES * 100})
    for number in range(300):
        bob.reassembler.accept(*empty_segment(number, f"sender {number}"))
    assert bob.statistics.open_segments == 50


def test_completed_messages_are_forgotten_the_least_recently_touched_first(receiver, send):
    bob = receiver(quotas={"ended_sets": 2})
    messages = [send(payload_of(2_500, seed), base=seed * 100) for seed in range(3)]
    bob.receive(*messages[0][:8], *messages[1][:8])
    bob.receive(messages[0][8])
    bob.receive(*messages[2][:8])
    assert answered(bob.receive(messages[0][9])) == "late"
    assert answered(bob.receive(messages[1][8])) == "kept"


@pytest.mark.parametrize("sets", [3, 10])
def test_the_ids_of_completed_messages_are_bounded_too(receiver, send, sets):
    bob = receiver(quotas={"ended_sets": sets})
    for seed in range(sets):
        bob.receive(*send(payload_of(64 * 100, seed), base=seed * 1_000, segment_size_bytes=64, parity_rate=0.0))
    assert len(bob.delivered) == sets
    assert bob.statistics.ended_sets == sets * IDS_PER_SET // 100
