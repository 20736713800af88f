"""Queries of a store: requests, messages of the inbox, and the trace of a message."""

from __future__ import annotations

import sqlite3
from typing import Final

from fairway.events import MessageReceived, OrderKey
from fairway.storage.channel_store import HistoryPage, OwnMessage, StoredRequest, TracePoint
from fairway.storage.records import read, read_message, read_point, read_request
from fairway.wire.file_message import FilePart, read_file_header

_AFTER_ALL: Final = OrderKey((1 << 63) - 1, "")
"""A key beyond those of all messages."""


def find_message(connection: sqlite3.Connection, number: int) -> MessageReceived | None:
    """Return a message of the inbox by its number."""
    found = connection.execute(
        "SELECT body, check_value FROM inbox JOIN messages USING (number) WHERE number = ?", (number,)
    ).fetchone()
    return None if found is None else read_message(number, *found)


_REQUESTS: Final = "SELECT request_id, body, check_value FROM requests WHERE instr(body, ?)"
_POINTS: Final = "SELECT number, at_ms, kind, size_bytes, body, check_value FROM trace WHERE instr(body, ?)"
_PAGE: Final = """
WITH page AS (
    SELECT lamport, sds_id, number FROM places WHERE (lamport, sds_id) < (?, ?)
    ORDER BY lamport DESC, sds_id DESC, number DESC LIMIT ?
)
SELECT
    (SELECT removed FROM channel) + (
        SELECT count(*) FROM places
        WHERE (lamport, sds_id, number) < (SELECT * FROM page ORDER BY lamport, sds_id, number LIMIT 1)
    ),
    lamport, sds_id, number, is_own, body, check_value
FROM page JOIN messages USING (number) ORDER BY lamport, sds_id, number
"""


def find_page(connection: sqlite3.Connection, before: OrderKey | None, limit: int) -> HistoryPage:
    """Return the last messages before a key, or at the end, in the channel's order."""
    rows = connection.execute(_PAGE, (*(before or _AFTER_ALL), limit)).fetchall()
    messages = tuple(
        (
            OrderKey(lamport, sds_id),
            read(OwnMessage, f"messages/{number}", body, check) if is_own else read_message(number, body, check),
        )
        for _, lamport, sds_id, number, is_own, body, check in rows
    )
    return HistoryPage(rows[0][0] if rows else 0, messages)


def find_request(connection: sqlite3.Connection, request_id: str) -> StoredRequest | None:
    """Return a request by its id."""
    found = connection.execute("SELECT body, check_value FROM requests WHERE request_id = ?", (request_id,)).fetchone()
    return None if found is None else read_request(request_id, *found)


def find_requests(connection: sqlite3.Connection, identifier: str) -> list[StoredRequest]:
    """Return the requests with a request id or message id, in the order in which they were accepted."""
    found = _requests_with(connection, identifier.encode())
    wanted = [request for request in found if identifier in {request.request_id, request.message_id}]
    return sorted(wanted, key=lambda request: request.accepted_at_ms)


def find_points(connection: sqlite3.Connection, identifier: str, before: int | None = None) -> list[TracePoint]:
    """Return the trace points about an identifier, oldest first, of those numbered below ``before``."""
    points = _points_with(connection, identifier.encode(), before)
    return [point for point in points if point.names(identifier)]


def find_parts(connection: sqlite3.Connection, manifest_id: bytes) -> tuple[list[StoredRequest], list[TracePoint]]:
    """Return the requests and the received messages that are parts of a file, by the id of its manifest."""
    return (
        [
            request
            for request in _requests_with(connection, manifest_id)
            if _is_part_of(request.file_header, manifest_id)
        ],
        [point for point in _points_with(connection, manifest_id) if _is_part_of(point.file_header, manifest_id)],
    )


def _is_part_of(header: bytes, manifest_id: bytes) -> bool:
    message = read_file_header(header)
    return isinstance(message, FilePart) and message.manifest_id == manifest_id


def find_message_ids(connection: sqlite3.Connection, prefix: str) -> set[str]:
    """Return the message ids that begin with a prefix, of requests and of trace points."""
    ids = {getattr(point.event, "message_id", "") for point in _points_with(connection, prefix.encode())}
    ids |= {request.message_id for request in _requests_with(connection, prefix.encode())}
    return {message_id for message_id in ids if message_id.startswith(prefix)}


def _requests_with(connection: sqlite3.Connection, part: bytes) -> list[StoredRequest]:
    """Return the requests whose records contain some bytes."""
    return [read_request(*row) for row in connection.execute(_REQUESTS, (part,))]


def _points_with(connection: sqlite3.Connection, part: bytes, before: int | None = None) -> list[TracePoint]:
    """Return the trace points whose records contain some bytes, oldest first; only these are decoded."""
    limit = "" if before is None else f"AND number < {before}"
    return [read_point(*row) for row in connection.execute(f"{_POINTS} {limit} ORDER BY number", (part,))]
