"""The same payload, sent more than once by the same sender: each sending is delivered, and nothing else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segment_answers import answered

PAYLOAD = random.Random(1).randbytes(2_500)
# Eight data segments and two of parity by SEGMENTATION.
DATA, TOTAL = 8, 10


def test_a_payload_sent_twice_is_delivered_twice(receiver, send, segment_format):
    bob = receiver(segment_format)
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=1_000))
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=2_000))
    assert bob.delivered == [("alice", PAYLOAD)] * 2
    assert bob.statistics.open_sets == 0


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
    assert all(answered(bob.receive(message)) == "late" for message in late)
    assert answered(bob.receive(second[2])) == "kept"
    assert answered(bob.receive(*second[3:])) == "complete"
    assert len(bob.delivered) == 2


def held_up(bob, sent, relabel):
    """Let somebody receive a message, and return the rest of it, stamped long after."""
    data = next(number for number, message in enumerate(sent, 1) if answered(bob.receive(message)) == "complete")
    return [relabel(message, order_key=message.order_key + 1_000_000) for message in sent[data:]]


def test_what_a_sender_was_held_up_with_for_long_is_no_second_message(receiver, send, relabel, segment_format):
    bob = receiver(segment_format, parity_rate=1.0)
    sent = send(PAYLOAD, segment_format=segment_format, parity_rate=1.0)
    assert answered(bob.receive(*held_up(bob, sent, relabel))) == "late"
    assert len(bob.delivered) == 1
    assert bob.statistics.open_sets == 0
    bob.receive(*send(PAYLOAD, segment_format=segment_format, parity_rate=1.0, base=3_000_000))
    assert len(bob.delivered) == 2


def test_what_a_sender_was_held_up_with_is_not_announced_as_lost(receiver, send, relabel, segment_format):
    changed = []
    bob = receiver(segment_format, on_change=changed.append)
    rest = held_up(bob, send(PAYLOAD, segment_format=segment_format), relabel)
    assert answered(bob.receive(*rest)) == "kept"
    assert (bob.statistics.open_sets, bob.statistics.late_sets) == (1, 1)
    (merged,) = bob.reassembler.expire(bob.config.reassembly_timeout_ms + 1)
    assert merged.reason is None
    assert merged.sds_ids == tuple(message.sds_id for message in rest)
    assert bob.statistics.open_sets == 0
    kept = {key for key, _ in bob.reassembler.rows()}
    assert {key for key in changed if bob.reassembler.row(key) is not None} == kept


def test_what_a_second_sending_begins_with_is_not_what_came_late_of_the_first(receiver, send, segment_format):
    bob = receiver(segment_format)
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=1_000))
    bob.receive(*send(PAYLOAD, segment_format=segment_format, base=2_000)[:2])
    assert (bob.statistics.open_sets, bob.statistics.late_sets) == (1, 0)


def test_a_late_segment_finds_its_completed_set_while_a_second_sending_is_open(receiver, send):
    bob = receiver()
    first, second = send(PAYLOAD, base=1_000), send(PAYLOAD, base=1_000 + TOTAL)
    bob.receive(*first[1:9], *second[1:4])
    assert answered(bob.receive(first[0])) == "late"
    bob.receive(second[0], *second[4:])
    assert len(bob.delivered) == 2
    assert bob.statistics.open_sets == 0


def test_the_missing_segment_of_a_first_sending_completes_it_after_a_second_was_delivered(receiver, send):
    bob = receiver(parity_rate=0.0)
    first, second = send(PAYLOAD, parity_rate=0.0), send(PAYLOAD, parity_rate=0.0, base=2_000)
    bob.receive(*first[:5], *first[6:], *second)
    assert len(bob.delivered) == 1
    completed = bob.receive(first[5])
    assert answered(completed) == "complete"
    assert completed.segments.key.generation == 0
    assert len(bob.delivered) == 2


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
    bob = receiver(quotas={"ended_sets": 0})
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
    assert all(answered(bob.receive(message)) == "late" for message in surplus)
    assert len(bob.delivered) == 4
