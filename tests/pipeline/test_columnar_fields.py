"""Protobuf fields of many messages at once: what the cursor finds, and what it leaves to the codecs."""

from __future__ import annotations

import random

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import SegmentError
from fairway.pipeline.columnar.cursor import SPARE_BYTES, FieldCursor, Packed, tags_of
from fairway.pipeline.columnar.segment import read_segments, surely_whole
from fairway.wire.proto import sds_pb2, segment_pb2
from fairway.wire.segment import LIP_243, MAX_SEGMENTS, WAKU_SEGMENTS, Segment


def packed(messages):
    ends = np.cumsum([len(message) for message in messages], dtype=np.int64)
    starts = ends - np.array([len(message) for message in messages], np.int64)
    return Packed(np.frombuffer(b"".join(messages) + bytes(SPARE_BYTES), np.uint8), starts, ends)


def test_tags_are_those_of_the_schema_in_ascending_order():
    assert tags_of(sds_pb2.SdsMessage) == {
        "sender_id": b"\x0a",
        "message_id": b"\x12",
        "channel_id": b"\x1a",
        "lamport_timestamp": b"\x50",
        "causal_history": b"\x5a",
        "bloom_filter": b"\x62",
        "repair_request": b"\x6a",
        "content": b"\xa2\x01",
        "vouches": b"\x80\xb5\x18",
    }
    assert list(tags_of(segment_pb2.SegmentMessage).values()) == [
        bytes([tag]) for tag in (0x0A, 0x10, 0x18, 0x20, 0x28, 0x30, 0x3A)
    ]


