"""The same payload, sent more than once by the same sender: each sending is delivered, and nothing else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    SegmentDuplicate,
    SegmentStored,
    SegmentSurplus,
    SetMerged,
)
from fairway.protocol.segmentation.reassembler import MAX_REMEMBERED_SENDINGS
from fairway.protocol.segmentation.segment_set import MAX_LATE_PER_SEGMENT
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS

PAYLOAD = random.Random(1).randbytes(2_500)
# Eight data segments and two of parity by SEGMENTATION.
DATA, TOTAL = 8, 10


def test_a_payload_sent_twice_is_delivered_twice(receiver, send, segment_format):
    bob = receiver(segment_format)
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=1_000))
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=2_000))
    assert bob.delivered == [("alice", PAYLOAD)] * 2
    assert bob.statistics.open_sets == 0


def test_small_messages_of_lip_243_that_say_the_same_are_each_delivered(receiver, send):
    bob = receiver(LIP_243)
    for base in range(40):
        bob.receive(*send(b"ok", segment_format=LIP_243, base=base))
    assert len(bob.delivered) == 40
    assert bob.statistics.ended_sets == MAX_REMEMBERED_SENDINGS


def test_sendings_have_generations(receiver, send):
    bob = receiver()
    outcomes = [bob.receive(*send(PAYLOAD, base=base)[:DATA]) for base in (1_000, 2_000)]
    assert [outcome.set_key.generation for outcome in outcomes] == [0, 1]


def test_two_sendings_that_alternate_are_told_apart(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    for pair in zip(first, second, strict=True):
        bob.receive(*pair)
    assert len(bob.delivered) == 2
    assert bob.statistics.open_sets == 0


def test_parity_helps_each_of_two_sendings_that_alternate(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    del first[3:5], second[6:8]
    for pair in zip(first, second, strict=True):
        bob.receive(*pair)
    assert len(bob.delivered) == 2
    assert bob.statistics.messages_recovered == 2


def test_the_surplus_of_a_first_sending_is_not_taken_for_a_second(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    late = first[2:4]
    bob.receive(*first[:2], *first[4:])
    assert all(isinstance(bob.receive(message), SegmentSurplus) for message in late)
    assert isinstance(bob.receive(second[2]), SegmentStored)
    assert isinstance(bob.receive(*second[3:]), MessageCompleted)
    assert len(bob.delivered) == 2


def held_up(bob, sent, relabel):
    """Let somebody receive a message, and return the rest of it, stamped long after."""
    data = next(number for number, message in enumerate(sent, 1) if isinstance(bob.receive(message), MessageCompleted))
    return [relabel(message, order_key=message.order_key + 1_000_000) for message in sent[data:]]


def test_what_a_sender_was_held_up_with_for_long_is_no_second_message(receiver, send, relabel, segment_format):
    bob = receiver(segment_format, parity_rate=1.0)
    sent = send(PAYLOAD, segment_format=segment_format, parity_rate=1.0)
    assert isinstance(bob.receive(*held_up(bob, sent, relabel)), SegmentSurplus)
    assert len(bob.delivered) == 1
    assert bob.statistics.open_sets == 0
    bob.receive(*send(PAYLOAD, segment_format=segment_format, parity_rate=1.0, base=3_000_000))
    assert len(bob.delivered) == 2


def test_what_a_sender_was_held_up_with_is_not_announced_as_lost(receiver, send, relabel, segment_format):
    changed = []
    bob = receiver(segment_format, on_change=changed.append)
    rest = held_up(bob, send(PAYLOAD, segment_format=segment_format), relabel)
    assert isinstance(bob.receive(*rest), SegmentStored)
    assert (bob.statistics.open_sets, bob.statistics.late_sets) == (1, 1)
    (merged,) = bob.reassembler.expire(bob.config.reassembly_timeout_ms + 1)
    assert isinstance(merged, SetMerged)
    assert merged.sds_ids == tuple(message.sds_id for message in rest)
    assert bob.statistics.open_sets == 0
    kept = {key for key, _ in bob.reassembler.rows()}
    assert {key for key in changed if bob.reassembler.row(key) is not None} == kept


def test_what_a_second_sending_begins_with_is_not_what_came_late_of_the_first(receiver, send, segment_format):
    bob = receiver(segment_format)
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=1_000))
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=2_000)[:2])
    assert (bob.statistics.open_sets, bob.statistics.late_sets) == (1, 0)


@pytest.mark.parametrize("how_late", [0, 1_000_000], ids=["in the run", "long after"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the forged one first", "the true one first"])
def test_a_forgery_in_the_place_of_what_a_sender_was_held_up_with_does_not_keep_that_out(
    receiver, send, relabel, segment_format, how_late, is_first
):
    """Which of the two is the rest of a message that was delivered long ago nobody can tell any more."""
    bob = receiver(segment_format)
    true = held_up(bob, send(PAYLOAD, segment_format=segment_format), relabel)[-1]
    wrong = true.content[:-1] + bytes([true.content[-1] ^ 1])
    forged = relabel(true, content=wrong, sds_id="forged", order_key=true.order_key - 1_000_000 + how_late)
    outcomes = [bob.receive(message) for message in ((forged, true) if is_first else (true, forged))]
    assert all(isinstance(outcome, SegmentStored | SegmentSurplus) for outcome in outcomes)
    again = receiver(segment_format)
    again.reassembler.load(list(bob.reassembler.rows()))
    for one in (bob, again):
        assert all(isinstance(o, SetMerged) for o in one.reassembler.expire(bob.config.reassembly_timeout_ms + 1))
        assert one.statistics.open_sets == 0
        one.receive(*send(PAYLOAD, segment_format=segment_format, base=3_000_000))
    assert [len(one.delivered) for one in (bob, again)] == [2, 1]
    assert list(bob.reassembler.rows()) == list(again.reassembler.rows())


@pytest.fixture
def whole_with_a_forged_late_segment(receiver, send, relabel, segment_format):
    """Return a receiver of a message that is whole, what is to come of it, and how a forger may change that."""
    bob = receiver(segment_format)
    sent = send(PAYLOAD, segment_format=segment_format)
    data = next(number for number, message in enumerate(sent, 1) if isinstance(bob.receive(message), MessageCompleted))

    def forge(message, sds_id="forged", **changed):
        content = message.content[:-1] + bytes([message.content[-1] ^ 1])
        return relabel(message, content=content, sds_id=sds_id, **changed)

    assert isinstance(bob.receive(forge(sent[data])), SegmentSurplus)
    return bob, sent[data:], forge


def test_a_forged_late_segment_does_not_take_the_place_of_the_true_one(whole_with_a_forged_late_segment, receiver):
    bob, (true, *_), forge = whole_with_a_forged_late_segment
    bob.receive(forge(true, "far away", order_key=9_000_000))
    bob.reassembler.expire(bob.config.reassembly_timeout_ms + 1)
    again = receiver(bob.segment_format)
    again.reassembler.load(list(bob.reassembler.rows()))
    for one in (bob, again):
        outcome = one.receive(true)
        assert isinstance(outcome, SegmentSurplus)
        assert {"forged", true.sds_id} <= set(outcome.sds_ids)
        assert one.receive(true) == outcome
    assert list(bob.reassembler.rows()) == list(again.reassembler.rows())


def test_forged_late_segments_do_not_take_in_a_second_sending(whole_with_a_forged_late_segment, send):
    bob, rest, forge = whole_with_a_forged_late_segment
    total = rest[-1].order_key + 1 - 1_000
    second = send(PAYLOAD, segment_format=bob.segment_format, base=1_000 + total)
    for number, message in enumerate(rest):
        bob.receive(forge(message, f"forged {number}", order_key=message.order_key + total - 1))
    assert isinstance(bob.receive(second[-1]), SegmentStored)
    bob.receive(*second[:-1])
    assert len(bob.delivered) == 2


def test_the_number_of_parity_segments_that_a_forged_late_one_names_does_not_count(receiver, send, relabel):
    bob = receiver(WAKU_SEGMENTS)
    sent = send(PAYLOAD)
    bob.receive(*sent[:DATA])
    bob.receive(relabel(send(PAYLOAD, parity_rate=0.5)[DATA], sds_id="forged"))
    assert all(isinstance(bob.receive(message), SegmentSurplus) for message in sent[DATA:])
    bob.receive(*send(PAYLOAD, base=1_000 + TOTAL))
    assert len(bob.delivered) == 2


def test_few_forged_late_segments_are_remembered(whole_with_a_forged_late_segment):
    bob, (true, *_), forge = whole_with_a_forged_late_segment
    outcomes = [bob.receive(forge(true, f"forged {number}")) for number in range(1_000)]
    assert all(isinstance(outcome, SegmentSurplus) for outcome in outcomes)
    told = [len(outcomes[number].sds_ids) for number in (0, 100, -1)]
    assert told == [told[0], *[told[0] + MAX_LATE_PER_SEGMENT - 1] * 2]
    assert true.sds_id in bob.receive(true).sds_ids


def test_a_late_segment_finds_its_completed_set_while_a_second_sending_is_open(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    bob.receive(*first[1:9], *second[1:4])
    assert isinstance(bob.receive(first[0]), SegmentSurplus)
    bob.receive(second[0], *second[4:])
    assert len(bob.delivered) == 2
    assert bob.statistics.open_sets == 0


def test_the_missing_segment_of_a_first_sending_completes_it_after_a_second_was_delivered(receiver, send):
    bob = receiver(parity_rate=0.0)
    first, second = send(PAYLOAD, parity_rate=0.0), send(PAYLOAD, parity_rate=0.0, base=2_000)
    bob.receive(*first[:5], *first[6:], *second)
    assert len(bob.delivered) == 1
    completed = bob.receive(first[5])
    assert isinstance(completed, MessageCompleted)
    assert completed.set_key.generation == 0
    assert len(bob.delivered) == 2


def test_a_segment_sent_again_under_its_own_id_is_a_duplicate_whichever_generation_holds_it(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    bob.receive(*first[:4], *second[:4])
    assert isinstance(bob.receive(first[2]), SegmentDuplicate)
    assert isinstance(bob.receive(second[2]), SegmentDuplicate)
    assert bob.statistics.open_segments == 8


def test_order_keys_that_are_no_run_do_not_keep_a_message_from_being_complete(receiver, send, relabel):
    bob = receiver()
    messages = [relabel(message, order_key=order * 90_000) for order, message in enumerate(send(PAYLOAD))]
    assert isinstance(bob.receive(*messages), SegmentSurplus)
    assert len(bob.delivered) == 1
    assert bob.statistics.open_sets == 0


def test_a_sender_whose_segments_are_stamped_at_intervals_may_repeat_a_payload(receiver, send, relabel):
    bob = receiver()
    for start in (0, 10**6):
        messages = [
            relabel(message, order_key=start + order * 50) for order, message in enumerate(send(PAYLOAD, base=start))
        ]
        bob.receive(*messages[1:], messages[0])
    assert len(bob.delivered) == 2
    assert bob.statistics.open_sets == 0


def test_a_sending_that_was_forgotten_leaves_a_ghost_but_no_second_delivery(receiver, send):
    bob = receiver(max_completed_sets=0)
    messages = send(PAYLOAD)
    bob.receive(*messages)
    assert len(bob.delivered) == 1
    assert (bob.statistics.ended_sets, bob.statistics.open_segments) == (0, 2)


@given(seed=st.integers(0, 2**32), sendings=st.integers(2, 4))
def test_without_parity_any_interleaving_of_sendings_is_delivered_as_often(receiver, send, seed, sendings):
    bob = receiver(parity_rate=0.0)
    messages = [message for base in range(sendings) for message in send(PAYLOAD, parity_rate=0.0, base=base * 100)]
    random.Random(seed).shuffle(messages)
    bob.receive(*messages)
    assert len(bob.delivered) == sendings
    assert bob.statistics.open_sets == 0


@st.composite
def lossy_sendings(draw):
    """Enough of each of some sendings; all begin with the same segment, which shows how many they are."""
    orders = st.permutations(range(1, TOTAL)).map(lambda drawn: drawn[: DATA - 1])
    kept = draw(st.lists(orders, min_size=2, max_size=4))
    rest = [(sending, order) for sending, drawn in enumerate(kept) for order in drawn]
    return len(kept), draw(st.permutations(rest))


@given(lossy_sendings())
def test_lossy_sendings_that_are_known_to_be_several_are_each_delivered(receiver, send, drawn):
    sendings, rest = drawn
    bob = receiver()
    messages = [send(PAYLOAD, base=1_000 + sending * TOTAL) for sending in range(sendings)]
    bob.receive(*(message[0] for message in messages), *(messages[sending][order] for sending, order in rest))
    assert len(bob.delivered) == sendings
    assert bob.statistics.open_sets == 0


@pytest.mark.parametrize("seed", range(20))
def test_lossy_sendings_one_after_another_are_each_delivered_with_all_surplus_at_the_end(receiver, send, seed):
    bob, chance = receiver(), random.Random(seed)
    surplus = []
    for sending in range(4):
        messages = send(PAYLOAD, base=1_000 + sending * TOTAL)
        chance.shuffle(messages)
        bob.receive(*messages[:DATA])
        surplus += messages[DATA:]
    assert len(bob.delivered) == 4
    chance.shuffle(surplus)
    assert all(isinstance(bob.receive(message), SegmentSurplus) for message in surplus)
    assert len(bob.delivered) == 4
