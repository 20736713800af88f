"""`SqliteFile`: one SQLite file with the state of one or many channels, one writing thread and one queue of writes.

The file is opened with its first channel and closed with its last one. Writes of all channels that wait together become
durable in one transaction, with one fsync.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from threading import Lock

from fairway.environment import environment
from fairway.errors import StorageError, StoreLockedError
from fairway.storage.channel_store import NUMBERS_PER_OPENING, Bounds, Handling, Stored
from fairway.storage.commit_queue import CommitDriver, CommitQueue, LoopDriver, WritingThread
from fairway.storage.journal_tail import Tail, tail_of
from fairway.storage.records import read, read_message, read_state
from fairway.storage.schema import claim, create_tables, rows_of
from fairway.storage.sqlite_connection import (
    GuardedConnection,
    check_structure,
    connect,
    keep_private,
    refuse_other_files,
    use_log,
)
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.sqlite_writer import SqliteWriter
from fairway.storage.store_lock import StoreLock


@dataclass(slots=True, eq=False, kw_only=True)
class OpenFile:
    """The resources of a file from its opening to its end."""

    resources: ExitStack
    queue: CommitQueue
    writer: SqliteWriter
    connection: GuardedConnection
    """Only the writer uses it, and `CommitQueue.paused`."""
    reader: GuardedConnection
    reader_lock: Lock = field(default_factory=Lock)
    channels: set[int] = field(default_factory=set)
    """Numbers of the open channels."""
    process: int = field(default_factory=os.getpid)
    """The process that opened it."""

    @contextmanager
    def reading(self, channel: int) -> Iterator[tuple[GuardedConnection, Tail]]:
        """Give the tables, and the journal of a channel, at one moment."""
        with self.reader_lock, tail_of(self.reader, channel) as tail:
            yield self.reader, tail


class SqliteFile:
    """A file, open or not, which the stores of its channels share."""

    def __init__(self, path: Path, bounds: Bounds) -> None:
        """Name a file, and the bounds of each of its channels."""
        self.path = path
        self.bounds = bounds
        self._lock = Lock()
        """Held while channels are opened and closed."""
        self._opened: OpenFile | None = None

    def open(self, channel_id: str, sender_id: str, content_topic: str, *, adds: bool) -> tuple[OpenFile, int, Stored]:
        """Open a channel, and first the file if it is not open; return the number of the channel, and its state.

        ``adds`` allows a new channel in a file that has others. After a failed write the file is opened anew; the other
        channels that were open must be opened again, too.
        """
        with self._lock, typed_errors(self.path, "opening"):
            opened = self._opened
            if opened is not None and opened.process == os.getpid() and opened.queue.error is not None:
                self._end()
                opened = None
            if opened is None or opened.process != os.getpid():
                opened = self._opened = self._open_file()
            try:
                with opened.queue.paused():
                    opened.queue.check()
                    channel, stored = self._open_channel(opened, channel_id, sender_id, content_topic, adds=adds)
            except BaseException:
                if not opened.channels:
                    self._end()
                raise
            opened.channels.add(channel)
            return opened, channel, stored

    def close(self, opened: OpenFile, channel: int) -> None:
        """Commit the queued writes, and close a channel; with the last channel close the file."""
        with self._lock:
            if not _is_usable(opened):
                return
            with opened.queue.paused():
                opened.channels.discard(channel)
            if opened is self._opened and not opened.channels:
                self._end()

    def flush(self) -> None:
        """Commit the queued writes of all channels; raise the error of a failed write."""
        opened = self._opened
        if opened is None:
            return
        with opened.queue.paused():
            opened.queue.check()

    def abandon(self) -> None:
        """Close the file without writing the queue, as the end of the process would."""
        opened, self._opened = self._opened, None
        if opened is not None:
            atexit.unregister(self._end)
            opened.resources.close()

    def connect(self, path: Path) -> GuardedConnection:
        """Open the connection for writing; a simulated disk overrides this."""
        return connect(path)

    def driver(self) -> CommitDriver:
        """Return the driver of the queue of writes; a simulated disk overrides this."""
        loop = environment().only_loop
        return WritingThread() if loop is None else LoopDriver(loop.call_soon)

    def _open_file(self) -> OpenFile:
        with ExitStack() as resources:
            path = self.path.resolve()
            refuse_other_files(path)
            resources.callback(StoreLock(path).release)
            keep_private(path)
            connection = resources.enter_context(closing(self.connect(path)))
            create_tables(connection, path)
            use_log(connection, path)
            check_structure(connection, path)
            writer = SqliteWriter(connection, path, self.bounds)
            reader = resources.enter_context(closing(connect(path)))
            queue = CommitQueue(writer.commit, writer.housekeeping, self.driver())
            # Submitted writes reach the file even if the program never calls close.
            atexit.register(self._end)
            return OpenFile(
                resources=resources.pop_all(), queue=queue, writer=writer, connection=connection, reader=reader
            )

    def _open_channel(
        self, opened: OpenFile, channel_id: str, sender_id: str, content_topic: str, *, adds: bool
    ) -> tuple[int, Stored]:
        path = self.path.resolve()
        channel, opening = claim(opened.connection, path, channel_id, sender_id, content_topic, adds=adds)
        if channel in opened.channels:
            raise StoreLockedError(f"channel {channel_id!r} of {path} is open already in this process: close it first")
        if opened.writer.part(channel).tail:
            opened.writer.merge()
        return channel, _read(opened.connection, channel, opening)

    def _end(self) -> None:
        """Commit the queued writes, merge the journal, and close the file."""
        opened = self._opened
        if opened is None or sys.is_finalizing():
            return
        self._opened = None
        atexit.unregister(self._end)
        if not _is_usable(opened):
            return
        with opened.resources:
            opened.queue.close()
            if opened.queue.error is None:
                # Otherwise the next opening merges it.
                with suppress(StorageError):
                    opened.writer.merge()


def _is_usable(opened: OpenFile) -> bool:
    """Return whether this process can end the writing thread, and the locks of SQLite are not held by others.

    The thread has ended with the program, or is not in a forked process. It may have held a lock of SQLite, for which a
    close would wait without end. The end of the process closes the file.
    """
    return not sys.is_finalizing() and opened.process == os.getpid()


def _read(connection: sqlite3.Connection, channel: int, opening: int) -> Stored:
    """Read the state of a channel from the tables."""
    columns = "SELECT place, body, check_value FROM"
    state = connection.execute(
        f"{columns} state WHERE place > ? AND place < ? "
        f"UNION ALL {columns} state_in_order WHERE number BETWEEN ? AND ?",
        # In ASCII 0 follows the slash.
        (f"{channel}/", f"{channel}0", *rows_of(channel)),
    )
    inbox = connection.execute(
        "SELECT number, body, check_value FROM inbox JOIN messages USING (number) WHERE channel = ? ORDER BY number",
        (channel,),
    )
    rows = connection.execute(
        "SELECT number, body, check_value FROM handling WHERE channel = ? ORDER BY number", (channel,)
    )
    handling = tuple(read(Handling, f"handling/{number}", *record) for number, *record in rows)
    aside = {each.number for each in handling if each.set_aside is not None}
    return Stored(
        changes=tuple(starmap(read_state, state)),
        inbox=tuple((row[0], replace(read_message(*row), redelivered=True)) for row in inbox if row[0] not in aside),
        handling=handling,
        first_number=opening * NUMBERS_PER_OPENING,
    )
