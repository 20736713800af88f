"""Makes writes durable in an SQLite database: all that are given at once in one transaction, with one fsync.

What several of them do to the same row is folded first, so a row is encoded and written once per transaction however
often it changed, and a message that was delivered and finished meanwhile is never written.

A busy event loop gives the interpreter away only every few milliseconds, and SQLite must get it back after each
statement. So many rows share a statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairway.events import MessageReceived
from fairway.protocol.journal import Row
from fairway.storage.channel_store import Outcome, StoredRequest, TracePoint
from fairway.storage.group_commit import Entry
from fairway.storage.records import message_record, point_record, request_record
from fairway.storage.rows import encode, seal
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.trace_points import without_payload

TRIM_AFTER: Final = 1_000
"""Old requests and trace points are removed when so many came."""
CHECKPOINT_AFTER_BYTES: Final = 8_388_608
"""The log is copied into the file when about so much was written to it."""
ROWS_PER_STATEMENT: Final = 32
STATEMENTS_CACHED: Final = 8 * ROWS_PER_STATEMENT
"""A connection keeps so many: those below for every number of rows, and a few more."""
_BYTES_PER_ROW: Final = 4_096
"""A row costs the log a page, or less if it shares one."""


class Statement(NamedTuple):
    """Something that is done with many rows at once: SQL around a list of them, and how one is written."""

    before: str
    row: str
    after: str = ""


PUT_STATE: Final = Statement("INSERT OR REPLACE INTO state VALUES ", "(?, ?, ?)")
REMOVE_STATE: Final = Statement("DELETE FROM state WHERE (tbl, key) IN (VALUES ", "(?, ?)", ")")
PUT_MESSAGE: Final = Statement("INSERT OR REPLACE INTO inbox VALUES ", "(?, ?)")
REMOVE_MESSAGE: Final = Statement("DELETE FROM inbox WHERE number IN (VALUES ", "(?)", ")")
PUT_REQUEST: Final = Statement("INSERT OR REPLACE INTO requests VALUES ", "(?, ?, ?)")
PUT_POINT: Final = Statement("INSERT INTO trace VALUES ", "(?, ?, ?, ?, ?)")


@cache
def _sql(statement: Statement, count: int) -> str:
    return f"{statement.before}{', '.join([statement.row] * count)}{statement.after}"


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

    def statements(self) -> Iterator[tuple[Statement, list[tuple[Any, ...]]]]:
        """Yield what is to be done, and with which rows."""
        put: list[tuple[Any, ...]] = []
        removed: list[tuple[Any, ...]] = []
        for (table, key), row in self.rows.items():
            if row is None:
                removed.append((table, key))
            else:
                put.append((table, key, seal(encode(row), f"{table}/{key}")))
        yield PUT_STATE, put
        yield REMOVE_STATE, removed
        yield PUT_MESSAGE, [(number, message_record(number, message)) for number, message in self.delivered.items()]
        yield REMOVE_MESSAGE, [(number,) for number in self.finished]
        yield (
            PUT_REQUEST,
            [(key, _ended_at_ms(request), request_record(request)) for key, request in self.requests.items()],
        )
        yield (
            PUT_POINT,
            [
                (number, point.at_ms, type(point.event).__name__, point.size_bytes, point_record(number, point))
                for number, point in self.points
            ],
        )


class SqliteWriter:
    """Writes to one connection, on one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, kept_requests: int, kept_trace_points: int) -> None:
        """Write to a store that keeps so many ended requests and trace points."""
        self._connection = connection
        self._path = path
        self._kept_requests = kept_requests
        self._kept_trace_points = kept_trace_points
        self._since_trim = TRIM_AFTER
        self._since_checkpoint = 0
        connection.execute("PRAGMA wal_autocheckpoint = 0")

    def commit(self, entries: list[Entry]) -> None:
        """Make entries durable, all or none. Raises `StorageError`."""
        fold = Fold(entries)
        groups = [(statement, rows) for statement, rows in fold.statements() if rows]
        if not groups:
            return
        with typed_errors(self._path, "writing"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, rows in groups:
                    self._execute(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._since_trim += len(fold.requests) + len(fold.points)

    def housekeeping(self) -> None:
        """Remove what is older than what is kept, and copy the log into the file, each when it is time."""
        if self._since_trim >= TRIM_AFTER:
            self._since_trim = 0
            with typed_errors(self._path, "removing old records"):
                self._trim()
        if self._since_checkpoint >= CHECKPOINT_AFTER_BYTES:
            self._since_checkpoint = 0
            with typed_errors(self._path, "copying the log into the file"):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _execute(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            self._connection.execute(_sql(statement, len(chunk)), tuple(chain.from_iterable(chunk)))
            self._since_checkpoint += sum(len(row[-1]) for row in chunk if isinstance(row[-1], bytes))
            self._since_checkpoint += _BYTES_PER_ROW * len(chunk)

    def _trim(self) -> None:
        self._connection.execute(
            "DELETE FROM requests WHERE ended_at_ms < (SELECT ended_at_ms FROM requests "
            "WHERE ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC LIMIT 1 OFFSET ?)",
            (self._kept_requests - 1,),
        )
        self._connection.execute(
            "DELETE FROM trace WHERE number <= (SELECT max(number) FROM trace) - ?", (self._kept_trace_points,)
        )


def _ended_at_ms(request: StoredRequest) -> int | None:
    if request.outcome is Outcome.OPEN:
        return None
    return request.accepted_at_ms if request.ended_at_ms is None else request.ended_at_ms
