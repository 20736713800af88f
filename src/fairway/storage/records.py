"""Rows, messages, requests and trace points as records of a database file: a body and its check value.

Fields of dataclasses are kept under their names and their types say how to read them, so a record written before a
field was added gives that field its default, and one written after it was removed is read without it.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args

import msgspec

from fairway.errors import StoreCorruptError
from fairway.events import Event, MessageReceived
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.storage.channel_store import Handling, Outcome, StoredRequest, TracePoint
from fairway.storage.rows import check_value, decode_row, encode, verify
from fairway.storage.trace_points import without_payload

_Record = TypeVar("_Record")

_MESSAGES: Final = msgspec.msgpack.Decoder(MessageReceived)
_HANDLING: Final = msgspec.msgpack.Decoder(Handling)
_REQUESTS: Final = msgspec.msgpack.Decoder(StoredRequest)
_EVENTS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in get_args(Event)
}


def _place(table: str, key: str | int) -> str:
    return f"{table}/{key}"


def _sealed(place: str, value: object) -> tuple[bytes, int]:
    body = encode(value)
    return body, check_value(body, place)


def _decode(decoder: msgspec.msgpack.Decoder[_Record], place: str, body: bytes, check: int) -> _Record:
    try:
        return decoder.decode(verify(body, check, place))
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorruptError(f"the stored record {place!r:.120} cannot be read: {error}") from error


def state_columns(table: str, key: str, row: Row) -> tuple[str, bytes, int]:
    """Return a row of the protocol's state as columns of ``state``."""
    place = _place(table, key)
    return place, *_sealed(place, row)


def state_place(table: str, key: str) -> str:
    """Return the key in ``state`` of a row of the protocol's state."""
    return _place(table, key)


def read_state(place: str, body: bytes, check: int) -> Change:
    """Return a row of the protocol's state."""
    table, _, key = place.partition("/")
    return Change(table=table, key=key, row=decode_row(verify(body, check, place)))


def message_columns(number: int, message: MessageReceived) -> tuple[int, bytes, int]:
    """Return a message as columns of ``inbox``."""
    return number, *_sealed(_place("inbox", number), message)


def read_message(number: int, body: bytes, check: int) -> MessageReceived:
    """Return a message of the inbox."""
    return _decode(_MESSAGES, _place("inbox", number), body, check)


def handling_columns(handling: Handling) -> tuple[int, bytes, int]:
    """Return attempts to handle a message as columns of ``handling``."""
    return handling.number, *_sealed(_place("handling", handling.number), handling)


def read_handling(number: int, body: bytes, check: int) -> Handling:
    """Return attempts to handle a message."""
    return _decode(_HANDLING, _place("handling", number), body, check)


def request_columns(request: StoredRequest) -> tuple[str, int | None, bytes, int]:
    """Return a request as columns of ``requests``."""
    ended_at_ms = request.accepted_at_ms if request.ended_at_ms is None else request.ended_at_ms
    return (
        request.request_id,
        None if request.outcome is Outcome.OPEN else ended_at_ms,
        *_sealed(_place("requests", request.request_id), request),
    )


def read_request(request_id: str, body: bytes, check: int) -> StoredRequest:
    """Return a request."""
    return _decode(_REQUESTS, _place("requests", request_id), body, check)


def point_columns(number: int, point: TracePoint) -> tuple[int, int, str, int | None, bytes, int]:
    """Return a trace point as columns of ``trace``; its identifiers are in the body as plain UTF-8."""
    kept = without_payload(point)
    kind = type(kept.event).__name__
    return number, kept.at_ms, kind, kept.size_bytes, *_sealed(_place("trace", number), kept.event)


def read_point(
    number: int, at_ms: int, kind: str, size_bytes: int | None, body: bytes, check: int
) -> TracePoint | None:
    """Return a trace point; None if its event is one that this version does not know."""
    decoder = _EVENTS.get(kind)
    if decoder is None:
        return None
    event = _decode(decoder, _place("trace", number), body, check)
    return TracePoint(at_ms=at_ms, event=event, size_bytes=size_bytes)
