import random

import pytest

from fairway.events import LossReason
from fairway.protocol.segmentation.assembly import MAX_TRAILING_ZEROS
from fairway.protocol.segmentation.outcomes import MessageComplete
from fairway.protocol.segmentation.segment_set import SetKey
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment
from segment_answers import answered


def payload_of(length, seed=0):
    return random.Random(f"{length},{seed}").randbytes(length)


def test_what_is_no_segment_of_the_waku_format_is_a_whole_message(receiver, send):
    bob = receiver()
    (message,) = send(b"hello")
    assert bob.receive(message) == MessageComplete(payload=b"hello")
    assert bob.statistics.whole_messages == 1


def test_the_outcome_tells_which_segments_came_and_which_did_not(receiver, send, segment_format):
    payload = payload_of(1_400)
    messages = send(payload, segment_format=segment_format, parity_rate=0.4)
    data_count = len(messages) * 5 // 7
    parity_count = len(messages) - data_count
    lost = {1, data_count}
    left = [message for order, message in enumerate(messages) if order not in lost]
    outcome = receiver(segment_format).receive(*left[:data_count][::-1])
    came = left[:data_count]
    assert answered(outcome) == "complete"
    assert outcome.payload == payload
    assert outcome.recovered
    assert (outcome.segments.data_count, outcome.segments.parity_count) == (data_count, parity_count)
    assert outcome.segments.sds_ids == tuple(message.sds_id for message in came)
    assert outcome.segments.orders == {messages.index(message): message.sds_id for message in came}
    length = 1_400 if segment_format is LIP_243 else None
    expected = SetKey(sender_id="alice", payload_hash=keccak256(payload), payload_length=length, generation=0)
    assert outcome.segments.key == expected


def test_a_duplicate_is_told_and_changes_nothing(receiver, send):
    bob = receiver()
    first, second, *_ = send(payload_of(1_400))
    bob.receive(first, second)
    assert answered(bob.receive(first)) == "duplicate"
    assert bob.statistics.open_segments == 2
    assert bob.statistics.segments_duplicate == 1


def test_surplus_makes_no_second_delivery_and_no_ghost_of_a_set(receiver, send, segment_format):
    bob = receiver(segment_format)
    messages = send(payload_of(2_000), segment_format=segment_format)
    bob.receive(*messages)
    for message in messages:
        assert answered(bob.receive(message)) == "late"
    assert len(bob.delivered) == 1
    assert bob.statistics.open_sets == 0
    assert bob.reassembler.next_deadline() is None
    assert bob.reassembler.expire(10**15) == ()


def test_a_copy_of_a_single_segment_is_surplus(receiver, send):
    bob = receiver(LIP_243)
    (message,) = send(b"ok", segment_format=LIP_243)
    segment = LIP_243.decode(message.content)
    outcomes = []
    for sds_id, order_key, is_parity in (("copy", 1_001, True), ("data", 1_000, False)):
        changed = Segment(
            payload_hash=segment.payload_hash,
            index=0,
            data_count=1,
            parity_count=1,
            is_parity=is_parity,
            payload=b"ok".ljust(64, b"\0") if is_parity else b"ok",
            payload_length=2,
        )
        outcomes.append(bob.reassembler.accept("alice", sds_id, order_key, LIP_243.encode(changed), 0))
    completed, surplus = outcomes
    assert completed.payload == b"ok"
    assert completed.recovered
    assert answered(surplus) == "late"


# Reed-Solomon


def test_parity_alone_waits_for_a_data_segment_that_tells_how_many_there_are(receiver, send):
    bob = receiver(parity_rate=1.0)
    payload = payload_of(900)
    messages = send(payload, parity_rate=1.0)
    data, parity = messages[:3], messages[3:]
    for held, message in enumerate(parity[:-1], 1):
        stored = bob.receive(message)
        assert answered(stored) == "kept"
        assert (len(stored.segments.ids), stored.segments.data_count) == (held, 0)
    completed = bob.receive(data[1])
    assert completed.payload == payload
    assert completed.segments.orders.keys() == {1, 3, 4}


def test_as_much_parity_as_data_suffices_though_none_tells_how_much_there_is(receiver, send):
    bob = receiver(parity_rate=1.0)
    payload = payload_of(900)
    messages = send(payload, parity_rate=1.0)
    completed = bob.receive(*messages[3:])
    assert (completed.payload, completed.segments.data_count) == (payload, 3)
    assert completed.segments.orders == {order: message.sds_id for order, message in enumerate(messages[3:], 3)}
    assert all(answered(bob.receive(message)) == "late" for message in messages)


def test_less_parity_than_data_is_stored_though_all_of_it_came(receiver, send):
    bob = receiver()
    messages = send(payload_of(2_500))
    assert answered(bob.receive(*messages[8:])) == "kept"
    assert bob.receive(*messages[:6]).payload == payload_of(2_500)


