"""`read_segments`: the headers of many segments, in either format.

A canonical segment obeys every rule of `SegmentFormat.decode`. Of what is none, `surely_whole` finds most of what
`SegmentFormat.is_segment` would call a whole message; the rest is left to the format itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from fairway.pipeline.columnar.cursor import (
    FieldCursor,
    Mask,
    Numbers,
    Packed,
    Rows,
    rows_of,
    tags_of,
    varints,
)
from fairway.wire.proto import segment_pb2
from fairway.wire.segment import HASH_BYTES, MAX_SEGMENTS, WAKU_SEGMENTS, SegmentFormat

_WAKU_TAGS: Final = tags_of(segment_pb2.SegmentMessageProto)
_LIP_243_TAGS: Final = tags_of(segment_pb2.SegmentMessage)
_HASH_TAG: Final = _WAKU_TAGS["entire_message_hash"]
"""The same in both formats."""
_UINT32_MAX: Final = 2**32 - 1

_FIXED_BYTES: Final = np.array([0, 8, 0, 0, 0, 4, 0, 0])
"""Bytes that a field of each wire type has behind its tag, as far as the type alone tells."""
_VARINT, _LENGTH_DELIMITED, _GROUP_START, _GROUP_END, _FIRST_UNUSED = 0, 2, 3, 4, 6
"""Wire types of protobuf; those from 6 on do not exist."""
_FIRST_TAG: Final = 1 << 3
"""The least tag: that of field 1."""
_STEPS: Final = 16
"""Fields of a content that are looked at; text and random bytes fail at the second on average."""
_FEW_CONTENTS: Final = 32
"""So few contents do not repay a step of NumPy."""
_TAG_BYTES, _VALUE_BYTES = 5, 9
"""Bytes of the longest tag and varint that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentColumns:
    """The headers of segments."""

    rows: Rows
    """Which contents the segments are."""
    hash_starts: Numbers
    """Where the hash of the payload is, of `HASH_BYTES`."""
    index: Numbers
    is_parity: Mask
    data_count: Numbers
    parity_count: Numbers

    def only(self, chosen: Mask) -> SegmentColumns:
        """Return some of the segments."""
        return SegmentColumns(
            rows=self.rows[chosen],
            hash_starts=self.hash_starts[chosen],
            index=self.index[chosen],
            is_parity=self.is_parity[chosen],
            data_count=self.data_count[chosen],
            parity_count=self.parity_count[chosen],
        )


def read_segments(segment_format: SegmentFormat, contents: Packed) -> SegmentColumns:
    """Read the canonical segments among some contents."""
    # The hash is required and comes first, so most of what is no segment shows it in its first byte.
    begun = contents.starts < contents.ends
    begun &= contents.data[contents.starts] == _HASH_TAG[0]
    rows = rows_of(begun)
    read = _read_waku if segment_format is WAKU_SEGMENTS else _read_lip_243
    canonical, columns = read(rows, contents.only(rows))
    canonical &= columns.data_count + columns.parity_count <= MAX_SEGMENTS
    canonical &= columns.index < np.where(columns.is_parity, columns.parity_count, columns.data_count)
    return columns.only(canonical)


def _read_waku(rows: Rows, contents: Packed) -> tuple[Mask, SegmentColumns]:
    """SEGMENTATION, "Wire Format" and "Validation"."""
    cursor = FieldCursor(contents)
    payload_hash = cursor.length_delimited(_HASH_TAG)
    index = _uint32(cursor, _WAKU_TAGS["index"])
    data_count = _uint32(cursor, _WAKU_TAGS["segment_count"])
    cursor.length_delimited(_WAKU_TAGS["payload"])
    parity_index = _uint32(cursor, _WAKU_TAGS["parity_segment_index"])
    parity_count = _uint32(cursor, _WAKU_TAGS["parity_segments_count"])
    canonical = cursor.finish()
    canonical &= (payload_hash.lengths == HASH_BYTES) & (data_count != 1)
    is_parity = data_count == 0
    return canonical, SegmentColumns(
        rows=rows,
        hash_starts=payload_hash.starts,
        index=np.where(is_parity, parity_index, index),
        is_parity=is_parity,
        data_count=data_count,
        # What a data segment has there is ignored.
        parity_count=np.where(is_parity, parity_count, 0),
    )


