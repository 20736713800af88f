"""What a reassembler keeps has an end: timeouts, quotas of each sender, and a total."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.events import Limit, LossReason
from fairway.protocol.segmentation.ended_sets import IDS_PER_SET
from fairway.protocol.segmentation.open_sets import SEGMENT_OVERHEAD_BYTES, Urgency
from fairway.protocol.segmentation.outcomes import (
    Kept,
    MessageCompleted,
    SegmentDiscarded,
    SegmentDuplicate,
    SegmentStored,
    SegmentSurplus,
    SetLost,
)
from fairway.wire.segment import WAKU_SEGMENTS, Segment


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
    (lost,) = bob.reassembler.expire(1_000)
    assert lost.reason is LossReason.SEGMENTS_EXPIRED
    late = bob.receive(second)
    # Taken in, it would be acknowledged, and its sender would take the message for delivered.
    assert isinstance(late, SegmentDiscarded)
    assert late.reason == "given-up"


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


# Quotas: what was taken in stays, what finds no room is turned away

COST = 320 + SEGMENT_OVERHEAD_BYTES


def turned_away(outcome):
    return outcome.full if isinstance(outcome, SegmentDiscarded) and outcome.reason == "no-room" else None


def test_beyond_so_many_sets_of_a_sender_none_is_begun_until_one_is_whole(receiver, send):
    bob = receiver(max_sets_per_sender=3)
    first, second, third, fourth = messages_of(send, 4)
    bob.receive(first[0], second[0], third[0], first[1])
    assert turned_away(bob.receive(fourth[0])) is Limit.SEGMENT_SETS_OF_SENDER
    assert bob.statistics.open_sets == 3
    assert not bob.reassembler.has_room_to_begin(fourth[0].sender_id)
    assert bob.reassembler.has_room_to_begin("carol")
    bob.receive(*first[2:])
    assert bob.reassembler.has_room_to_begin(fourth[0].sender_id)
    assert isinstance(bob.receive(fourth[0]), SegmentStored)


def test_new_sets_are_begun_up_to_half_of_a_senders_bytes_and_open_ones_may_use_the_rest(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=COST * 8)
    first, second, third = messages_of(send, 3)
    bob.receive(*first[:2], *second[:2])
    assert turned_away(bob.receive(third[0])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert not bob.reassembler.has_room_to_begin(third[0].sender_id)
    assert isinstance(bob.receive(*second[2:4]), SegmentStored)
    assert bob.statistics.open_segments == 6


def add_next(bob, one):
    return bob.reassembler.add(one.sender_id, one.sds_id, one.order_key, one.content, 0, urgency=Urgency.NEXT)


def test_the_last_room_is_for_the_rest_of_what_has_begun(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=COST * 4)
    *begun, late = messages_of(send, 7)
    for message in begun:
        for segment in message[:2]:
            assert isinstance(add_next(bob, segment), SegmentStored)
    # There is room for twelve; for what lacks three more, there is room for sixteen.
    assert turned_away(add_next(bob, late[0])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert isinstance(add_next(bob, begun[0][2]), SegmentStored)
    assert isinstance(add_next(bob, begun[1][2]), SegmentStored)
    # Two places are left: whatever lacks three would leave too few for the two messages that fit in.
    assert turned_away(add_next(bob, begun[2][2])) is Limit.SEGMENT_BYTES_OF_SENDER
    assert isinstance(add_next(bob, begun[0][3]), SegmentStored)
    assert isinstance(add_next(bob, begun[0][4]), MessageCompleted)


@pytest.mark.parametrize(("urgency", "room"), [(Urgency.AWAITED, 8), (Urgency.NEXT, 12)])
def test_what_others_wait_for_is_worth_more_room_and_what_waits_for_nothing_the_most(receiver, send, urgency, room):
    bob = receiver(max_sets_per_sender=1, max_buffered_bytes=COST * 4)
    segments = [segment for message in messages_of(send, 4) for segment in message[:4]]
    outcomes = [
        bob.reassembler.add(one.sender_id, one.sds_id, one.order_key, one.content, 0, urgency=urgency)
        for one in segments
    ]
    assert [turned_away(outcome) for outcome in outcomes] == [None] * room + [Limit.SEGMENT_BYTES] * (16 - room)


@pytest.mark.parametrize(("urgency", "room"), [(Urgency.AWAITED, 8), (Urgency.NEXT, 12)])
def test_the_same_holds_of_the_bytes_of_one_sender(receiver, send, urgency, room):
    bob = receiver(max_sets_per_sender=1, max_buffered_bytes_per_sender=COST * 4)
    segments = [segment for message in messages_of(send, 4) for segment in message[:4]]
    outcomes = [
        bob.reassembler.add(one.sender_id, one.sds_id, one.order_key, one.content, 0, urgency=urgency)
        for one in segments
    ]
    refused = [Limit.SEGMENT_BYTES_OF_SENDER] * (16 - room)
    assert [turned_away(outcome) for outcome in outcomes] == [None] * room + refused
    (other,) = messages_of(send, 1, sender_id="carol")
    assert isinstance(bob.receive(other[0]), SegmentStored)


def test_whole_messages_that_wait_for_their_turn_take_room_too(receiver, send):
    bob = receiver(max_buffered_bytes=COST * 4)
    (message,) = messages_of(send, 1)
    one = message[0]
    waiting = {"waiting_bytes": COST * 2}
    assert turned_away(bob.reassembler.add(one.sender_id, one.sds_id, 0, one.content, 0, **waiting))
    assert isinstance(bob.receive(one), SegmentStored)


def test_who_has_no_room_left_for_anybody_begins_nothing_of_whoever_it_may_be(receiver, send):
    bob = receiver(max_buffered_bytes=COST * 8)
    first, second = messages_of(send, 2)
    bob.receive(*first[:2], second[0])
    assert bob.reassembler.has_room_to_begin(None)
    assert not bob.reassembler.has_room_to_begin(None, waiting_bytes=COST)
    bob.receive(second[1])
    assert not bob.reassembler.has_room_to_begin(None)


def test_the_segment_that_completes_a_message_needs_no_room(receiver, send):
    bob = receiver(max_buffered_bytes_per_sender=COST * 9)
    first, second = messages_of(send, 2)
    completed = bob.receive(*second[:1], *first[:4], first[4])
    assert isinstance(completed, MessageCompleted)


def test_one_sender_cannot_take_the_room_of_another(receiver, send):
    bob = receiver(max_sets_per_sender=2, max_buffered_bytes_per_sender=COST * 4, max_buffered_bytes=COST * 12)
    (honest,) = messages_of(send, 1, sender_id="carol")
    bob.receive(*honest[:2])
    for flood in messages_of(send, 50, sender_id="mallory"):
        bob.receive(*flood[:3])
    assert bob.statistics.sets_evicted == 0
    bob.receive(*honest[2:])
    assert [sender_id for sender_id, _ in bob.delivered] == ["carol"]


def test_all_senders_together_have_a_bound_that_no_set_grows_beyond(receiver, send):
    bob = receiver(max_buffered_bytes=COST * 6)
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
    bob, chance = receiver(max_buffered_bytes_per_sender=COST * quota, max_sets_per_sender=4), random.Random(seed)
    left = [(order, segment) for order, message in enumerate(messages_of(send, 30)) for segment in message]
    for _ in range(300):
        chance.shuffle(left)
        # What is next in causal order waits for nothing.
        first = min((order for order, _ in left), default=None)
        kept = [
            (order, one)
            for order, one in left
            if chance.random() > 0.3
            and isinstance(
                bob.reassembler.add(
                    "alice",
                    one.sds_id,
                    one.order_key,
                    one.content,
                    0,
                    urgency=Urgency.NEXT if order == first else Urgency.LATER,
                ),
                Kept,
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
    bob, chance = receiver(max_buffered_bytes_per_sender=COST * quota, max_sets_per_sender=4), random.Random(seed)
    left = [segment for message in messages_of(send, 100) for segment in message[:5]]
    for _ in range(100):
        chance.shuffle(left)
        kept = [one for one in left if isinstance(add_next(bob, one), Kept)]
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
    bob = receiver(max_buffered_bytes=SEGMENT_OVERHEAD_BYTES * 100)
    for number in range(300):
        bob.reassembler.add(*empty_segment(number, f"sender {number}"))
    assert bob.statistics.open_segments == 50


def test_what_is_set_aside_is_bounded_too(receiver, send, relabel):
    bob = receiver(max_buffered_bytes=COST * 800)
    first, *_ = messages_of(send, 1)
    bob.receive(*first[:4])
    for number in range(1_000):
        wrong = first[4].content[:-8] + number.to_bytes(8, "big")
        bob.receive(relabel(first[4], content=wrong, sds_id=f"forged {number}"))
    assert bob.statistics.segments_set_aside == 1_000
    assert bob.statistics.open_segments == 4
    assert isinstance(bob.receive(first[4]), MessageCompleted)


def test_completed_messages_are_remembered_up_to_a_number(receiver, send):
    bob = receiver(max_completed_sets=2)
    messages = [send(payload_of(2_500, seed), base=seed * 100) for seed in range(3)]
    for message in messages:
        bob.receive(*message[:8])
    assert bob.statistics.ended_sets == 2
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


def test_completed_messages_of_which_a_segment_may_come_late_are_remembered_longest(receiver, send):
    bob = receiver(max_completed_sets=2)
    messages = [send(payload_of(2_500, seed), base=seed * 100) for seed in range(4)]
    bob.receive(*messages[0][:8])
    for message in messages[1:]:
        bob.receive(*message)
    assert bob.statistics.ended_sets == 2
    assert isinstance(bob.receive(messages[0][8]), SegmentSurplus)


def test_a_message_is_complete_once_whatever_parity_comes_after_others(receiver, send):
    bob = receiver(max_completed_sets=2, parity_rate=1.0)
    messages = [send(payload_of(2_500, seed), base=seed * 100, parity_rate=1.0) for seed in range(4)]
    count = len(messages[0]) // 2
    bob.receive(*messages[0][:count])
    for message in messages[1:]:
        bob.receive(*message)
    bob.receive(*messages[0][count:])
    assert len(bob.delivered) == len(messages)


@pytest.mark.parametrize("sets", [3, 10])
def test_the_ids_of_completed_messages_are_bounded_too(receiver, send, sets):
    bob = receiver(max_completed_sets=sets)
    for seed in range(sets):
        bob.receive(*send(payload_of(64 * 100, seed), base=seed * 1_000, segment_size_bytes=64, parity_rate=0.0))
    assert len(bob.delivered) == sets
    assert bob.statistics.ended_sets == sets * IDS_PER_SET // 100


def forged_copy(relabel, sent, name, number=0):
    return relabel(sent, content=sent.content[:-8] + number.to_bytes(8, "big"), sds_id=name)


def test_a_segment_that_was_set_aside_is_tried_until_its_message_is_complete(receiver, send, relabel):
    bob = receiver()
    sent = send(payload_of(2_500, 1))
    bob.receive(*sent[:5], forged_copy(relabel, sent[4], "forged"))
    assert bob.reassembler.will_try("forged")
    assert not bob.reassembler.will_try(sent[4].sds_id), "it was taken in"
    assert isinstance(bob.receive(*sent[5:8]), MessageCompleted)
    assert not bob.reassembler.will_try("forged")


def test_a_segment_that_was_set_aside_is_not_tried_once_it_had_to_give_way(receiver, send, relabel):
    bob = receiver(max_buffered_bytes=COST * 40)
    for number in range(3):
        sent = send(payload_of(2_500, number), base=1_000 * number)
        bob.receive(*sent[:5])
        for copy in range(3):
            bob.receive(forged_copy(relabel, sent[4], f"forged {number} {copy}", copy))
    assert not bob.reassembler.will_try("forged 0 0")
    assert bob.reassembler.will_try("forged 2 2")


def test_of_segments_that_were_set_aside_those_give_way_first_that_nobody_cites(receiver, send, relabel):
    bob = receiver(max_buffered_bytes=COST * 40)
    bob.reassembler.is_wanted = {"cited"}.__contains__
    for number in range(3):
        sent = send(payload_of(2_500, number), base=1_000 * number)
        bob.receive(*sent[:5])
        for copy in range(3):
            name = "forged" if number or copy else "cited"
            bob.receive(forged_copy(relabel, sent[4], f"{name} {number} {copy}" if number or copy else name, copy))
    assert bob.reassembler.will_try("cited")
    assert not bob.reassembler.will_try("forged 0 1")


def test_of_many_contents_for_a_place_one_that_others_cite_is_kept(receiver, send, relabel):
    bob = receiver()
    bob.reassembler.is_wanted = {"the right one"}.__contains__
    sent = send(payload_of(2_500, 1))
    bob.receive(*sent[:4], *(forged_copy(relabel, sent[4], f"forged {number}", number) for number in range(10)))
    bob.receive(relabel(sent[4], sds_id="the right one"))
    assert bob.reassembler.will_try("the right one")
    assert isinstance(bob.receive(*sent[5:8]), MessageCompleted)


def test_segments_that_were_set_aside_are_not_all_tried_if_there_are_too_many_choices(receiver, send, relabel):
    bob = receiver()
    sent = send(payload_of(2_500, 1))
    bob.receive(*sent[:6])
    for index in range(5):
        bob.receive(forged_copy(relabel, sent[index], f"forged {index}"))
    assert bob.reassembler.will_try("forged 0"), "there are 32 choices"
    bob.receive(forged_copy(relabel, sent[5], "forged 5"))
    assert not bob.reassembler.will_try("forged 0"), "there are 64"


@pytest.mark.parametrize("is_known", [True, False])
def test_of_too_many_choices_those_are_tried_in_which_the_segments_are_in_order(receiver, send, relabel, is_known):
    bob = receiver()
    sent = send(payload_of(2_500, 1))
    forged = [
        relabel(forged_copy(relabel, message, f"forged {order}"), order_key=5_000)
        for order, message in enumerate(sent[:6])
    ]
    if is_known:
        bob.reassembler.order_of = {message.sds_id: message.order_key for message in (*sent, *forged)}.get
    outcome = bob.receive(*forged, *sent[:8])
    assert isinstance(outcome, MessageCompleted) is is_known
    assert not is_known or outcome.payload == payload_of(2_500, 1)
