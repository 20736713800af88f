"""RLP, Ethereum's encoding of nested lists of byte strings, as used in node records (EIP-778).

Each value has exactly one encoding; the decoder rejects any other, because a signature covers the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, Union

from fairway.errors import DecodeError

RlpItem: TypeAlias = Union[bytes, tuple["RlpItem", ...]]  # noqa: UP007 - a name in a string is no type at run time
"""A byte string, or a list of items."""

MAX_DEPTH: Final = 16
"""Deepest nesting of lists that is read."""

_STRING: Final = 0x80
_LIST: Final = 0xC0
_SHORT: Final = 55
"""Longest content whose length is a part of the first byte."""


def encode_rlp(item: bytes | Sequence[RlpItem]) -> bytes:
    """Return the encoding of a byte string, or of a list of items."""
    if isinstance(item, bytes):
        if len(item) == 1 and item[0] < _STRING:
            return item
        return _head(_STRING, len(item)) + item
    content = b"".join(map(encode_rlp, item))
    return _head(_LIST, len(content)) + content


def encode_rlp_number(number: int) -> bytes:
    """Return the byte string of a number: big-endian without leading zeros, empty for 0."""
    return number.to_bytes((number.bit_length() + 7) // 8)


def decode_rlp(data: bytes) -> RlpItem:
    """Return the one item that ``data`` encodes, or raise `DecodeError`."""
    item, end = _read(data, 0, len(data), 0)
    if end != len(data):
        raise DecodeError(f"RLP: {len(data) - end} bytes after the end of the item")
    return item


def decode_rlp_number(item: RlpItem, max_bytes: int = 8) -> int:
    """Return the number in a byte string, or raise `DecodeError`."""
    if not isinstance(item, bytes) or len(item) > max_bytes or item[:1] == b"\0":
        raise DecodeError(f"RLP: no number of at most {max_bytes} bytes without leading zeros")
    return int.from_bytes(item)


def _head(kind: int, length: int) -> bytes:
    if length <= _SHORT:
        return bytes([kind + length])
    size = encode_rlp_number(length)
    return bytes([kind + _SHORT + len(size)]) + size


def _read(data: bytes, at: int, limit: int, depth: int) -> tuple[RlpItem, int]:
    """Return the item at an offset, and the offset after it; bytes from ``limit`` on are not read."""
    if at >= limit:
        raise DecodeError("RLP: the data ends where an item is expected")
    first = data[at]
    if first < _STRING:
        return data[at : at + 1], at + 1
    kind = _LIST if first >= _LIST else _STRING
    start, end = _content(data, at, limit, kind)
    if kind == _STRING:
        item = data[start:end]
        if len(item) == 1 and item[0] < _STRING:
            raise DecodeError("RLP: a single byte below 128 stands for itself")
        return item, end
    if depth >= MAX_DEPTH:
        raise DecodeError(f"RLP: lists are nested more than {MAX_DEPTH} deep")
    items = []
    while start < end:
        inner, start = _read(data, start, end, depth + 1)
        items.append(inner)
    return tuple(items), end


def _content(data: bytes, at: int, limit: int, kind: int) -> tuple[int, int]:
    """Return the start and end of the content of a string or list."""
    length, start = data[at] - kind, at + 1
    if length > _SHORT:
        size = data[start : start + length - _SHORT]
        start += length - _SHORT
        if start > limit or size[:1] == b"\0":
            raise DecodeError("RLP: a length that is cut off, or begins with a zero")
        length = int.from_bytes(size)
        if length <= _SHORT:
            raise DecodeError(f"RLP: a length of {length} has a shorter form")
    if start + length > limit:
        raise DecodeError(f"RLP: {length} bytes are announced, {max(0, limit - start)} are there")
    return start, start + length
