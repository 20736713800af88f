"""Queries of a store: requests, messages of the inbox and of the channel, and the trace of a message.

A query for many rows takes the tail of the journal, whose rows replace those of the tables.
"""

from __future__ import annotations

import sqlite3
from itertools import chain
from typing import Final

from fairway.events import MessageReceived, OrderKey
from fairway.storage.channel_store import HistoryPage, OwnMessage, StoredRequest, TracePoint
from fairway.storage.journal_tail import Tail
from fairway.storage.records import read, read_message, read_point, read_request
from fairway.storage.schema import rows_of
from fairway.wire.file_message import FilePart, read_file_header

_Place = tuple[int, str, int]
"""Lamport timestamp, SDS id and number of a message."""
_AFTER_ALL: Final = OrderKey((1 << 63) - 1, "")
"""A key beyond those of all messages."""


def find_message(connection: sqlite3.Connection, channel: int, number: int) -> MessageReceived | None:
    """Return a message of the inbox by its number."""
    found = connection.execute(
        "SELECT body, check_value FROM inbox JOIN messages USING (number) WHERE channel = ? AND number = ?",
        (channel, number),
    ).fetchone()
    return None if found is None else read_message(number, *found)


_REQUESTS: Final = "SELECT request_id, body, check_value FROM requests WHERE channel = ? AND instr(body, ?)"
_POINTS: Final = """
SELECT number, at_ms, kind, size_bytes, body, check_value FROM trace
WHERE number BETWEEN ? AND ? AND instr(body, ?) ORDER BY number
"""
_LAST_PLACES: Final = """
SELECT lamport, sds_id, number FROM places WHERE channel = ? AND (lamport, sds_id) < (?, ?)
ORDER BY lamport DESC, sds_id DESC, number DESC LIMIT ?
"""
_POSITION: Final = """
SELECT (SELECT removed FROM channels WHERE number = ?)
    + (SELECT count(*) FROM places WHERE channel = ? AND (lamport, sds_id, number) < (?, ?, ?))
"""
_HAS_PLACE: Final = "SELECT count(*) FROM places WHERE (channel, lamport, sds_id, number) = (?, ?, ?, ?)"
_MESSAGE: Final = "SELECT is_own, body, check_value FROM messages WHERE number = ?"


def find_page(
    connection: sqlite3.Connection, channel: int, tail: Tail, before: OrderKey | None, limit: int
) -> HistoryPage:
    """Return the last messages before a key, or at the end, in the channel's order."""
    end = before or _AFTER_ALL
    gone, new = _moved(connection, channel, tail)
    stored = connection.execute(_LAST_PLACES, (channel, *end, limit + len(gone)))
    places = [place for place in stored if place not in gone] + [place for place in new if place[:2] < end]
    page = sorted(places)[max(0, len(places) - limit) :]
    if not page:
        return HistoryPage(0, ())
    (position,) = connection.execute(_POSITION, (channel, channel, *page[0])).fetchone()
    position += sum(place < page[0] for place in new) - sum(place < page[0] for place in gone)
    return HistoryPage(
        position,
        tuple((OrderKey(lamport, sds_id), _content(connection, tail, number)) for lamport, sds_id, number in page),
    )


def _moved(connection: sqlite3.Connection, channel: int, tail: Tail) -> tuple[set[_Place], list[_Place]]:
    """Return the places in the table that are not valid any more, and the new ones."""
    gone: set[_Place] = set()
    new: list[_Place] = []
    for each in tail.placed.values():
        is_stored = False
        if each.earlier is not None:
            earlier = (*each.earlier, each.number)
            is_stored = connection.execute(_HAS_PLACE, (channel, *earlier)).fetchone() == (1,)
            if is_stored:
                gone.add(earlier)
        if is_stored or each.earlier is None or each.number in tail.messages:
            new.append((*each.order_key, each.number))
    return gone, new


def _content(connection: sqlite3.Connection, tail: Tail, number: int) -> MessageReceived | OwnMessage:
    recent = tail.messages.get(number)
    if recent is not None:
        return recent
    is_own, body, check = connection.execute(_MESSAGE, (number,)).fetchone()
    return read(OwnMessage, f"messages/{number}", body, check) if is_own else read_message(number, body, check)


def find_request(connection: sqlite3.Connection, channel: int, request_id: str) -> StoredRequest | None:
    """Return a request by its id."""
    found = connection.execute(
        "SELECT body, check_value FROM requests WHERE channel = ? AND request_id = ?", (channel, request_id)
    ).fetchone()
    return None if found is None else read_request(channel, request_id, *found)


def find_requests(connection: sqlite3.Connection, channel: int, tail: Tail, identifier: str) -> list[StoredRequest]:
    """Return the requests with a request id or message id, in the order in which they were accepted."""
    found = _requests_with(connection, channel, tail, identifier.encode())
    wanted = [request for request in found if identifier in {request.request_id, request.message_id}]
    return sorted(wanted, key=lambda request: request.accepted_at_ms)


def find_points(connection: sqlite3.Connection, channel: int, tail: Tail, identifier: str) -> list[TracePoint]:
    """Return the trace points about an identifier, oldest first."""
    points = _points_with(connection, channel, tail, identifier.encode())
    return [point for point in points if point.names(identifier)]


def find_parts(
    connection: sqlite3.Connection, channel: int, tail: Tail, manifest_id: bytes
) -> tuple[list[StoredRequest], list[TracePoint]]:
    """Return the requests and the received messages that are parts of a file, by the id of its manifest."""
    requests = _requests_with(connection, channel, tail, manifest_id)
    points = _points_with(connection, channel, tail, manifest_id)
    return (
        [request for request in requests if _is_part_of(request.file_header, manifest_id)],
        [point for point in points if _is_part_of(point.file_header, manifest_id)],
    )


def _is_part_of(header: bytes, manifest_id: bytes) -> bool:
    message = read_file_header(header)
    return isinstance(message, FilePart) and message.manifest_id == manifest_id


def find_message_ids(connection: sqlite3.Connection, channel: int, tail: Tail, prefix: str) -> set[str]:
    """Return the message ids that begin with a prefix, of requests and of trace points."""
    points = _points_with(connection, channel, tail, prefix.encode())
    ids = {getattr(point.event, "message_id", "") for point in points}
    ids |= {request.message_id for request in _requests_with(connection, channel, tail, prefix.encode())}
    return {message_id for message_id in ids if message_id.startswith(prefix)}


def _requests_with(connection: sqlite3.Connection, channel: int, tail: Tail, part: bytes) -> list[StoredRequest]:
    """Return the requests in the table whose records contain some bytes, and all in the journal."""
    rows = [row for row in connection.execute(_REQUESTS, (channel, part)) if row[0] not in tail.requests]
    return [*(read_request(channel, *row) for row in rows), *tail.requests.values()]


def _points_with(connection: sqlite3.Connection, channel: int, tail: Tail, part: bytes) -> list[TracePoint]:
    """Return the trace points whose records contain some bytes, oldest first; only these are decoded."""
    stored = connection.execute(_POINTS, (*rows_of(channel), part))
    recent = (point for point in tail.points if part in point[4])
    return [read_point(*columns) for columns in chain(stored, recent)]
