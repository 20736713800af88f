"""`FieldCursor`: reads the protobuf fields of many messages, one field of all messages in each step.

It implements the encoding of protobuf without a schema. Its caller reads fields in the order in which encoders write
them. A message with any other field is not canonical, and its results must not be used.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fairway.wire.varint import encode_uvarint

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
"""Positions of messages in their batch."""

SPARE_BYTES: Final = 16
"""Readable bytes after the last message: enough for a tag and a varint, which then need no check of bounds."""

_VARINT: Final = 0
_LENGTH_DELIMITED: Final = 2
_VARINT_TYPES: Final = {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_BOOL}

_CONTINUED: Final = 0x80
"""The bit of a varint's byte that announces another byte."""
_VALUE_BITS: Final = 0x7F
"""The bits of a varint's byte that belong to the number."""
_NUMBER_BYTES: Final = 9
"""Bytes of the longest number: 63 bits, which fit an int64."""
_LENGTH_BYTES: Final = 3
"""Bytes of the longest length: up to 2 MiB, more than the size of a message."""
_FEW_MESSAGES: Final = 8
"""Fewest messages for a further step in a repeated field; fewer are marked as not canonical, because a NumPy step
costs more than their scalar decoding."""
_SHORT_LIST: Final = 16
"""Number of elements that are read for any number of messages."""
_FREE_ELEMENTS: Final = 65_536
_ELEMENT_BYTES: Final = 32
"""Bound of a repeated field's elements in a batch: `_FREE_ELEMENTS`, plus one for each `_ELEMENT_BYTES` of the batch.
An element takes some 200 bytes in columns, but an empty one only 2 in a message. So memory is bounded by the batch."""


class Packed(NamedTuple):
    """Messages in one buffer, with `SPARE_BYTES` after the last one."""

    data: Bytes
    starts: Numbers
    ends: Numbers

    def only(self, rows: Rows) -> Packed:
        """Return some of the messages."""
        return Packed(self.data, self.starts[rows], self.ends[rows])


class NumberColumn(NamedTuple):
    """A number of each message; 0 if the field is missing."""

    values: Numbers
    present: Mask


class BytesColumn(NamedTuple):
    """The position of a field in each message; length 0 if the field is missing."""

    starts: Numbers
    lengths: Numbers
    present: Mask


class RepeatedColumn(NamedTuple):
    """The positions of a repeated field's elements, message by message, in their order."""

    owners: Rows
    """The message of each element."""
    starts: Numbers
    lengths: Numbers


def rows_of(mask: Mask) -> Rows:
    """Return the rows of a mask, like `numpy.flatnonzero` but with less overhead."""
    return mask.nonzero()[0]


def tags_of(schema: type[Message]) -> dict[str, bytes]:
    """Return the tag of each field by its name, in ascending order of the fields' numbers."""
    numbers = {field.number: (field.name, _wire_type(field.type)) for field in schema.DESCRIPTOR.fields}
    return {name: encode_uvarint(number << 3 | wire_type) for number, (name, wire_type) in sorted(numbers.items())}


def _wire_type(kind: int) -> int:
    return _VARINT if kind in _VARINT_TYPES else _LENGTH_DELIMITED


