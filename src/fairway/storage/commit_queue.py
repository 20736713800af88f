"""`CommitQueue`: makes all writes that wait durable in one transaction (group commit).

A `CommitDriver` decides when: a thread of its own (`WritingThread`) in a real process, the event loop (`LoopDriver`)
where time is virtual (`fairway.testing`).

A write without hurry, such as the node's answer to a message, begins no transaction of its own at once: the sender of
the next message would wait for both. It shares the transaction of the next write with hurry, or is committed alone if
none follows within 2 ms.

The queue takes the writes of all channels of a file. Invariants: writes become durable, and are answered, in the order
of `CommitQueue.submit`. After a write has failed, neither it nor a later one is tried (fail-stop), because later writes
build on earlier ones. Answers are given on the thread of the driver, or on one that opens or closes a channel.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from fairway.errors import StorageError, copy_of
from fairway.events import MessageReceived
from fairway.storage.channel_store import StoredRequest, Write

_LOG: Final = logging.getLogger(__name__)
_LINGER_S: Final = 0.002
"""Longest time that a write without hurry waits for one with hurry."""

Done = Callable[[StorageError | None], None]


class Entry(NamedTuple):
    """A write under way."""

    channel: int
    """The number of the channel in the store."""
    write: Write
    done: Done


class CommitDriver(ABC):
    """Decides when the writes of one queue are committed."""

    @abstractmethod
    def start(self, empty: Callable[[], None]) -> None:
        """Start; ``empty`` commits the queued writes, and must not run twice at the same time."""

    @abstractmethod
    def wake(self, *, hurry: bool) -> None:
        """Call ``empty`` soon; without hurry, wait briefly for a wake with hurry.

        The queue calls this for its first write, and for the first one with hurry.
        """

    @abstractmethod
    def finish(self) -> None:
        """Call ``empty`` for the last time, and return when it has finished."""


class _Signal(Enum):
    COMMIT = "commit"
    LINGER = "linger"
    END = "end"


class WritingThread(CommitDriver):
    """Commits on a thread of its own, as soon as it is woken and the last commit has finished."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[_Signal] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, empty: Callable[[], None]) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, args=(empty,), name="fairway-store", daemon=True)
        self._thread.start()

    def wake(self, *, hurry: bool) -> None:
        """Wake the thread. Cheap; can be called from any thread."""
        self._signals.put(_Signal.COMMIT if hurry else _Signal.LINGER)

    def finish(self) -> None:
        """Commit the queued writes, and end the thread."""
        self._signals.put(_Signal.END)
        if self._thread is not None:
            self._thread.join()

    def _run(self, empty: Callable[[], None]) -> None:
        signal = None
        while signal is not _Signal.END:
            signal = self._signals.get()
            if signal is _Signal.LINGER:
                with suppress(Empty):
                    signal = self._signals.get(timeout=_LINGER_S)
            empty()


class LoopDriver(CommitDriver):
    """Commits on an event loop with virtual time, which would pass while a thread writes."""

    def __init__(self, schedule: Callable[[Callable[[], None]], asyncio.Handle]) -> None:
        """Commit when ``schedule`` calls its argument."""
        self._schedule = schedule
        self._empty: Callable[[], None] | None = None
        self._handle: asyncio.Handle | None = None

    @property
    def is_due(self) -> bool:
        """Whether a commit is under way."""
        return self._handle is not None

    def start(self, empty: Callable[[], None]) -> None:
        """Keep the function for the first write."""
        self._empty = empty

    def wake(self, *, hurry: bool) -> None:
        """Schedule a commit, unless one is scheduled."""
        del hurry
        if self._handle is None:
            self._handle = self._schedule(self.finish)

    def finish(self) -> None:
        """Commit the queued writes now."""
        self.cancel()
        if self._empty is not None:
            self._empty()

    def cancel(self) -> None:
        """Commit nothing more; the queue keeps its writes."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class CommitQueue:
    """A queue of writes, which a driver commits."""

    def __init__(
        self,
        commit: Callable[[list[Entry]], None],
        housekeeping: Callable[[], None],
        driver: CommitDriver,
    ) -> None:
        """Start the driver.

        ``commit`` makes entries durable or raises `StorageError`. ``housekeeping`` is called after the answers of each
        commit, and may raise `StorageError` too.
        """
        self._commit = commit
        self._housekeeping = housekeeping
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        """Held during a commit, and while another thread uses the store's connection (`paused`)."""
        self._queued: list[Entry] = []
        self._in_commit: list[Entry] = []
        self._is_hurried = False
        """Whether a queued write has hurry."""
        self._closing = False
        self.error: StorageError | None = None
        """The error of a failed write; later writes are not tried."""
        self._driver = driver
        driver.start(self._empty)

    def submit(self, channel: int, write: Write, done: Done, *, hurry: bool = True) -> None:
        """Queue a write of a channel. Cheap: nothing is encoded here."""
        with self._lock:
            queued, is_open = self._queued, not self._closing
            wakes = not queued or (hurry and not self._is_hurried)
            if is_open:
                self._is_hurried |= hurry
                queued.append(Entry(channel, write, done))
        if not is_open:
            done(StorageError("the store is being closed: nothing more is written"))
        elif wakes:
            self._driver.wake(hurry=hurry)

    def request(self, channel: int, request_id: str) -> StoredRequest | None:
        """Return a request that is not yet durable, or None."""
        entries = (entry for entry in reversed(self._uncommitted()) if entry.channel == channel)
        requests = (request for entry in entries for request in entry.write.requests)
        return next((request for request in requests if request.request_id == request_id), None)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox that is not yet durable, or None."""
        delivered = (pair for entry in self._uncommitted() for pair in entry.write.delivered)
        return next((message for given, message in delivered if given == number), None)

    def _uncommitted(self) -> list[Entry]:
        with self._lock:
            return [*self._in_commit, *self._queued]

    def close(self) -> None:
        """Commit the queued writes, and end the driver. Must not be called from an answer."""
        with self._lock:
            self._closing = True
        self._driver.finish()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Commit the queued writes on this thread, and let the block use the connection before the next commit.

        Must not be called from an answer.
        """
        with self._committing:
            self._commit_queued()
            yield

    def check(self) -> None:
        """Raise the error of a failed write."""
        if self.error is not None:
            raise copy_of(self.error)

    def _empty(self) -> None:
        with self._committing:
            self._commit_queued()

    def _commit_queued(self) -> None:
        with self._lock:
            self._in_commit, self._queued, self._is_hurried = self._queued, [], False
        if self._in_commit:
            self._write(self._in_commit)

    def _write(self, entries: list[Entry]) -> None:
        if self.error is None:
            self._attempt(self._commit, entries)
        with self._lock:
            self._in_commit = []
        for entry in entries:
            try:
                entry.done(self.error)
            except Exception:  # noqa: BLE001 - the other writes still need their answers
                _LOG.exception("the answer to a write raised")
        if self.error is None:
            self._attempt(self._housekeeping)

    def _attempt(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except StorageError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the waiting writes must get the error
            self.error = StorageError(f"a write failed: {type(error).__name__}: {error}")
            self.error.__cause__ = error
