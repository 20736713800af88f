"""`GroupCommit`: writes that wait at the same time are made durable in one transaction.

When that happens is a matter of the `CommitDriver`: a thread of its own (`WritingThread`) in a real process, a timer of
the event loop where time and disk are simulated (`fairway.testing`).

Invariants: writes become durable in the order in which they were submitted and are answered in that order; after one
failed, neither it nor any later one is tried again (fail-stop), for what is built on a write that is not there would be
worse than nothing. Answers are given where the driver empties the queue: on the writing thread.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from fairway.errors import StorageError
from fairway.events import MessageReceived
from fairway.storage.channel_store import StoredRequest, TracePoint, Write

_LOG = logging.getLogger(__name__)

Done = Callable[[StorageError | None], None]


class Entry(NamedTuple):
    """A write under way."""

    write: Write
    first_point: int
    """Number of its first trace point in the store."""
    done: Done


class CommitDriver(ABC):
    """Commits the writes of one queue, some time after it was woken."""

    @abstractmethod
    def start(self, empty: Callable[[], None]) -> None:
        """Begin; ``empty`` makes durable what is queued when it is called, and must not run twice at once."""

    @abstractmethod
    def wake(self) -> None:
        """Call ``empty`` later; called when an empty queue gets a write."""

    @abstractmethod
    def finish(self) -> None:
        """Empty the queue for the last time, and return when that is done."""


class WritingThread(CommitDriver):
    """Empties a queue on a thread of its own, as soon as it is woken and the last time is over."""

    def __init__(self) -> None:
        self._goes_on: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, empty: Callable[[], None]) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, args=(empty,), name="fairway-store", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread go on. Cheap, and possible from any thread."""
        self._goes_on.put(True)

    def finish(self) -> None:
        """End the thread."""
        self._goes_on.put(False)
        if self._thread is not None:
            self._thread.join()

    def _run(self, empty: Callable[[], None]) -> None:
        while self._goes_on.get():
            empty()
        empty()


class GroupCommit:
    """A queue of writes, which a driver empties."""

    def __init__(
        self,
        commit: Callable[[list[Entry]], None],
        housekeeping: Callable[[], None],
        next_point: int,
        driver: CommitDriver,
    ) -> None:
        """Begin to write.

        ``commit`` makes entries durable or raises `StorageError`; ``housekeeping`` is called between commits, after
        the answers were given, and may raise `StorageError` too; ``next_point`` is the number of the next trace point.
        """
        self._commit = commit
        self._housekeeping = housekeeping
        self._next_point = next_point
        self._lock = threading.Lock()
        self._queued: list[Entry] = []
        self._in_commit: list[Entry] = []
        self._requests: dict[str, StoredRequest] = {}
        self._closing = False
        self.error: StorageError | None = None
        """The error after which nothing more is written."""
        self._driver = driver
        driver.start(self._empty)

    def submit(self, write: Write, done: Done) -> None:
        """Queue a write. Cheap: nothing is encoded here."""
        with self._lock:
            queued, is_open = self._queued, not self._closing
            if is_open:
                queued.append(Entry(write, self._next_point, done))
                self._next_point += len(write.trace)
                for request in write.requests:
                    self._requests[request.request_id] = request
        if not is_open:
            done(StorageError("the store is being closed: nothing more is written"))
        elif len(queued) == 1:
            self._driver.wake()

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request from the writes under way."""
        return self._requests.get(request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox from the writes under way."""
        with self._lock:
            entries = [*self._in_commit, *self._queued]
        delivered = (pair for entry in entries for pair in entry.write.delivered)
        return next((message for given, message in delivered if given == number), None)

    def points(self) -> tuple[int | None, list[TracePoint]]:
        """Return the trace points of the writes under way, and the number of the first; None without writes."""
        with self._lock:
            entries = [*self._in_commit, *self._queued]
        if not entries:
            return None, []
        return entries[0].first_point, [point for entry in entries for point in entry.write.trace]

    def close(self) -> None:
        """Finish the writes under way. Not to be called from an answer."""
        with self._lock:
            self._closing = True
        self._driver.finish()

    def _empty(self) -> None:
        with self._lock:
            self._in_commit, self._queued = self._queued, []
        if self._in_commit:
            self._write(self._in_commit)

    def _write(self, entries: list[Entry]) -> None:
        if self.error is None:
            self._attempt(self._commit, entries)
        with self._lock:
            self._in_commit = []
            for entry in entries:
                for request in entry.write.requests:
                    if self._requests.get(request.request_id) is request:
                        del self._requests[request.request_id]
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
