"""`SqliteStore`: a store in one SQLite file; confirmed writes survive a crash and a loss of power.

It uses a write-ahead log and an fsync for each transaction, and belongs to one process at a time (`StoreLock`). One
thread writes (`CommitQueue`); under virtual time the event loop does. Look-ups read over a connection of their own, and
also find writes that are queued or in the journal (`fairway.storage.journal_tail`).

While ``alice.db`` is in use, the files ``alice.db-wal`` and ``alice.db-shm`` belong to it; ``alice.db.lock`` is its
lock. Only the owner may read them, because they hold messages in clear text, also of an encrypted channel. To share a
store, give its group the right to read. After a crash the next `open` recovers the store from them. Any program may
read the files meanwhile (`fairway.storage.log_guard`), but copies of files that change do not fit together:
`fairway.storage.backup` makes a copy of a store in use.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from fairway.environment import environment
from fairway.errors import StorageError
from fairway.events import MessageReceived, OrderKey
from fairway.storage.channel_store import (
    KEPT_MESSAGE_BYTES,
    KEPT_MESSAGES,
    NUMBERS_PER_OPENING,
    Bounds,
    ChannelStore,
    Handling,
    HistoryPage,
    Stored,
    StoredRequest,
    TracePoint,
    Write,
)
from fairway.storage.commit_queue import CommitDriver, CommitQueue, LoopDriver, WritingThread
from fairway.storage.journal_tail import Tail, tail_of
from fairway.storage.records import read, read_message, read_state
from fairway.storage.schema import claim, create_tables
from fairway.storage.sqlite_connection import (
    GuardedConnection,
    check_structure,
    connect,
    keep_private,
    refuse_other_files,
    use_log,
)
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.sqlite_queries import find_message, find_page, find_points, find_request
from fairway.storage.sqlite_writer import SqliteWriter
from fairway.storage.store_lock import StoreLock


class _Open(NamedTuple):
    """The resources of an open store."""

    resources: ExitStack
    queue: CommitQueue
    writer: SqliteWriter
    reading: GuardedConnection
    reading_lock: Lock
    process: int
    """The process that opened it."""


class SqliteStore(ChannelStore):
    """Keeps a channel in a file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kept_messages: int = KEPT_MESSAGES,
        kept_message_bytes: int = KEPT_MESSAGE_BYTES,
    ) -> None:
        """Name a file; it is not opened or created before `open`.

        ``kept_messages`` and ``kept_message_bytes`` bound the own messages and the finished ones; with 0 they are
        removed soon. The store exceeds each bound by at most an eighth for a while.
        """
        self._bounds = Bounds(kept_messages, kept_message_bytes).check()
        self._path = Path(path).absolute()
        self._open: _Open | None = None

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self._path)!r} {'closed' if self._open is None else 'open'}>"

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._path

    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Open the file, create it if it does not exist, and return its state."""
        with ExitStack() as resources, typed_errors(self._path, "opening"):
            path = self._path.resolve()
            refuse_other_files(path)
            resources.callback(StoreLock(path).release)
            keep_private(path)
            connection = resources.enter_context(closing(self._connect(path)))
            create_tables(connection, path)
            use_log(connection, path)
            opening = claim(connection, path, channel_id, sender_id, content_topic)
            check_structure(connection, path)
            writer = SqliteWriter(connection, path, self._bounds)
            stored = _read(connection, opening)
            (last_point,) = connection.execute("SELECT coalesce(max(number), 0) FROM trace").fetchone()
            reading = resources.enter_context(closing(connect(path)))
            queue = CommitQueue(writer.commit, writer.housekeeping, last_point + 1, self._driver())
            self._open = _Open(resources.pop_all(), queue, writer, reading, Lock(), os.getpid())
            # Submitted writes reach the file even if the program never calls close.
            atexit.register(self.close)
            return stored

    def submit(self, write: Write, done: Callable[[StorageError | None], None], *, hurry: bool = True) -> None:
        """Queue a write; ``done`` is called on the store's thread."""
        if self._open is None:
            done(StorageError(f"{self._path} is not open: open the store before writing to it"))
            return
        self._open.queue.submit(write, done, hurry=hurry)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, from the queue, the journal or the table."""
        current = self._in_use()
        recent = current.queue.request(request_id) or current.writer.tail.requests.get(request_id)
        if recent is not None:
            return recent
        with typed_errors(self._path, "looking up a request"):
            return find_request(current.reading, request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox, from the queue, the journal or the table."""
        current = self._in_use()
        tail = current.writer.tail
        recent = current.queue.message(number) or tail.inbox_message(number)
        if recent is not None or number in tail.finished:
            return recent
        with typed_errors(self._path, "looking up a message"):
            return find_message(current.reading, number)

    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        """Return the last messages before a key, from the file."""
        with typed_errors(self._path, "reading messages"), self._reading() as (connection, tail):
            return find_page(connection, tail, before, limit)

    def trace(self, identifier: str) -> list[TracePoint]:
        """Return the trace of a message, from the file and the queue."""
        current = self._in_use()
        before, queued = current.queue.points()
        with typed_errors(self._path, "looking up a trace"), self._reading() as (connection, tail):
            stored = find_points(connection, tail, identifier, before)
        return stored + [point for point in queued if point.names(identifier)]

    def close(self) -> None:
        """Commit the queued writes, merge the journal, and close the file."""
        current = self._open
        if current is None or sys.is_finalizing() or current.process != os.getpid():
            # The writing thread has ended with the program, or is not in this forked process. It may have held a lock
            # of SQLite, for which a close would wait without end. The end of the process closes the file.
            return
        self._open = None
        atexit.unregister(self.close)
        with current.resources:
            current.queue.close()
            if current.queue.error is None:
                # Otherwise the next opening merges it.
                with suppress(StorageError):
                    current.writer.merge()

    def _abandon(self) -> None:
        """Close the file without writing the queue, as the end of the process would."""
        current, self._open = self._open, None
        if current is not None:
            atexit.unregister(self.close)
            current.resources.close()

    def _connect(self, path: Path) -> GuardedConnection:
        """Open the connection for writing; a simulated disk overrides this."""
        return connect(path)

    def _driver(self) -> CommitDriver:
        """Return the driver of the queue of writes; a simulated disk overrides this."""
        loop = environment().only_loop
        return WritingThread() if loop is None else LoopDriver(loop.call_soon)

    @contextmanager
    def _reading(self) -> Iterator[tuple[GuardedConnection, Tail]]:
        """Give the tables and the journal at one moment."""
        current = self._in_use()
        with current.reading_lock, tail_of(current.reading) as tail:
            yield current.reading, tail

    def _in_use(self) -> _Open:
        if self._open is None:
            raise StorageError(f"{self._path} is not open: open the store before asking it")
        return self._open


def _read(connection: sqlite3.Connection, opening: int) -> Stored:
    columns = "SELECT place, body, check_value FROM"
    state = connection.execute(f"{columns} state UNION ALL {columns} state_in_order")
    inbox = connection.execute(
        "SELECT number, body, check_value FROM inbox JOIN messages USING (number) ORDER BY number"
    )
    rows = connection.execute("SELECT number, body, check_value FROM handling ORDER BY number")
    handling = tuple(read(Handling, f"handling/{number}", *record) for number, *record in rows)
    aside = {each.number for each in handling if each.set_aside is not None}
    return Stored(
        changes=tuple(starmap(read_state, state)),
        inbox=tuple((row[0], replace(read_message(*row), redelivered=True)) for row in inbox if row[0] not in aside),
        handling=handling,
        first_number=opening * NUMBERS_PER_OPENING,
    )
