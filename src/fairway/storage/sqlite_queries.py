"""Queries of a store: requests, messages of the inbox, and the trace of a message."""

from __future__ import annotations

import sqlite3
from typing import Final

from fairway.events import MessageReceived, OrderKey
from fairway.storage.channel_store import HistoryPage, StoredRequest, TracePoint
from fairway.storage.records import read_message, read_own_message, read_point, read_request

_AFTER_ALL: Final = OrderKey((1 << 63) - 1, "")
"""A key beyond those of all messages."""


def find_message(connection: sqlite3.Connection, number: int) -> MessageReceived | None:
    """Return a message of the inbox by its number."""
    found = connection.execute(
        "SELECT body, check_value FROM inbox JOIN messages USING (number) WHERE number = ?", (number,)
    ).fetchone()
    return None if found is None else read_message(number, *found)


_PAGE: Final = """
WITH page AS (
    SELECT lamport, sds_id, number FROM places WHERE (lamport, sds_id) < (?, ?)
    ORDER BY lamport DESC, sds_id DESC, number DESC LIMIT ?
)
SELECT
    (SELECT forgotten FROM channel) + (
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
        (OrderKey(lamport, sds_id), (read_own_message if is_own else read_message)(number, body, check))
        for _, lamport, sds_id, number, is_own, body, check in rows
    )
    return HistoryPage(rows[0][0] if rows else 0, messages)


def find_request(connection: sqlite3.Connection, request_id: str) -> StoredRequest | None:
    """Return a request by its id."""
    found = connection.execute("SELECT body, check_value FROM requests WHERE request_id = ?", (request_id,)).fetchone()
    return None if found is None else read_request(request_id, *found)


def find_requests(connection: sqlite3.Connection, identifier: str) -> list[StoredRequest]:
    """Return the requests with a request id or message id, in the order in which they were accepted."""
    found = connection.execute(
        "SELECT request_id, body, check_value FROM requests WHERE instr(body, ?)", (identifier.encode(),)
    )
    requests = [read_request(*row) for row in found]
    wanted = [request for request in requests if identifier in {request.request_id, request.message_id}]
    return sorted(wanted, key=lambda request: request.accepted_at_ms)


def find_points(connection: sqlite3.Connection, identifier: str, before: int | None = None) -> list[TracePoint]:
    """Return the trace points about an identifier, oldest first, of those numbered below ``before``.

    SQLite searches the bodies of all points for the bytes of the identifier; only these points are decoded.
    """
    found = connection.execute(
        "SELECT number, at_ms, kind, size_bytes, body, check_value FROM trace "
        "WHERE number < coalesce(?, number + 1) AND instr(body, ?) ORDER BY number",
        (before, identifier.encode()),
    )
    points = (read_point(*row) for row in found)
    return [point for point in points if point.names(identifier)]


def find_message_ids(connection: sqlite3.Connection, prefix: str) -> set[str]:
    """Return the message ids that begin with a prefix, of requests and of trace points."""
    found = connection.execute(
        "SELECT number, at_ms, kind, size_bytes, body, check_value FROM trace WHERE instr(body, ?)", (prefix.encode(),)
    )
    points = (read_point(*row) for row in found)
    ids = {getattr(point.event, "message_id", "") for point in points}
    requests = connection.execute(
        "SELECT request_id, body, check_value FROM requests WHERE instr(body, ?)", (prefix.encode(),)
    )
    ids |= {read_request(*row).message_id for row in requests}
    return {message_id for message_id in ids if message_id.startswith(prefix)}
