"""What is looked up in a store: a request by its id, and the trace of a message."""

from __future__ import annotations

import sqlite3

from fairway.storage.channel_store import StoredRequest, TracePoint
from fairway.storage.records import read_point, read_request
from fairway.storage.trace_points import about


def find_request(connection: sqlite3.Connection, request_id: str) -> StoredRequest | None:
    """Return a request by its id."""
    found = connection.execute("SELECT body, check_value FROM requests WHERE request_id = ?", (request_id,)).fetchone()
    return None if found is None else read_request(request_id, *found)


def find_points(connection: sqlite3.Connection, identifier: str, before: int | None = None) -> list[TracePoint]:
    """Return the trace points about an identifier, oldest first, of those numbered below ``before``.

    Searches every point for the identifier's bytes, then looks at the fields of those few that have them.
    """
    found = connection.execute(
        "SELECT number, at_ms, kind, size_bytes, body, check_value FROM trace "
        "WHERE number < coalesce(?, number + 1) AND instr(body, ?) ORDER BY number",
        (before, identifier.encode()),
    )
    points = (read_point(*row) for row in found)
    return about(identifier, (point for point in points if point is not None))
