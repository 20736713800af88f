"""`SqliteWriter`: makes a group of writes, of any channels, durable with one row of the journal and one fsync.

It merges the journal into the tables when that has `MERGE_AFTER_BYTES`, when the store is opened, and when it is
closed. Changes of the same row are combined first: each row of a table is encoded and written once per merge.

After each statement the thread needs Python's interpreter lock again, which a busy event loop releases only every few
milliseconds. So one statement writes many rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairway.events import MessageReceived
from fairway.protocol.sds.channel import HISTORY
from fairway.storage.channel_store import Bounds, OwnMessage, SendOutcome, StoredRequest
from fairway.storage.commit_queue import Entry
from fairway.storage.journal_tail import JournalRecord, Tail, journal_of
from fairway.storage.records import check_value, encode, sealed
from fairway.storage.schema import rows_of
from fairway.storage.sqlite_connection import APPEND, CHECKPOINT, GuardedConnection, transaction
from fairway.storage.sqlite_errors import typed_errors

KEPT_REQUESTS: Final = 100_000
"""Ended requests that a store keeps of each channel."""
KEPT_TRACE_POINTS: Final = 200_000
"""Trace points that a store keeps of each channel."""
MERGE_AFTER_BYTES: Final = 1_048_576
"""Size of the journal at which it is merged."""
ROWS_PER_STATEMENT: Final = 32
_FINISHED: Final = "channel = ? AND number NOT IN (SELECT number FROM inbox WHERE channel = ?)"
_FIRST_PLACES: Final = f"""
SELECT lamport, sds_id, number, size_bytes FROM places WHERE {_FINISHED} ORDER BY lamport, sds_id, number
"""  # noqa: S608 - constants only; so below
_FROM_FIRST: Final = f"FROM places WHERE {_FINISHED} AND (lamport, sds_id, number) <= (?, ?, ?)"
_REMOVE_FIRST_MESSAGES: Final = f"DELETE FROM messages WHERE number IN (SELECT number {_FROM_FIRST})"  # noqa: S608
_REMOVE_FIRST_PLACES: Final = f"DELETE {_FROM_FIRST}"


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
PUT_PLACE: Final = Statement("INSERT OR REPLACE INTO places VALUES (", "?, ?, ?, ?, ?", "), (", ")")
MOVE_PLACE: Final = "UPDATE places SET lamport = ?, sds_id = ? WHERE (channel, lamport, sds_id, number) = (?, ?, ?, ?)"
REMOVE_PLACE: Final = "DELETE FROM places WHERE (channel, lamport, sds_id, number) = (?, ?, ?, ?)"
PUT_UNREAD: Final = Statement("INSERT OR REPLACE INTO inbox VALUES (", "?, ?", "), (", ")")
REMOVE_UNREAD: Final = Statement("DELETE FROM inbox WHERE (channel, number) IN (VALUES (", "?, ?", "), (", "))")
PUT_HANDLING: Final = Statement("INSERT OR REPLACE INTO handling VALUES (", "?, ?, ?, ?", "), (", ")")
REMOVE_HANDLING: Final = Statement("DELETE FROM handling WHERE (channel, number) IN (VALUES (", "?, ?", "), (", "))")
PUT_REQUEST: Final = Statement("INSERT OR REPLACE INTO requests VALUES (", "?, ?, ?, ?, ?", "), (", ")")
PUT_POINT: Final = Statement("INSERT INTO trace VALUES (", "?, ?, ?, ?, ?, ?", "), (", ")")


@cache
def _sql(statement: Statement, count: int) -> str:
    return f"{statement.before}{statement.between.join([statement.row] * count)}{statement.after}"


class ChannelPart:
    """The changes of one channel that are not in the tables, and the numbers of its rows."""

    def __init__(self, connection: sqlite3.Connection, channel: int) -> None:
        """Read the numbers."""
        self.channel = channel
        self.tail = Tail()
        self.new_messages = self.new_message_bytes = 0
        """New messages since the last removal of old ones, and their bytes."""
        first, last = rows = rows_of(channel)
        (point,) = connection.execute("SELECT max(number) FROM trace WHERE number BETWEEN ? AND ?", rows).fetchone()
        self.next_point = first if point is None else point + 1
        """Number of the next row of ``trace``."""
        self._places: dict[str, int] = dict(
            connection.execute("SELECT place, number FROM state_in_order WHERE number BETWEEN ? AND ?", (first, last))
        )
        """Numbers of the rows of ``state_in_order``."""
        self._next_row = max(self._places.values(), default=first) + 1

    def add(self, record: JournalRecord) -> None:
        """Add the changes of a record to the tail."""
        self.tail.add(record)
        self.next_point += len(record.points)
        messages: tuple[tuple[int, MessageReceived | OwnMessage], ...] = record.delivered + record.sent
        self.new_messages += len(messages)
        self.new_message_bytes += sum(len(message.payload) for _, message in messages)

    def moves(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the statements that change places in the table, each with its parameters."""
        for each in self.tail.placed.values():
            if each.earlier is not None and each.number in self.tail.messages:
                yield REMOVE_PLACE, (self.channel, *each.earlier, each.number)
            elif each.earlier is not None:
                # If its message was removed, it gets no place.
                yield MOVE_PLACE, (*each.order_key, self.channel, *each.earlier, each.number)

    def changed_rows(self) -> Iterator[tuple[Statement, list[tuple[Any, ...]]]]:
        """Yield the statements that write or remove rows, each with its rows."""
        channel, tail = self.channel, self.tail
        history, gone_history, state, gone_state = [], [], [], []
        for (table, key), row in tail.rows.items():
            place = f"{channel}/{table}/{key}"
            if table == HISTORY:
                if row is None:
                    gone_history.append((place,))
                else:
                    history.append((place, *sealed(place, row)))
            elif row is not None:
                state.append((self._number_of(place), place, *sealed(place, row)))
            elif (number := self._places.pop(place, None)) is not None:
                gone_state.append((number,))
        yield PUT_HISTORY, history
        yield REMOVE_HISTORY, gone_history
        yield PUT_STATE, state
        yield REMOVE_STATE, gone_state
        messages = [
            (number, isinstance(message, OwnMessage), *sealed(f"messages/{number}", message))
            for number, message in tail.messages.items()
        ]
        yield PUT_MESSAGE, messages
        new = [each for each in tail.placed.values() if each.earlier is None or each.number in tail.messages]
        yield PUT_PLACE, [(channel, *each.order_key, each.number, each.size_bytes) for each in new]
        finished = [(channel, number) for number in tail.finished]
        yield REMOVE_UNREAD, finished
        yield PUT_UNREAD, [(channel, number) for number in tail.unread]
        yield REMOVE_HANDLING, finished
        handling = [(channel, number, *sealed(f"handling/{number}", each)) for number, each in tail.handling.items()]
        yield PUT_HANDLING, handling
        requests = [
            (channel, key, _ended_at_ms(each), *sealed(f"requests/{channel}/{key}", each))
            for key, each in tail.requests.items()
        ]
        yield PUT_REQUEST, requests
        yield PUT_POINT, list(tail.points)

    def _number_of(self, place: str) -> int:
        """Return the number of a row of ``state_in_order``, a new one if there is no such row."""
        number = self._places.setdefault(place, self._next_row)
        self._next_row = max(self._next_row, number + 1)
        return number


