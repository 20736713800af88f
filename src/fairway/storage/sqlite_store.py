"""`SqliteStore`: the store of a channel in an SQLite file; confirmed writes survive a crash and a loss of power.

A file has one channel, or many (`SqliteStore.beside`). Each of them has a store of its own, and all share the file, its
writing thread and its transactions (`fairway.storage.sqlite_file`).

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

import os
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Self

from fairway.errors import StorageError, StoreLockedError
from fairway.events import MessageReceived, OrderKey
from fairway.storage.backup import back_up
from fairway.storage.channel_store import (
    KEPT_MESSAGE_BYTES,
    KEPT_MESSAGES,
    Bounds,
    ChannelStore,
    HistoryPage,
    Stored,
    StoredRequest,
    Write,
)
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.sqlite_file import OpenFile, SqliteFile
from fairway.storage.sqlite_queries import find_message, find_page, find_request


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

        ``kept_messages`` and ``kept_message_bytes`` bound the own messages and the finished ones of each channel; with
        0 they are removed soon. The store exceeds each bound by at most an eighth for a while.
        """
        self._file = SqliteFile(Path(path).absolute(), Bounds(kept_messages, kept_message_bytes).check())
        self._adds = False
        """Whether `open` may add a channel to a file that has others."""
        self._open: tuple[OpenFile, int] | None = None
        """The open file, and the number of the channel in it."""

    def __repr__(self) -> str:
        return f"<SqliteStore {str(self.path)!r} {'closed' if self._open is None else 'open'}>"

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    def beside(self) -> Self:
        """Return the store for another channel in the same file; this process can use both at the same time."""
        store = copy(self)
        store._adds, store._open = True, None  # noqa: SLF001 - it is of this class
        return store

    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Open the channel in the file, create both if they do not exist, and return the channel's state."""
        if self._open is not None and self._open[0].process == os.getpid():
            raise StoreLockedError(f"{self!r} is open already: close its channel first, or give each its own")
        opened, channel, stored = self._file.open(channel_id, sender_id, content_topic, adds=self._adds)
        self._open = opened, channel
        return stored

    def submit(self, write: Write, done: Callable[[StorageError | None], None], *, hurry: bool = True) -> None:
        """Queue a write; ``done`` is called on the store's thread, or on one that opens or closes a channel."""
        if self._open is None:
            done(StorageError(f"{self.path} is not open: open the store before writing to it"))
            return
        opened, channel = self._open
        opened.queue.submit(channel, write, done, hurry=hurry)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, from the queue, the journal or the table."""
        opened, channel = self._in_use()
        tail = opened.writer.part(channel).tail
        recent = opened.queue.request(channel, request_id) or tail.requests.get(request_id)
        if recent is not None:
            return recent
        with typed_errors(self.path, "looking up a request"):
            return find_request(opened.reader, channel, request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox, from the queue, the journal or the table."""
        opened, channel = self._in_use()
        tail = opened.writer.part(channel).tail
        recent = opened.queue.message(number) or tail.inbox_message(number)
        if recent is not None or number in tail.finished:
            return recent
        with typed_errors(self.path, "looking up a message"):
            return find_message(opened.reader, channel, number)

    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        """Return the last messages before a key, from the file."""
        opened, channel = self._in_use()
        with typed_errors(self.path, "reading messages"), opened.reading(channel) as (connection, tail):
            return find_page(connection, channel, tail, before, limit)

    def back_up(self, target: Path) -> None:
        """Copy the file with all its channels, after their queued writes (`fairway.storage.backup.back_up`)."""
        self._file.flush()
        back_up(self.path, target)

    def close(self) -> None:
        """Commit the queued writes, and close the channel; the last open channel closes the file."""
        current, self._open = self._open, None
        if current is not None:
            self._file.close(*current)

    def _in_use(self) -> tuple[OpenFile, int]:
        if self._open is None:
            raise StorageError(f"{self.path} is not open: open the store before asking it")
        return self._open
