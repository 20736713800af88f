"""Protobuf fields of many messages at once: what the cursor finds, and what it leaves to the codecs."""

from __future__ import annotations

import random

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.pipeline.columnar.cursor import SPARE_BYTES, FieldCursor, Packed
from fairway.pipeline.columnar.segment import surely_whole
from fairway.wire.proto import segment_pb2
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS


def packed(messages):
    ends = np.cumsum([len(message) for message in messages], dtype=np.int64)
    starts = ends - np.array([len(message) for message in messages], np.int64)
    return Packed(np.frombuffer(b"".join(messages) + bytes(SPARE_BYTES), np.uint8), starts, ends)


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
