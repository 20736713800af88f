"""The journal of a store, and `Tail`: its changes, which are not in the tables yet.

Each transaction of the hot path appends one row to the table ``journal``. The row has all changes of a group of writes.
`SqliteWriter` holds the changes in memory, too, and merges them into the tables now and then. In the same transaction
it empties the journal. So a message that was delivered and finished meanwhile never enters the inbox.

A reader of the file reads the journal and the tables in one transaction (`tail_of`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

import msgspec

from fairway.errors import StoreCorruptError
from fairway.events import MessageReceived
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.storage.channel_store import Handling, MessagePlace, OwnMessage, StoredRequest, Write, placement_of
from fairway.storage.records import PointColumns, point_columns, verify


class JournalRecord(NamedTuple):
    """A write as the journal has it: its trace points are columns of ``trace``."""

    channel: int
    changes: tuple[Change, ...]
    delivered: tuple[tuple[int, MessageReceived], ...]
    finished: tuple[int, ...]
    sent: tuple[tuple[int, OwnMessage], ...]
    placed: tuple[MessagePlace, ...]
    handling: tuple[Handling, ...]
    requests: tuple[StoredRequest, ...]
    points: tuple[PointColumns, ...]

    @classmethod
    def of(cls, channel: int, write: Write, first_point: int) -> Self:
        """Return the record of a write whose first trace point has this number."""
        points = [point_columns(number, point) for number, point in enumerate(write.trace, first_point)]
        return cls(
            channel,
            write.changes,
            write.delivered,
            write.finished,
            write.sent,
            write.placed,
            write.handling,
            write.requests,
            tuple(points),
        )


_DECODER: Final = msgspec.msgpack.Decoder(list[JournalRecord])


class Tail:
    """The combined changes of some records of a channel: of each row the last one."""

    def __init__(self, records: Iterable[JournalRecord] = ()) -> None:
        self.rows: dict[tuple[str, str], Row | None] = {}
        self.messages: dict[int, MessageReceived | OwnMessage] = {}
        self.placed: dict[int, MessagePlace] = {}
        """New places; ``earlier`` is the place in the table."""
        self.unread: dict[int, None] = {}
        self.finished: dict[int, None] = {}
        """Finished messages that the inbox in the file has."""
        self.handling: dict[int, Handling] = {}
        self.requests: dict[str, StoredRequest] = {}
        self.points: list[PointColumns] = []
        for record in records:
            self.add(record)

    def add(self, record: JournalRecord) -> None:
        """Add the changes of a later record."""
        for table, key, row in record.changes:
            self.rows[table, key] = row
        self.messages.update(record.delivered)
        self.messages.update(record.sent)
        for number, message in record.delivered:
            self.unread[number] = None
            self.placed[number] = placement_of(number, message)
        for place in record.placed:
            before = self.placed.get(place.number)
            self.placed[place.number] = place if before is None else place._replace(earlier=before.earlier)
        for handling in record.handling:
            self.handling[handling.number] = handling
        for number in record.finished:
            self.handling.pop(number, None)
            if number in self.unread:
                del self.unread[number]
            else:
                self.finished[number] = None
        for request in record.requests:
            self.requests[request.request_id] = request
        self.points += record.points

    def __bool__(self) -> bool:
        """Return whether there are changes."""
        return any(vars(self).values())

    def inbox_message(self, number: int) -> MessageReceived | None:
        """Return a message that entered the inbox and is not finished."""
        message = self.messages.get(number) if number in self.unread else None
        return message if isinstance(message, MessageReceived) else None


@contextmanager
def tail_of(connection: sqlite3.Connection, channel: int) -> Iterator[Tail]:
    """Read the journal of a channel, and let the block read the tables in the same transaction.

    Raises `StoreCorruptError` if a row is damaged.
    """
    connection.execute("BEGIN")
    try:
        yield Tail(record for record in journal_of(connection) if record.channel == channel)
    finally:
        connection.execute("ROLLBACK")


def journal_of(connection: sqlite3.Connection) -> Iterator[JournalRecord]:
    """Yield the records of all channels in the journal; raise `StoreCorruptError` if a row is damaged."""
    for number, body, check in connection.execute("SELECT number, body, check_value FROM journal ORDER BY number"):
        yield from _read(number, body, check)


def _read(number: int, body: bytes, check: int) -> list[JournalRecord]:
    try:
        return _DECODER.decode(verify(body, check, f"journal/{number}"))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreCorruptError(f"row {number} of the journal cannot be read: {error}") from error
