"""The fields of a protobuf message, read without its schema: what stands where, before any decoder interprets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from fairway.errors import DecodeError

VARINT: Final = 0
FIXED_64: Final = 1
BYTES: Final = 2
FIXED_32: Final = 5
_FIXED_SIZES: Final = {FIXED_64: 8, FIXED_32: 4}


class ProtobufField(NamedTuple):
    """One field as it stands on the wire."""

    number: int
    wire_type: int
    content: bytes
    """What a length announced; empty for every other wire type."""


def fields_of(message: bytes) -> Iterator[ProtobufField]:
    """Yield the fields of a message in their order; raise `DecodeError` where it breaks off."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire_type, content = key & 7, b""
        if wire_type == VARINT:
            _, at = _varint(message, at)
        elif wire_type == BYTES:
            size, at = _varint(message, at)
            content = message[at : at + size]
            at += size
        else:
            at += _FIXED_SIZES.get(wire_type, 0)
        if at > len(message):
            raise DecodeError(f"field {key >> 3} breaks off")
        yield ProtobufField(key >> 3, wire_type, content)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, len(message)):
        value |= (message[position] & 0x7F) << shift
        if message[position] < 0x80:
            return value, position + 1
        shift += 7
    raise DecodeError("a number breaks off")
