"""Protobuf as a sequence of fields, without a schema: the common ground of inputs, mutations and seeds.

Invariant: ``write_fields(fields) + tail`` of what `read_fields` returned means the same as the bytes that were read;
every well-formed field is taken apart, and the first byte that begins none of them begins the tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

VARINT: Final = 0
FIXED_64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED_32: Final = 5

_FIXED_SIZES: Final = {FIXED_64: 8, FIXED_32: 4}
_UINT64: Final = (1 << 64) - 1
_MAX_VARINT_BYTES: Final = 10


class Field(NamedTuple):
    """One field as it stands on the wire."""

    number: int
    wire_type: int
    value: int | bytes
    """An int for a varint, the bytes for everything else."""


def read_fields(data: bytes) -> tuple[list[Field], bytes]:
    """Return the fields that data begins with, and what is left when no further field can be read."""
    fields: list[Field] = []
    position = 0
    while position < len(data):
        found = _read_field(data, position)
        if found is None:
            break
        field, position = found
        fields.append(field)
    return fields, data[position:]


def write_fields(fields: Iterable[Field]) -> bytes:
    """Return the bytes of fields, in their order."""
    return b"".join(map(_write_field, fields))


def varint_field(number: int, value: int) -> Field:
    """Return a field that holds a number."""
    return Field(number, VARINT, value & _UINT64)


def bytes_field(number: int, value: bytes) -> Field:
    """Return a field that holds bytes."""
    return Field(number, LENGTH_DELIMITED, value)


def number_in(fields: Iterable[Field], number: int) -> int:
    """Return the last number in a field, 0 if there is none, as protobuf does."""
    return next((f.value for f in reversed(list(fields)) if f.number == number and isinstance(f.value, int)), 0)


def bytes_in(fields: Iterable[Field], number: int) -> bytes:
    """Return the last bytes in a field, none if there are none, as protobuf does."""
    return next((f.value for f in reversed(list(fields)) if f.number == number and isinstance(f.value, bytes)), b"")


def write_varint(value: int) -> bytes:
    """Return a number as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_field(data: bytes, position: int) -> tuple[Field, int] | None:
    tag = _read_varint(data, position)
    if tag is None:
        return None
    key, position = tag
    number, wire_type = key >> 3, key & 7
    if not number:
        return None
    if wire_type == VARINT:
        value = _read_varint(data, position)
        return None if value is None else (Field(number, VARINT, value[0]), value[1])
    size = _FIXED_SIZES.get(wire_type)
    if wire_type == LENGTH_DELIMITED:
        length = _read_varint(data, position)
        if length is None:
            return None
        size, position = length
    if size is None or position + size > len(data):
        return None
    return Field(number, wire_type, data[position : position + size]), position + size


def _read_varint(data: bytes, position: int) -> tuple[int, int] | None:
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _UINT64, position + index + 1
    return None


def _write_field(field: Field) -> bytes:
    tag = write_varint(field.number << 3 | field.wire_type)
    if isinstance(field.value, int):
        return tag + write_varint(field.value)
    if field.wire_type == LENGTH_DELIMITED:
        return tag + write_varint(len(field.value)) + field.value
    return tag + field.value