def _read_lip_243(rows: Rows, contents: Packed) -> tuple[Mask, SegmentColumns]:
    """LIP-243, "Wire Format" and "Validity"."""
    cursor = FieldCursor(contents)
    payload_hash = cursor.length_delimited(_HASH_TAG)
    _uint32(cursor, _LIP_243_TAGS["original_payload_length"])
    index = cursor.varint(_LIP_243_TAGS["index"]).values
    data_count = _uint32(cursor, _LIP_243_TAGS["data_segment_count"])
    parity_count = _uint32(cursor, _LIP_243_TAGS["parity_segment_count"])
    is_parity = cursor.varint(_LIP_243_TAGS["is_parity"]).values
    cursor.length_delimited(_LIP_243_TAGS["payload"])
    canonical = cursor.finish()
    canonical &= (payload_hash.lengths == HASH_BYTES) & (data_count >= 1)
    return canonical, SegmentColumns(
        rows=rows,
        hash_starts=payload_hash.starts,
        index=index,
        is_parity=is_parity > 0,
        data_count=data_count,
        parity_count=parity_count,
    )


def _uint32(cursor: FieldCursor, tag: bytes) -> Numbers:
    """Read a number of 32 bits. A larger one is cut or refused by the codec, so it is not canonical."""
    values = cursor.varint(tag).values
    cursor.canonical &= values <= _UINT32_MAX
    return values


def surely_whole(segment_format: SegmentFormat, contents: Packed) -> Mask:
    """Return which contents are surely whole messages: with SEGMENTATION, most of those that are no protobuf.

    A walk over their fields, whatever these are, meets what no message of protobuf has: field 0, a wire type that does
    not exist, a field that goes beyond the end, the end of a group that did not begin, a group without an end.
    """
    whole = np.zeros(len(contents.starts), np.bool_)
    if segment_format is not WAKU_SEGMENTS:
        return whole
    walk = _Walk(contents)
    for _ in range(_STEPS):
        if len(walk.rows) < _FEW_CONTENTS:
            break
        whole[walk.step()] = True
    return whole


class _Walk:
    """A position in each content that may yet be a message of protobuf."""

    def __init__(self, contents: Packed) -> None:
        self._data = contents.data
        self.rows: Rows = rows_of(contents.starts < contents.ends)
        self._positions, self._ends = contents.starts[self.rows], contents.ends[self.rows]
        self._depths = np.zeros(len(self.rows), np.int64)
        """How many groups are open."""

    def step(self) -> Rows:
        """Move over one field of each content; return those that this shows to be no protobuf.

        Contents whose end is reached, and those with a longer varint than is looked at, leave the walk.
        """
        tags, positions, long_tags = varints(self._data, self._positions, _TAG_BYTES)
        kinds = tags & 7
        numbers = rows_of((kinds == _VARINT) | (kinds == _LENGTH_DELIMITED))
        values, behind, long_values = varints(self._data, positions[numbers], _VALUE_BYTES)
        stops = positions + _FIXED_BYTES[kinds]
        lengths = np.where(kinds[numbers] == _LENGTH_DELIMITED, np.minimum(values, _UINT32_MAX), 0)
        stops[numbers] = behind + lengths
        undecided = np.zeros(len(self.rows), np.bool_)
        undecided[long_tags] = undecided[numbers[long_values]] = True
        depths = self._depths + (kinds == _GROUP_START) - (kinds == _GROUP_END)
        broken = (tags < _FIRST_TAG) | (kinds >= _FIRST_UNUSED) | (depths < 0)
        broken |= (stops > self._ends) | ((stops == self._ends) & (depths > 0))
        broken &= ~undecided
        refuted: Rows = self.rows[broken]
        goes_on = ~broken & ~undecided & (stops < self._ends)
        self.rows, self._depths = self.rows[goes_on], depths[goes_on]
        self._positions, self._ends = stops[goes_on], self._ends[goes_on]
        return refuted
