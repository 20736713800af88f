"""Decodes unsigned varints of multiformats and protobuf messages of peers; all faults are `FrameError`.

Invariant: a number that is too large is refused at the first byte that shows it. Forms that are not the shortest, or
that have more than nine bytes, are refused as well (see `fairway.wire.varint`).
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from fairway.errors import DecodeError
from fairway.libp2p.errors import FrameError, FrameTooLongError
from fairway.wire.protobuf import parse
from fairway.wire.varint import MAX_UVARINT, MAX_UVARINT_BYTES


def decode_uvarint(
    data: bytes | bytearray | memoryview, offset: int = 0, *, max_value: int = MAX_UVARINT
) -> tuple[int, int] | None:
    """Return the value that begins at ``offset`` and the offset behind it; None when more bytes are needed.

    Raises `FrameTooLongError` for a value above ``max_value``, `FrameError` for more than nine bytes and for a form
    that is not the shortest.
    """
    value = shift = 0
    for position in range(offset, min(len(data), offset + MAX_UVARINT_BYTES)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if value > max_value:
            raise FrameTooLongError(f"a number of {value} or more, at most {max_value} is read")
        if byte < 0x80:
            if byte == 0 and shift:
                raise FrameError("a varint that is not in its shortest form")
            return value, position + 1
        shift += 7
    if shift == 7 * MAX_UVARINT_BYTES:
        raise FrameError(f"a varint of more than {MAX_UVARINT_BYTES} bytes")
    return None


_Schema = TypeVar("_Schema", bound=Message)


def parse_message(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as a ``schema``; raise `FrameError` if it is longer than ``max_bytes`` or invalid."""
    try:
        return parse(schema, data, max_bytes=max_bytes)
    except DecodeError as error:
        raise FrameError(str(error)) from error