def test_parity_alone_suffices_where_each_segment_tells_all(receiver, send):
    bob = receiver(LIP_243, parity_rate=1.0)
    payload = payload_of(500)
    messages = send(payload, segment_format=LIP_243, parity_rate=1.0)
    bob.receive(*messages[len(messages) // 2 :])
    assert bob.delivered == [("alice", payload)]


@pytest.mark.parametrize("tail", [b"", b"\0", bytes(64), b"\0x\0\0", bytes(319), bytes(320)], ids=repr)
def test_the_end_of_a_lost_last_segment_of_the_waku_format_is_found(receiver, send, tail):
    payload = payload_of(320 * 7, seed=1) + tail
    messages = send(payload)
    data_count = WAKU_SEGMENTS.decode(messages[0].content).data_count
    left = [message for order, message in enumerate(messages) if order != data_count - 1]
    completed = receiver().receive(*left[:data_count])
    assert completed.payload == payload
    assert completed.recovered


def test_a_lost_last_segment_of_many_zeros_waits_for_it_or_for_the_rest(receiver, send):
    size = 64 * 2_100
    zeros = MAX_TRAILING_ZEROS + 1
    payload = payload_of(size * 2) + b"end" + bytes(zeros)
    messages = send(payload, segment_size_bytes=size, parity_rate=0.5)
    assert len(messages) == 4
    bob = receiver(segment_size_bytes=size)
    *data, last, parity = messages
    tried = bob.receive(*data, parity)
    assert answered(tried) == "contradicting"
    completed = bob.receive(last)
    assert completed.payload == payload
    assert not completed.recovered


@pytest.mark.parametrize("cut", [1, 64])
def test_parity_that_is_no_shard_of_the_data_waits_for_the_data(receiver, send, segment_format, relabel, cut):
    bob = receiver(segment_format)
    payload = payload_of(1_500)
    messages = send(payload, segment_format=segment_format)
    segment = segment_format.decode(messages[-1].content)
    shorter = segment_format.encode(relabel(segment, payload=segment.payload[:-cut]))
    data = [message for message in messages if not segment_format.decode(message.content).is_parity]
    aside = bob.receive(*data[1:], relabel(messages[-1], content=shorter))
    assert answered(aside) == "contradicting"
    assert bob.receive(data[0]).payload == payload


# What is not as it should be


def damaged(message, relabel):
    return relabel(message, content=message.content[:-1] + bytes([message.content[-1] ^ 1]))


def test_a_hash_that_lies_is_told_at_once_and_no_segment_of_it_is_kept_any_more(
    receiver, send, segment_format, relabel
):
    bob = receiver(segment_format)
    messages = send(payload_of(1_000), segment_format=segment_format, parity_rate=0.0)
    refused = bob.receive(damaged(messages[0], relabel), *messages[1:])
    assert answered(refused) == "hash-mismatch"
    assert refused.lost.reason is LossReason.HASH_MISMATCH
    assert refused.lost.sds_ids == tuple(message.sds_id for message in messages)
    assert bob.statistics.sets_rejected == 1
    assert (bob.statistics.open_sets, bob.statistics.buffered_bytes) == (0, 0)
    assert [answered(bob.receive(message)) for message in messages] == ["given-up"] * len(messages)
    assert bob.delivered == []


def test_a_message_whose_hash_was_wrong_is_delivered_when_it_is_sent_anew(receiver, send, segment_format, relabel):
    bob = receiver(segment_format)
    messages = send(payload_of(1_000), segment_format=segment_format, parity_rate=0.0)
    bob.receive(damaged(messages[0], relabel), *messages[1:])
    bob.receive(*send(payload_of(1_000), segment_format=segment_format, parity_rate=0.0, base=9_000))
    assert bob.delivered == [("alice", payload_of(1_000))]


def test_the_first_content_for_an_index_counts_and_another_one_is_refused(receiver, send, segment_format, relabel):
    bob = receiver(segment_format)
    messages = send(payload_of(1_000), segment_format=segment_format, parity_rate=0.0)
    forged = relabel(damaged(messages[0], relabel), sds_id="forged")
    assert answered(bob.receive(messages[0], forged)) == "contradicting"
    assert answered(bob.receive(*messages[1:])) == "complete"


def test_a_segment_that_claims_other_numbers_than_those_before_it_is_refused(receiver, send, segment_format, relabel):
    bob = receiver(segment_format)
    messages = send(payload_of(1_000), segment_format=segment_format)
    segment = segment_format.decode(messages[1].content)
    changed = segment_format.encode(relabel(segment, data_count=segment.data_count + 1))
    assert answered(bob.receive(messages[0], relabel(messages[1], content=changed))) == "contradicting"
    bob.receive(*messages[1:])
    assert len(bob.delivered) == 1


def test_a_length_that_lies_gets_nothing_delivered(receiver, relabel):
    bob = receiver(LIP_243)
    pieces = [bytes(64), bytes(10)]
    for index, piece in enumerate(pieces):
        segment = Segment(
            payload_hash=keccak256(bytes(74)),
            index=index,
            data_count=2,
            parity_count=0,
            is_parity=False,
            payload=piece,
            payload_length=75,
        )
        outcome = bob.reassembler.accept("alice", f"{index}", index, LIP_243.encode(segment), 0)
    assert answered(outcome) == "hash-mismatch"


def test_a_payload_segmented_anew_in_another_way_is_a_new_sending(receiver, send, segment_format):
    bob = receiver(segment_format, segment_size_bytes=640)
    payload = payload_of(1_500)
    bob.receive(*send(payload, segment_format=segment_format, segment_size_bytes=320))
    bob.receive(*send(payload, segment_format=segment_format, segment_size_bytes=640, base=2_000))
    assert bob.delivered == [("alice", payload)] * 2


@pytest.mark.parametrize("content", [b"", b"hello", b"\x0a\x7f", bytes(500)], ids=repr)
def test_what_is_no_segment_of_lip_243_is_discarded(receiver, content):
    outcome = receiver(LIP_243).reassembler.accept("alice", "1", 1, content, 0)
    assert answered(outcome) in {"undecodable", "invalid"}


def test_a_segment_of_lip_243_above_the_common_size_is_oversized(receiver, send):
    large, *_ = send(payload_of(2_000), segment_format=LIP_243, segment_size_bytes=640)
    outcome = receiver(LIP_243, segment_size_bytes=320).receive(large)
    assert answered(outcome) == "oversized"
