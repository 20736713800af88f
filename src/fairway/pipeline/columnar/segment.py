"""`read_segments`: the headers of many segments, in either format.

A canonical segment obeys every rule of `SegmentFormat.decode`. Of the other contents, `surely_whole` finds most whole
messages, as defined by `SegmentFormat.is_segment`; the caller passes the rest to the format itself.
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
"""The tag of the hash, the same in both formats."""
_UINT32_MAX: Final = 2**32 - 1

_FIXED_BYTES: Final = np.array([0, 8, 0, 0, 0, 4, 0, 0])
"""Bytes after the tag of a field, by wire type; 0 for types of variable length."""
_VARINT, _LENGTH_DELIMITED, _GROUP_START, _GROUP_END, _FIRST_UNUSED = 0, 2, 3, 4, 6
"""Wire types of protobuf; types from 6 on do not exist."""
_FIRST_TAG: Final = 1 << 3
"""The smallest tag, of field 1."""
_STEPS: Final = 16
"""Largest number of fields that are checked; text and random bytes fail at the second on average."""
_FEW_CONTENTS: Final = 32
"""Fewest contents for a NumPy step."""
_TAG_BYTES, _VALUE_BYTES = 5, 9
"""Bytes of the longest tag and of the longest varint that are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentColumns:
    """The headers of segments."""

    rows: Rows
    """The rows of the contents that are segments."""
    hash_starts: Numbers
    """The positions of the payload hashes, each of `HASH_BYTES`."""
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
    # The hash is required and first, so the first byte excludes most contents that are not segments.
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
        # The parity count of a data segment is ignored.
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
    """Read a 32-bit number. The codec truncates or rejects a larger one, so it is not canonical."""
    values = cursor.varint(tag).values
    cursor.canonical &= values <= _UINT32_MAX
    return values


def surely_whole(segment_format: SegmentFormat, contents: Packed) -> Mask:
    """Return the mask of contents that are surely whole messages: with SEGMENTATION, most contents without protobuf.

    A walk over the fields of a content finds violations of protobuf: field 0, an unused wire type, a field beyond the
    end, an end of a group without a start, or a group without an end.
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
    """A position in each content that may still be a protobuf message."""

    def __init__(self, contents: Packed) -> None:
        self._data = contents.data
        self.rows: Rows = rows_of(contents.starts < contents.ends)
        self._positions, self._ends = contents.starts[self.rows], contents.ends[self.rows]
        self._depths = np.zeros(len(self.rows), np.int64)
        """Number of open groups of each content."""

    def step(self) -> Rows:
        """Skip one field of each content; return the rows whose field violates protobuf.

        Contents at their end, and contents with a longer varint than is checked, are removed from the walk.
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