def test_a_number_is_read_up_to_63_bits():
    numbers = [0, 1, 127, 128, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    cursor = FieldCursor(
        packed([sds_pb2.SdsMessage(lamport_timestamp=number).SerializeToString() for number in numbers])
    )
    column = cursor.varint(b"\x50")
    assert cursor.finish().tolist() == [True] * 6 + [False] * 2
    assert column.values[:6].tolist() == numbers[:6]


def test_a_field_that_is_not_there_leaves_the_cursor_where_it_is():
    cursor = FieldCursor(packed([b"\x12\x01b", b"\x0a\x01a\x12\x01b", b""]))
    first, second = cursor.length_delimited(b"\x0a"), cursor.length_delimited(b"\x12")
    assert cursor.finish().all()
    assert (first.present.tolist(), first.lengths.tolist()) == ([False, True, False], [0, 1, 0])
    assert (second.present.tolist(), second.lengths.tolist()) == ([True, True, False], [1, 1, 0])


def test_no_field_reaches_into_the_next_message():
    broken = [b"\x0a\x02a", b"\x0a", b"\x0a\x80", b"\x0a\xff\xff\x7f", b"\x0a\x80\x80\x80\x01"]
    cursor = FieldCursor(packed([message for one in broken for message in (one, b"\x0a\x01a")]))
    column = cursor.length_delimited(b"\x0a")
    assert cursor.finish().tolist() == [False, True] * len(broken)
    assert column.lengths[1::2].tolist() == [1] * len(broken)


def test_of_a_tag_of_two_bytes_both_are_compared():
    cursor = FieldCursor(packed([b"\xa2\x01\x01c", b"\xa2", b"\x01\x01c", b"\xa2\x02\x01c"]))
    cursor.length_delimited(b"\xa2\x01")
    assert cursor.finish().tolist() == [True, False, False, False]


def test_lists_come_message_by_message_in_their_order():
    lists = [[b"a", b"bb", b""], [], [b"ccc"], [b"d", b"e"]]
    messages = [sds_pb2.SdsMessage(causal_history=one).SerializeToString() for one in lists]
    cursor = FieldCursor(packed(messages))
    column = cursor.repeated(b"\x5a", 10)
    assert cursor.finish().all()
    data = b"".join(messages)
    found = [data[start : start + length] for start, length in zip(column.starts, column.lengths, strict=True)]
    assert found == [b"a", b"bb", b"", b"ccc", b"d", b"e"]
    assert column.owners.tolist() == [0, 0, 0, 2, 3, 3]


def test_a_list_costs_no_more_steps_than_are_worth_it():
    flood = b"\x5a\x00" * 500_000
    cursor = FieldCursor(packed([flood, b"\x5a\x00" * 40, b"\x5a\x00", *[b"\x5a\x00" * 20] * 20]))
    column = cursor.repeated(b"\x5a", 1_000)
    assert cursor.finish().tolist() == [False, False, True, *[True] * 20]
    assert len(column.owners) < 1_000
    crowd = FieldCursor(packed([b"\x5a\x00" * 1_000, b"\x5a\x00" * 1_001] * 10))
    crowd.repeated(b"\x5a", 1_000)
    assert crowd.finish().tolist() == [True, False] * 10


def test_a_flood_of_empty_elements_takes_memory_in_proportion_to_its_bytes():
    flood = packed([b"\x5a\x00" * 900] * 200)
    cursor = FieldCursor(flood)
    assert len(cursor.repeated(b"\x5a", 1_000).owners) < 100_000
    assert not cursor.finish().any()
    ordinary = FieldCursor(packed([b"\x5a\x40" + bytes(64)] * 200_000))
    assert len(ordinary.repeated(b"\x5a", 1_000).owners) == 200_000
    assert ordinary.finish().all()


def test_a_batch_of_nothing_has_nothing():
    cursor = FieldCursor(packed([]))
    for column in (cursor.varint(b"\x50"), cursor.length_delimited(b"\x0a"), cursor.repeated(b"\x5a", 10)):
        assert all(len(values) == 0 for values in column)
    assert cursor.finish().tolist() == []


def is_protobuf(data):
    try:
        segment_pb2.SegmentMessageProto.FromString(data)
    except DecodeError:
        return False
    return True


FIELDS = st.tuples(st.integers(0, 2**40), st.sampled_from([b"", b"a", b"\x05hello", b"\x80\x80", b"\xff" * 10]))
FIELD_BYTES = FIELDS.map(lambda field: varint(field[0] % 2 ** (field[0] % 41)) + field[1])
LOOSE = st.one_of(st.binary(max_size=20), st.lists(FIELD_BYTES, max_size=6).map(b"".join), st.text().map(str.encode))


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


@examples(2)
@given(contents=st.lists(LOOSE, min_size=1, max_size=8))
def test_what_is_surely_a_whole_message_is_no_protobuf(contents):
    contents *= 50  # so many repay a step
    for content, whole in zip(contents, surely_whole(WAKU_SEGMENTS, packed(contents)), strict=True):
        assert not (whole and is_protobuf(content)), content.hex()


def test_most_contents_of_applications_are_seen_to_be_whole(seed):
    rng = random.Random(seed)
    contents = [rng.randbytes(300) for _ in range(500)]
    contents += [b'{"text": "message %d", "of": "somebody", "at": "some time"}' % number for number in range(500)]
    assert surely_whole(WAKU_SEGMENTS, packed(contents)).mean() > 0.85, f"seed {seed}"
    assert not surely_whole(LIP_243, packed(contents)).any()


HEADERS = st.builds(
    Segment,
    payload_hash=st.just(b"k" * 32),
    index=st.integers(0, 300),
    data_count=st.integers(0, 300),
    parity_count=st.integers(0, 300),
    is_parity=st.booleans(),
    payload=st.binary(max_size=20),
    payload_length=st.just(7),
)


@examples(1)
@given(segments=st.lists(HEADERS, min_size=1, max_size=20))
def test_headers_are_those_that_the_formats_read(segments):
    for form in (WAKU_SEGMENTS, LIP_243):
        contents = [form.encode(segment) for segment in segments]
        found = read_segments(form, packed(contents), MAX_SEGMENTS)
        data = b"".join(contents)
        columns = (found.rows, found.hash_starts, found.index, found.is_parity, found.data_count, found.parity_count)
        for row, hash_start, *header in zip(*(column.tolist() for column in columns), strict=True):
            segment = form.decode(contents[row])
            assert header == [segment.index, segment.is_parity, segment.data_count, segment.parity_count]
            assert data[hash_start : hash_start + 32] == b"k" * 32
        refused = set(range(len(contents))) - set(found.rows.tolist())
        assert not any(is_valid(form, contents[row]) for row in refused)


def is_valid(form, content):
    try:
        form.decode(content)
    except SegmentError:
        return False
    return True