def _ended_at_ms(request: StoredRequest) -> int | None:
    """Return the end time of a request, by which old ones are removed; None if it is open."""
    if request.outcome is SendOutcome.OPEN:
        return None
    return request.accepted_at_ms if request.ended_at_ms is None else request.ended_at_ms


class SqliteWriter:
    """Writes to one connection, by one thread at a time."""

    def __init__(self, connection: GuardedConnection, path: Path, bounds: Bounds) -> None:
        """Write to a store with these bounds; merge the journal that the last process left."""
        self._connection = connection
        self._path = path
        self._bounds = bounds
        self._parts: dict[int, ChannelPart] = {}
        self._next_row = 1
        """Number of the next row of the journal."""
        self._journal_bytes = 0
        self._is_due = False
        """Whether a channel has messages to remove."""
        self._is_merged = False
        """Whether a merge was not copied from the log into the file yet."""
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for record in journal_of(connection):
            self.part(record.channel).add(record)
        if self._parts:
            self.merge()

    def part(self, channel: int) -> ChannelPart:
        """Return the state of a channel; reads the file at the first call."""
        part = self._parts.get(channel)
        if part is None:
            part = self._parts[channel] = ChannelPart(self._connection, channel)
        return part

    def commit(self, entries: list[Entry]) -> None:
        """Make entries durable, all or none. Raises `StorageError`."""
        records = []
        points: dict[int, int] = {}
        for channel, write, _ in entries:
            first = points.get(channel) or self.part(channel).next_point
            records.append(JournalRecord.of(channel, write, first))
            points[channel] = first + len(write.trace)
        if not any(any(record[1:]) for record in records):
            return
        body = encode(records)
        is_large = len(body) >= MERGE_AFTER_BYTES
        if not is_large:
            row = (self._next_row, body, check_value(body, f"journal/{self._next_row}"))
            with typed_errors(self._path, "writing"):
                self._connection.execute(APPEND, row)
                self._connection.check_log()
            self._next_row += 1
            self._journal_bytes += len(body)
        for record in records:
            part = self.part(record.channel)
            part.add(record)
            self._is_due |= self._bounds.is_time_to_remove(part.new_messages, part.new_message_bytes)
        if is_large:
            # In the journal it would be written twice.
            self.merge()

    def housekeeping(self) -> None:
        """When due, merge the journal, remove records beyond the bounds, and copy the log into the file."""
        if self._journal_bytes >= MERGE_AFTER_BYTES or self._is_due:
            self.merge()
        if self._is_merged:
            self._is_merged = False
            with typed_errors(self._path, "copying the log into the file"):
                self._connection.execute(CHECKPOINT)

    def merge(self) -> None:
        """Move the changes in the journal into the tables, and remove records beyond the bounds."""
        changed = [part for part in self._parts.values() if part.tail]
        with typed_errors(self._path, "writing"), transaction(self._connection):
            rows: dict[Statement, list[tuple[Any, ...]]] = {}
            for part in changed:
                for move in part.moves():
                    self._connection.execute(*move)
                for statement, some in part.changed_rows():
                    rows.setdefault(statement, []).extend(some)
            for statement, all_rows in rows.items():
                self._execute(statement, all_rows)
            self._connection.execute("DELETE FROM journal")
            for part in changed:
                self._trim(part)
        for part in changed:
            part.tail = Tail()
        self._next_row, self._journal_bytes, self._is_due, self._is_merged = 1, 0, False, True

    def _execute(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            chunk = rows[start : start + ROWS_PER_STATEMENT]
            self._connection.execute(_sql(statement, len(chunk)), tuple(chain.from_iterable(chunk)))

    def _trim(self, part: ChannelPart) -> None:
        """Remove records of a channel beyond the bounds."""
        self._connection.execute(
            "DELETE FROM requests WHERE channel = ? AND ended_at_ms < (SELECT ended_at_ms FROM requests "
            "WHERE channel = ? AND ended_at_ms IS NOT NULL ORDER BY ended_at_ms DESC LIMIT 1 OFFSET ?)",
            (part.channel, part.channel, KEPT_REQUESTS - 1),
        )
        self._connection.execute(
            "DELETE FROM trace WHERE number BETWEEN ? AND ?",
            (rows_of(part.channel)[0], part.next_point - 1 - KEPT_TRACE_POINTS),
        )
        if self._bounds.is_time_to_remove(part.new_messages, part.new_message_bytes):
            self._trim_messages(part.channel)
            part.new_messages = part.new_message_bytes = 0

    def _trim_messages(self, channel: int) -> None:
        """Remove the first messages of a channel, except those that the application has not finished."""
        execute = self._connection.execute
        counts = execute("SELECT count(*), total(size_bytes) FROM places WHERE channel = ?", (channel,))
        count, size_bytes = counts.fetchone()
        last: tuple[Any, ...] = ()
        with closing(execute(_FIRST_PLACES, (channel, channel))) as finished:
            for *place, size in finished:
                if not self._bounds.are_exceeded(count, size_bytes):
                    break
                last = (channel, channel, *place)
                count, size_bytes = count - 1, size_bytes - size
        if last:
            execute(_REMOVE_FIRST_MESSAGES, last)
            removed = execute(_REMOVE_FIRST_PLACES, last).rowcount
            execute("UPDATE channels SET removed = removed + ? WHERE number = ?", (removed, channel))
