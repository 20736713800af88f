"""The encoding of values in a database file: MessagePack, with a CRC-32.

A row of the protocol's state (`fairway.protocol.journal.Row`) is decoded equal to what was encoded, nested tuples
included. SQLite detects pages that do not fit together, but no flipped bit within a page; so each record has a CRC-32
of its place in the store and its bytes.
"""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import msgspec

from fairway.errors import StorageError, StoreCorruptError
from fairway.protocol.journal import Row

_ENCODER: Final = msgspec.msgpack.Encoder()
_ROW_DECODER: Final = msgspec.msgpack.Decoder(tuple)


def encode(value: object) -> bytes:
    """Return a tuple of plain values, or a dataclass of them, as MessagePack.

    Raises `StorageError` for what MessagePack cannot hold: an integer outside -2^63..2^64-1, a lone surrogate.
    """
    try:
        return _ENCODER.encode(value)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"a value cannot be stored, {error}: {value!r:.200}") from error


def decode_row(body: bytes) -> Row:
    """Return the tuple that `encode` was given. Raises `StoreCorruptError` for other bytes."""
    try:
        row = _ROW_DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreCorruptError(f"a stored row cannot be read: {error}") from error
    # MessagePack knows one kind of sequence; below the top they come back as lists.
    return tuple(map(_as_tuples, row)) if list in map(type, row) else row


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def check_value(body: bytes, place: str) -> int:
    """Return the check value of a record; ``place`` says where in the store it belongs."""
    return crc32(body, crc32(place.encode()))


def verify(body: bytes, check: int, place: str) -> bytes:
    """Return the body of a record. Raises `StoreCorruptError` if it is damaged or is in another's place."""
    if crc32(body, crc32(place.encode())) != check:
        raise StoreCorruptError(
            f"the stored record {place!r:.120} is damaged, its bytes do not fit its check value: "
            "put the file aside and restore a copy, or start with a new file"
        )
    return body