class FieldCursor:
    """A position in each of many messages, which advances field by field."""

    def __init__(self, messages: Packed) -> None:
        self._data, starts, self._ends = messages
        self._positions = starts.copy()
        self._every = np.arange(len(starts))
        self.canonical: Mask = np.ones(len(starts), np.bool_)
        """The messages that are canonical up to their positions; final after `finish`."""

    def finish(self) -> Mask:
        """Return the mask of canonical messages: those that have only the fields that were read."""
        self.canonical &= self._positions == self._ends
        return self.canonical

    def varint(self, tag: bytes) -> NumberColumn:
        """Read an optional varint."""
        present = self._at_tag(tag)
        rows = self._selection(present)
        values, behind = self._varints(self._positions[rows] + len(tag), self._every[rows], _NUMBER_BYTES)
        self._positions[rows] = behind
        if isinstance(rows, slice):
            return NumberColumn(values, present)
        column = np.zeros(len(present), np.int64)
        column[rows] = values
        return NumberColumn(column, present)

    def length_delimited(self, tag: bytes) -> BytesColumn:
        """Read optional bytes, a text, or a message within the message."""
        present = self._at_tag(tag)
        rows = self._selection(present)
        lengths = np.zeros(len(present), np.int64)
        starts = self._positions.copy()
        lengths[rows], starts[rows] = self._varints(starts[rows] + len(tag), self._every[rows], _LENGTH_BYTES)
        stops = starts + lengths
        beyond = stops > self._ends
        if beyond.any():
            self.canonical &= ~beyond
            lengths[beyond] = 0
            starts[beyond] = stops[beyond] = self._ends[beyond]
        self._positions = stops
        return BytesColumn(starts, lengths, present)

    def repeated(self, tag: bytes, most: int) -> RepeatedColumn:
        """Read repeated bytes; a canonical message has at most ``most`` of them.

        Step n reads element n of all messages with at least n elements, so the steps are bounded by the longest list.
        """
        room = _FREE_ELEMENTS + len(self._data) // _ELEMENT_BYTES
        rows = rows_of(self._at_tag(tag))
        positions = self._positions[rows]
        steps: list[RepeatedColumn] = []
        while rows.size:
            lengths, starts = self._varints(positions + len(tag), rows, _LENGTH_BYTES)
            stops = starts + lengths
            within = stops <= self._ends[rows]
            if not within.all():
                self._give_up(rows[~within])
                rows, starts, lengths, stops = (column[within] for column in (rows, starts, lengths, stops))
            steps.append(RepeatedColumn(rows, starts, lengths))
            room -= len(rows)
            goes_on = self._has_tag(tag, stops, self._ends[rows])
            if not goes_on.all():
                self._positions[rows] = stops
                rows, stops = rows[goes_on], stops[goes_on]
            if len(steps) >= most or room < 0 or (len(steps) >= _SHORT_LIST and rows.size < _FEW_MESSAGES):
                self._give_up(rows)
                break
            positions = stops
        return _by_message(steps, len(self._positions))

    def _give_up(self, rows: Rows) -> None:
        self.canonical[rows] = False
        self._positions[rows] = self._ends[rows]

    def _at_tag(self, tag: bytes) -> Mask:
        return self._has_tag(tag, self._positions, self._ends)

    def _has_tag(self, tag: bytes, positions: Numbers, ends: Numbers) -> Mask:
        present: Mask = positions < ends
        for offset, byte in enumerate(tag):
            present &= self._data[positions + offset if offset else positions] == byte
        return present

    @staticmethod
    def _selection(present: Mask) -> Rows | slice:
        """Return the rows of a mask, or the slice of all rows, which NumPy reads several times faster."""
        return slice(None) if present.all() else rows_of(present)

    def _varints(self, positions: Numbers, rows: Rows, longest: int) -> tuple[Numbers, Numbers]:
        """Return varints of these messages, and the positions after them; longer ones are not canonical."""
        values, behind, too_long = varints(self._data, positions, longest)
        self.canonical[rows[too_long]] = False
        return values, behind


def varints(data: Bytes, positions: Numbers, longest: int) -> tuple[Numbers, Numbers, Rows]:
    """Return the varints at some positions, the positions after them, and the rows of varints that are too long.

    The value of a varint with more than ``longest`` bytes is 0.
    """
    first = data[positions]
    values, behind = first.astype(np.int64), positions + 1
    longer = rows_of(first >= _CONTINUED)
    values[longer] &= _VALUE_BITS
    for step in range(1, longest):
        if not longer.size:
            break
        following = data[positions[longer] + step].astype(np.int64)
        values[longer] |= (following & _VALUE_BITS) << (7 * step)
        behind[longer] += 1
        longer = longer[following >= _CONTINUED]
    values[longer] = 0
    return values, behind, longer


def _by_message(steps: list[RepeatedColumn], messages: int) -> RepeatedColumn:
    """Return the elements of all steps, sorted by message."""
    counts = np.zeros(messages, np.int64)
    for step in steps:
        counts[step.owners] += 1
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    starts, lengths = np.empty(total, np.int64), np.empty(total, np.int64)
    for number, step in enumerate(steps):
        places = first[step.owners] + number
        starts[places], lengths[places] = step.starts, step.lengths
    return RepeatedColumn(np.repeat(np.arange(messages), counts), starts, lengths)
