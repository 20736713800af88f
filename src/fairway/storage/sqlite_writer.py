"""`SqliteWriter`: makes a group of writes durable in one transaction, with one fsync.

Changes of the same row are combined first: each row is encoded and written once per transaction, and a message that was
delivered and finished within one transaction is not written.

After each statement the thread needs Python's interpreter lock again, which a busy event loop releases only every few
milliseconds. So one statement writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairway.events import MessageReceived
from fairway.protocol.journal import Row
from fairway.protocol.sds.channel import HISTORY
from fairway.storage.channel_store import (
    Bounds,
    Handling,
    MessagePlace,
    OwnMessage,
    SendOutcome,
    StoredRequest,
    TracePoint,
    placement_of,
)
from fairway.storage.commit_queue import Entry
from fairway.storage.records import point_columns, sealed
from fairway.storage.sqlite_connection import CHECKPOINT, GuardedConnection, transaction
from fairway.storage.sqlite_errors import typed_errors

KEPT_REQUESTS: Final = 100_000
"""Ended requests that a store keeps."""
KEPT_TRACE_POINTS: Final = 200_000
TRIM_AFTER: Final = 1_000
"""Number of new requests and trace points after which old ones are removed."""
CHECKPOINT_AFTER_BYTES: Final = 8_388_608
"""Approximate size of the log at which it is copied into the file."""
ROWS_PER_STATEMENT: Final = 32
_FINISHED: Final = "number NOT IN (SELECT number FROM inbox)"
_FIRST_PLACES: Final = f"""
SELECT lamport, sds_id, number, size_bytes FROM places WHERE {_FINISHED} ORDER BY lamport, sds_id, number
"""  # noqa: S608 - constants only; so below
_FROM_FIRST: Final = f"FROM places WHERE (lamport, sds_id, number) <= (?, ?, ?) AND {_FINISHED}"
_REMOVE_FIRST_MESSAGES: Final = f"DELETE FROM messages WHERE number IN (SELECT number {_FROM_FIRST})"  # noqa: S608
_REMOVE_FIRST_PLACES: Final = f"DELETE {_FROM_FIRST}"
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
PUT_MESSAGE: Final = Statement("INSERT OR REPLACE INTO messages VALUES (", "?, ?, ?, ?", "), (", ")")
PUT_PLACE: Final = Statement("INSERT OR REPLACE INTO places VALUES (", "?, ?, ?, ?", "), (", ")")
MOVE_PLACE: Final = "UPDATE places SET lamport = ?, sds_id = ? WHERE (lamport, sds_id, number) = (?, ?, ?)"
REMOVE_PLACE: Final = "DELETE FROM places WHERE (lamport, sds_id, number) = (?, ?, ?)"
PUT_UNREAD: Final = Statement("INSERT OR REPLACE INTO inbox VALUES (", "?", "), (", ")")
REMOVE_UNREAD: Final = Statement("DELETE FROM inbox WHERE number IN (", "?", ", ", ")")
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
        """Remove and return the number of a row; None if the row is unknown."""
        return self._numbers.pop(place, None)


class Fold:
    """The combined changes of a group of writes."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.rows: dict[tuple[str, str], Row | None] = {}
        self.messages: dict[int, MessageReceived | OwnMessage] = {}
        self.placed: dict[int, MessagePlace] = {}
        self.unread: dict[int, None] = {}
        self.finished: list[int] = []
        self.handling: dict[int, Handling] = {}
        self.requests: dict[str, StoredRequest] = {}
        self.points: list[tuple[int, TracePoint]] = []
        for write, first_point, _ in entries:
            for change in write.changes:
                self.rows[change.table, change.key] = change.row
            self.messages.update(write.delivered)
            self.messages.update(write.sent)
            for number, message in write.delivered:
                self.unread[number] = None
                self.placed[number] = placement_of(number, message)
            for placement in write.placed:
                before = self.placed.get(placement.number)
                earlier = placement.earlier if before is None else before.earlier
                self.placed[placement.number] = placement._replace(earlier=earlier)
            for handling in write.handling:
                self.handling[handling.number] = handling
            for number in write.finished:
                self.handling.pop(number, None)
                if number in self.unread:
                    del self.unread[number]
                else:
                    self.finished.append(number)
            for request in write.requests:
                self.requests[request.request_id] = request
            self.points += enumerate(write.trace, first_point)

    def moves(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the statements that change places which were written before, each with its parameters."""
        for each in self.placed.values():
            if each.earlier is not None and each.number in self.messages:
                yield REMOVE_PLACE, (*each.earlier, each.number)
            elif each.earlier is not None:
                # If its message was removed, it gets no place.
                yield MOVE_PLACE, (*each.order_key, *each.earlier, each.number)

    def statements(self, numbers: RowNumbers) -> Iterator[tuple[Statement, list[tuple[Any, ...]]]]:
        """Yield the statements, each with its rows."""
        history, gone_history, state, gone_state = [], [], [], []
        for (table, key), row in self.rows.items():
            place = f"{table}/{key}"
            if table == HISTORY:
                if row is None:
                    gone_history.append((place,))
                else:
                    history.append((place, *sealed(place, row)))
            elif row is not None:
                state.append((numbers.put(place), place, *sealed(place, row)))
            elif (number := numbers.remove(place)) is not None:
                gone_state.append((number,))
        yield PUT_HISTORY, history
        yield REMOVE_HISTORY, gone_history
        yield PUT_STATE, state
        yield REMOVE_STATE, gone_state
        messages = [
            (number, isinstance(message, OwnMessage), *sealed(f"messages/{number}", message))
            for number, message in self.messages.items()
        ]
        yield PUT_MESSAGE, messages
        new = [each for each in self.placed.values() if each.earlier is None or each.number in self.messages]
        yield PUT_PLACE, [(*each.order_key, each.number, each.size_bytes) for each in new]
        yield PUT_UNREAD, [(number,) for number in self.unread]
        yield REMOVE_UNREAD, [(number,) for number in self.finished]
        handling = [(number, *sealed(f"handling/{number}", each)) for number, each in self.handling.items()]
        yield PUT_HANDLING, handling
        yield REMOVE_HANDLING, [(number,) for number in self.finished]
        requests = [(key, _ended_at_ms(each), *sealed(f"requests/{key}", each)) for key, each in self.requests.items()]
        yield PUT_REQUEST, requests
        yield PUT_POINT, [point_columns(number, point) for number, point in self.points]


def _ended_at_ms(request: StoredRequest) -> int | None:
    """Return the end time of a request, by which old ones are removed; None if it is open."""
    if request.outcome is SendOutcome.OPEN:
        return None
    return request.accepted_at_ms if request.ended_at_ms is None else request.ended_at_ms


class SqliteWriter:
    """Writes to one connection, on one thread."""

    def __init__(self, connection: GuardedConnection, path: Path, bounds: Bounds) -> None:
        """Write to a store with these bounds."""
        self._connection = connection
        self._numbers = RowNumbers(connection)
        self._path = path
        self._bounds = bounds
        self._since_trim = TRIM_AFTER
        self._new_messages = self._new_message_bytes = 0
        """New messages, and their bytes, since the last removal of old ones."""
        self._since_checkpoint = 0
        connection.execute("PRAGMA wal_autocheckpoint = 0")

    def commit(self, entries: list[Entry]) -> None:
        """Make entries durable, all or none. Raises `StorageError`."""
        fold = Fold(entries)
        groups = [(statement, rows) for statement, rows in fold.statements(self._numbers) if rows]
        moves = list(fold.moves())
        if not groups and not moves:
            return
        with typed_errors(self._path, "writing"), transaction(self._connection):
            for move in moves:
                self._connection.execute(*move)
            for statement, rows in groups:
                self._execute(statement, rows)
        self._since_trim += len(fold.requests) + len(fold.points)
        self._new_messages += len(fold.messages)
        self._new_message_bytes += sum(len(message.payload) for message in fold.messages.values())

    def housekeeping(self) -> None:
        """When due, remove records beyond the bounds, and copy the log into the file."""
        if self._since_trim >= TRIM_AFTER:
            self._since_trim = 0
            with typed_errors(self._path, "removing old records"), transaction(self._connection):
                self._trim()
        if self._bounds.is_time_to_remove(self._new_messages, self._new_message_bytes):
            self._new_messages = self._new_message_bytes = 0
            with typed_errors(self._path, "removing old messages"), transaction(self._connection):
                self._trim_messages()
        if self._since_checkpoint >= CHECKPOINT_AFTER_BYTES:
            self._since_checkpoint = 0
            with typed_errors(self._path, "copying the log into the file"):
                self._connection.execute(CHECKPOINT)

    def _execute(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            self._connection.execute(_sql(statement, len(chunk)), tuple(chain.from_iterable(chunk)))
            if len(rows[0]) > 1 and isinstance(rows[0][-2], bytes):
                self._since_checkpoint += sum(len(row[-2]) for row in chunk)
            self._since_checkpoint += _BYTES_PER_ROW * len(chunk)

    def _trim(self) -> None:
        self._connection.execute(
            "DELETE FROM requests WHERE ended_at_ms < (SELECT ended_at_ms FROM requests "
            "WHERE ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC LIMIT 1 OFFSET ?)",
            (KEPT_REQUESTS - 1,),
        )
        self._connection.execute(
            "DELETE FROM trace WHERE number <= (SELECT max(number) FROM trace) - ?", (KEPT_TRACE_POINTS,)
        )

    def _trim_messages(self) -> None:
        """Remove the first messages of the channel, except those that the application has not finished."""
        execute = self._connection.execute
        count, size_bytes = execute("SELECT count(*), total(size_bytes) FROM places").fetchone()
        last: tuple[Any, ...] = ()
        with closing(execute(_FIRST_PLACES)) as finished:
            for *place, size in finished:
                if not self._bounds.are_exceeded(count, size_bytes):
                    break
                last = tuple(place)
                count, size_bytes = count - 1, size_bytes - size
        if last:
            execute(_REMOVE_FIRST_MESSAGES, last)
            removed = execute(_REMOVE_FIRST_PLACES, last).rowcount
            execute("UPDATE channel SET removed = removed + ?", (removed,))
