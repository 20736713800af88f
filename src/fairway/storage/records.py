"""Rows, messages, requests and trace points as records of a database file: a body in MessagePack and its check value.

Fields of dataclasses are stored by name. A row of the state (`fairway.protocol.journal.Row`) is decoded equal to the
encoded one, nested tuples included.

SQLite detects pages that do not fit together, but not a flipped bit within a page. So the check value of a record is a
CRC-32 of its place in the store and its bytes.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args
from zlib import crc32

import msgspec

from fairway.errors import StorageError, StoreCorruptError
from fairway.events import Event, MessageReceived
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.storage.channel_store import Handling, OwnMessage, StoredRequest, TracePoint, without_payload

_Record = TypeVar("_Record")

_ENCODER: Final = msgspec.msgpack.Encoder()
_ROW_DECODER: Final = msgspec.msgpack.Decoder(tuple)
_EVENTS: Final = {kind.__name__: kind for kind in get_args(Event)}
_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (*get_args(Event), OwnMessage, Handling, StoredRequest)
}


def encode(value: object) -> bytes:
    """Return a tuple of plain values, or a dataclass of them, as MessagePack.

    Raises `StorageError` for values that MessagePack cannot hold: an integer outside -2^63..2^64-1, a lone surrogate.
    """
    try:
        return _ENCODER.encode(value)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"a value cannot be stored, {error}: {value!r:.200}") from error


def decode_row(body: bytes) -> Row:
    """Return the tuple that `encode` was given. Raises `StoreCorruptError` for other bytes."""
    try:
        row = _ROW_DECODER.decode(body)
        # MessagePack has one type of sequence: tuples within the row are decoded as lists.
        return tuple(map(_as_tuples, row)) if list in map(type, row) else row
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreCorruptError(f"a stored row cannot be read: {error}") from error


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def check_value(body: bytes, place: str) -> int:
    """Return the check value of a record with this body and `record_place`."""
    return crc32(body, crc32(place.encode()))


def verify(body: bytes, check: int, place: str) -> bytes:
    """Return the body of a record. Raises `StoreCorruptError` if the body or the place does not fit the check value."""
    if crc32(body, crc32(place.encode())) != check:
        raise StoreCorruptError(
            f"the stored record {place!r:.120} is damaged, its bytes do not fit its check value: "
            "put the file aside and restore a copy, or start with a new file"
        )
    return body


def sealed(place: str, value: object) -> tuple[bytes, int]:
    """Return a dataclass or a tuple as a record: its body and its check value.

    A place is ``table/key``; for the protocol's state it is ``channel/table/key``, and written beside the record.
    """
    body = encode(value)
    return body, check_value(body, place)


def read(kind: type[_Record], place: str, body: bytes, check: int) -> _Record:
    """Return the dataclass in a record. Raises `StoreCorruptError` if it is damaged or of another shape."""
    try:
        value: _Record = _DECODERS[kind].decode(verify(body, check, place))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreCorruptError(f"the stored record {place!r:.120} cannot be read: {error}") from error
    return value


def read_state(place: str, body: bytes, check: int) -> Change:
    """Return a row of the protocol's state; its place is ``channel/table/key``."""
    _, table, key = place.split("/", 2)
    return Change(table=table, key=key, row=decode_row(verify(body, check, place)))


def read_message(number: int, body: bytes, check: int) -> MessageReceived:
    """Return a received message from its columns of ``messages``."""
    return read(MessageReceived, f"messages/{number}", body, check)


def read_request(channel: int, request_id: str, body: bytes, check: int) -> StoredRequest:
    """Return a request from its columns of ``requests``."""
    return read(StoredRequest, f"requests/{channel}/{request_id}", body, check)


PointColumns = tuple[int, int, str, int | None, bytes, int]
"""A trace point as the columns of ``trace``: number, time, kind, size, body and check value."""


def point_columns(number: int, point: TracePoint) -> PointColumns:
    """Return a trace point as columns of ``trace``; its identifiers are in the event as plain UTF-8."""
    kept = without_payload(point)
    name = type(kept.event).__name__
    return number, kept.at_ms, name, kept.size_bytes, *sealed(f"trace/{number}", kept.event)


def read_point(number: int, at_ms: int, kind: str, size_bytes: int | None, body: bytes, check: int) -> TracePoint:
    """Return a trace point; raise `StoreCorruptError` if there is no such event."""
    if kind not in _EVENTS:
        raise StoreCorruptError(f"trace point {number} has the event {kind!r:.60}, which does not exist")
    event = read(_EVENTS[kind], f"trace/{number}", body, check)
    return TracePoint(at_ms=at_ms, event=event, size_bytes=size_bytes)
