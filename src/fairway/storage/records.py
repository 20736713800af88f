"""Messages, requests and trace points as records of a database file.

Fields are kept under their names and the types of the dataclasses say how to read them, so a record written before a
field was added gives that field its default, and one written after it was removed is read without it.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args

import msgspec

from fairway.errors import StoreCorruptError
from fairway.events import Event, MessageReceived
from fairway.storage.channel_store import StoredRequest, TracePoint
from fairway.storage.rows import encode, seal, unseal

_Record = TypeVar("_Record")

_MESSAGES: Final = msgspec.msgpack.Decoder(MessageReceived)
_REQUESTS: Final = msgspec.msgpack.Decoder(StoredRequest)
_EVENTS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in get_args(Event)
}


def _decode(decoder: msgspec.msgpack.Decoder[_Record], record: bytes, place: str) -> _Record:
    try:
        return decoder.decode(unseal(record, place))
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorruptError(f"the stored record {place!r:.120} cannot be read: {error}") from error


def message_record(number: int, message: MessageReceived) -> bytes:
    """Return a message of the inbox as it is stored."""
    return seal(encode(message), f"inbox/{number}")


def read_message(number: int, record: bytes) -> MessageReceived:
    """Return a stored message of the inbox."""
    return _decode(_MESSAGES, record, f"inbox/{number}")


def request_record(request: StoredRequest) -> bytes:
    """Return a request as it is stored."""
    return seal(encode(request), f"requests/{request.request_id}")


def read_request(request_id: str, record: bytes) -> StoredRequest:
    """Return a stored request."""
    return _decode(_REQUESTS, record, f"requests/{request_id}")


def point_record(number: int, point: TracePoint) -> bytes:
    """Return the event of a trace point as it is stored; its identifiers are in there as plain UTF-8."""
    return seal(encode(point.event), f"trace/{number}")


def read_point(number: int, at_ms: int, kind: str, size_bytes: int | None, record: bytes) -> TracePoint | None:
    """Return a stored trace point; None if its event is one that this version does not know."""
    decoder = _EVENTS.get(kind)
    if decoder is None:
        return None
    return TracePoint(at_ms=at_ms, event=_decode(decoder, record, f"trace/{number}"), size_bytes=size_bytes)
