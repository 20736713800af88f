"""`SqliteWriter`: makes a group of writes durable in one transaction, with one fsync.

Changes of the same row are combined first: each row is encoded and written once per transaction, and a message that was
delivered and finished within one transaction is not written.

After each statement the thread needs Python's interpreter lock again, which a busy event loop releases only every few
milliseconds. So one statement writes many rows.
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
from fairway.protocol.sds.channel import HISTORY
from fairway.storage.channel_store import Handling, StoredRequest, TracePoint
from fairway.storage.group_commit import Entry
from fairway.storage.records import (
    handling_columns,
    message_columns,
    point_columns,
    record_place,
    request_columns,
    state_columns,
)
from fairway.storage.sqlite_connection import CHECKPOINT, GuardedConnection, transaction
from fairway.storage.sqlite_errors import typed_errors

TRIM_AFTER: Final = 1_000
"""New requests and trace points after which old ones are removed."""
CHECKPOINT_AFTER_BYTES: Final = 8_388_608
"""Approximate size of the log at which it is copied into the file."""
ROWS_PER_STATEMENT: Final = 32
_BYTES_PER_ROW: Final = 4_096
"""Size of a row in the log: at most a page."""


class Statement(NamedTuple):
    """An SQL statement for many rows at once."""

    before: str
    row: str
    between: str
    after: str


PUT_HISTORY: Final = Statement("INSERT OR REPLACE INTO state VALUES (", "?, ?, ?", "), (", ")")
REMOVE_HISTORY: Final = Statement("DELETE FROM state WHERE place IN (", "?", ", ", ")")
PUT_STATE: Final = Statement("INSERT OR REPLACE INTO state_in_order VALUES (", "?, ?, ?, ?", "), (", ")")
REMOVE_STATE: Final = Statement("DELETE FROM state_in_order WHERE number IN (", "?", ", ", ")")
PUT_MESSAGE: Final = Statement("INSERT OR REPLACE INTO inbox VALUES (", "?, ?, ?", "), (", ")")
REMOVE_MESSAGE: Final = Statement("DELETE FROM inbox WHERE number IN (", "?", ", ", ")")
PUT_HANDLING: Final = Statement("INSERT OR REPLACE INTO handling VALUES (", "?, ?, ?", "), (", ")")
REMOVE_HANDLING: Final = Statement("DELETE FROM handling WHERE number IN (", "?", ", ", ")")
PUT_REQUEST: Final = Statement("INSERT OR REPLACE INTO requests VALUES (", "?, ?, ?, ?", "), (", ")")
PUT_POINT: Final = Statement("INSERT INTO trace VALUES (", "?, ?, ?, ?, ?, ?", "), (", ")")


@cache
def _sql(statement: Statement, count: int) -> str:
    return f"{statement.before}{statement.between.join([statement.row] * count)}{statement.after}"


class RowNumbers:
    """The numbers of the rows in ``state_in_order``, by their places."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read them."""
        self._numbers: dict[str, int] = dict(connection.execute("SELECT place, number FROM state_in_order"))
        self._next = max(self._numbers.values(), default=0) + 1

    def put(self, place: str) -> int:
        """Return the number of a row, a new one if there is no such row."""
        number = self._numbers.setdefault(place, self._next)
        self._next = max(self._next, number + 1)
        return number

    def remove(self, place: str) -> int | None:
        """Return the number of a row, and forget it; None if there is no such row."""
        return self._numbers.pop(place, None)


class Fold:
    """The combined changes of a group of writes."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.rows: dict[tuple[str, str], Row | None] = {}
        self.delivered: dict[int, MessageReceived] = {}
        self.finished: list[int] = []
        self.handling: dict[int, Handling] = {}
        self.requests: dict[str, StoredRequest] = {}
        self.points: list[tuple[int, TracePoint]] = []
        for write, first_point, _ in entries:
            for change in write.changes:
                self.rows[change.table, change.key] = change.row
            self.delivered.update(write.delivered)
            for handling in write.handling:
                self.handling[handling.number] = handling
            for number in write.finished:
                self.handling.pop(number, None)
                if self.delivered.pop(number, None) is None:
                    self.finished.append(number)
            for request in write.requests:
                self.requests[request.request_id] = request
            self.points += enumerate(write.trace, first_point)

    def statements(self, numbers: RowNumbers) -> Iterator[tuple[Statement, list[tuple[Any, ...]]]]:
        """Yield the statements, each with its rows."""
        history, gone_history, state, gone_state = [], [], [], []
        for (table, key), row in self.rows.items():
            place = record_place(table, key)
            if table == HISTORY:
                if row is None:
                    gone_history.append((place,))
                else:
                    history.append(state_columns(place, row))
            elif row is not None:
                state.append((numbers.put(place), *state_columns(place, row)))
            elif (number := numbers.remove(place)) is not None:
                gone_state.append((number,))
        yield PUT_HISTORY, history
        yield REMOVE_HISTORY, gone_history
        yield PUT_STATE, state
        yield REMOVE_STATE, gone_state
        yield PUT_MESSAGE, [message_columns(number, message) for number, message in self.delivered.items()]
        yield REMOVE_MESSAGE, [(number,) for number in self.finished]
        yield PUT_HANDLING, [handling_columns(handling) for handling in self.handling.values()]
        yield REMOVE_HANDLING, [(number,) for number in self.finished]
        yield PUT_REQUEST, [request_columns(request) for request in self.requests.values()]
        yield PUT_POINT, [point_columns(number, point) for number, point in self.points]


class SqliteWriter:
    """Writes to one connection, on one thread."""

    def __init__(self, connection: GuardedConnection, path: Path, kept_requests: int, kept_trace_points: int) -> None:
        """Write to a store with bounds on ended requests and trace points."""
        self._connection = connection
        self._numbers = RowNumbers(connection)
        self._path = path
        self._kept_requests = kept_requests
        self._kept_trace_points = kept_trace_points
        self._since_trim = TRIM_AFTER
        self._since_checkpoint = 0
        connection.execute("PRAGMA wal_autocheckpoint = 0")

    def commit(self, entries: list[Entry]) -> None:
        """Make entries durable, all or none. Raises `StorageError`."""
        fold = Fold(entries)
        groups = [(statement, rows) for statement, rows in fold.statements(self._numbers) if rows]
        if not groups:
            return
        with typed_errors(self._path, "writing"), transaction(self._connection):
            for statement, rows in groups:
                self._execute(statement, rows)
        self._since_trim += len(fold.requests) + len(fold.points)

    def housekeeping(self) -> None:
        """When due, remove requests and trace points beyond the bounds, and copy the log into the file."""
        if self._since_trim >= TRIM_AFTER:
            self._since_trim = 0
            with typed_errors(self._path, "removing old records"), transaction(self._connection):
                self._trim()
        if self._since_checkpoint >= CHECKPOINT_AFTER_BYTES:
            self._since_checkpoint = 0
            with typed_errors(self._path, "copying the log into the file"):
                self._connection.execute(CHECKPOINT)

    def _execute(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            self._connection.execute(_sql(statement, len(chunk)), tuple(chain.from_iterable(chunk)))
            self._since_checkpoint += sum(len(row[-2]) for row in chunk if len(row) > 1)
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
