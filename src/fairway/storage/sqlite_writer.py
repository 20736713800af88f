"""Makes writes durable in an SQLite database: all that are given at once in one transaction, with one fsync.

What several of them do to the same row is folded first, so a row is encoded and written once per transaction however
often it changed, and a message that was delivered and finished meanwhile is never written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from fairway.events import MessageReceived
from fairway.protocol.journal import Row
from fairway.storage.channel_store import Outcome, StoredRequest, TracePoint
from fairway.storage.group_commit import Entry
from fairway.storage.records import message_record, point_record, request_record
from fairway.storage.rows import encode, seal
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.trace_points import without_payload

TRIM_AFTER: Final = 1_000
"""Old requests and trace points are removed in chunks of at least so many."""


class Fold:
    """What a group of writes comes to."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.rows: dict[tuple[str, str], Row | None] = {}
        self.delivered: dict[int, MessageReceived] = {}
        self.finished: list[int] = []
        self.requests: dict[str, StoredRequest] = {}
        self.points: list[tuple[int, TracePoint]] = []
        for write, first_point, _ in entries:
            for change in write.changes:
                self.rows[change.table, change.key] = change.row
            self.delivered.update(write.delivered)
            for number in write.finished:
                if self.delivered.pop(number, None) is None:
                    self.finished.append(number)
            for request in write.requests:
                self.requests[request.request_id] = request
            self.points += enumerate(map(without_payload, write.trace), first_point)


class SqliteWriter:
    """Writes to one connection, on one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, kept_requests: int, kept_trace_points: int) -> None:
        """Write to a store that keeps so many ended requests and trace points."""
        self._connection = connection
        self._path = path
        self._kept_requests = kept_requests
        self._kept_trace_points = kept_trace_points
        self._ended_since_trim = TRIM_AFTER
        self._points_since_trim = TRIM_AFTER

    def commit(self, entries: list[Entry]) -> None:
        """Make entries durable, all or none. Raises `StorageError`."""
        fold = Fold(entries)
        statements = [statement for statement in self._statements(fold) if statement[1]]
        with typed_errors(self._path, "writing"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, parameters in statements:
                    self._connection.executemany(sql, parameters)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def housekeeping(self) -> None:
        """Remove what is older than what is kept."""
        if self._ended_since_trim < TRIM_AFTER and self._points_since_trim < TRIM_AFTER:
            return
        self._ended_since_trim = self._points_since_trim = 0
        with typed_errors(self._path, "removing old records"):
            self._connection.execute(
                "DELETE FROM requests WHERE ended_at_ms < (SELECT ended_at_ms FROM requests "
                "WHERE ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC LIMIT 1 OFFSET ?)",
                (self._kept_requests - 1,),
            )
            self._connection.execute(
                "DELETE FROM trace WHERE number <= (SELECT max(number) FROM trace) - ?", (self._kept_trace_points,)
            )

    def _statements(self, fold: Fold) -> list[tuple[str, list[Any]]]:
        put, removed = [], []
        for (table, key), row in fold.rows.items():
            if row is None:
                removed.append((table, key))
            else:
                put.append((table, key, seal(encode(row), f"{table}/{key}")))
        ended = sum(request.outcome is not Outcome.OPEN for request in fold.requests.values())
        self._ended_since_trim += ended
        self._points_since_trim += len(fold.points)
        return [
            ("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", put),
            ("DELETE FROM state WHERE tbl = ? AND key = ?", removed),
            (
                "INSERT OR REPLACE INTO inbox VALUES (?, ?)",
                [(n, message_record(n, m)) for n, m in fold.delivered.items()],
            ),
            ("DELETE FROM inbox WHERE number = ?", [(number,) for number in fold.finished]),
            (
                "INSERT OR REPLACE INTO requests VALUES (?, ?, ?)",
                [(key, _ended_at_ms(request), request_record(request)) for key, request in fold.requests.items()],
            ),
            (
                "INSERT INTO trace VALUES (?, ?, ?, ?, ?)",
                [
                    (number, point.at_ms, type(point.event).__name__, point.size_bytes, point_record(number, point))
                    for number, point in fold.points
                ],
            ),
        ]


def _ended_at_ms(request: StoredRequest) -> int | None:
    if request.outcome is Outcome.OPEN:
        return None
    return request.accepted_at_ms if request.ended_at_ms is None else request.ended_at_ms
