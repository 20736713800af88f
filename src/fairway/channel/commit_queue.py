"""`CommitQueue`: no effect leaves the channel before the state behind it is durable.

The protocol changes its state at once. This queue holds the effects until the store confirms the change, and releases
them in order. So after a crash other participants have seen nothing that the store lost. Writes that wait for a running
one are committed together (group commit, `ChannelStore.submit`).

A write without hurry, such as the node's answer to a message, begins no commit of its own right behind another one: the
sender of the next message would wait for both. It goes along with the next write that has, or alone if none comes.

If the store fails, or its `submit` raises, the held effects are never released, as if the process had ended before
them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from fairway.errors import StorageError, copy_of
from fairway.foreign_code import ForeignCode
from fairway.storage.channel_store import ChannelStore, Write

_ROUNDS: Final = 3
"""Rounds of the event loop after a commit in which those who waited for it may bring the next write."""

Item = TypeVar("Item")


class _Entry(Generic[Item]):
    """A write under way, and the items that wait for it."""

    __slots__ = ("items", "waiter")

    def __init__(self, items: list[Item], waiter: asyncio.Future[None] | None) -> None:
        self.items = items
        self.waiter = waiter


class CommitQueue(Generic[Item]):
    """Releases items in order, each after its write is durable."""

    def __init__(
        self, store: ChannelStore, release: Callable[[Item], None], failed: Callable[[StorageError], None]
    ) -> None:
        """Bind to the running event loop; ``release`` and ``failed`` are called on it."""
        self._store = store
        self._release = release
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_Entry[Item]] = deque()
        self._held: Write | None = None
        """What is written for the last entry, if the store does not have it yet."""
        self._takes_time = False
        """Whether the store answers later, so that there is something to wait for."""
        self._round: asyncio.Handle | None = None
        """The next round of the event loop in which it waits for the next write."""
        self._answers: deque[StorageError | None] = deque()
        self._is_submitting = False
        self._is_scheduled = False
        self._is_draining = False
        self._room = asyncio.Event()
        self._released = 0
        """Number of entries that left the queue."""
        self.error: StorageError | None = None
        """The store's error, after which nothing is released."""

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self, write: Write | None, items: list[Item], *, wait: bool = False, hurry: bool = True
    ) -> asyncio.Future[None] | None:
        """Release items when ``write`` and all writes before it are durable; with ``wait`` return a future of that.

        Cancelling the future does not cancel the write. Without ``hurry`` a write waits until those under way are
        durable, and may wait for the next one. Raises the store's error if the store failed before.
        """
        if self.error is not None:
            raise copy_of(self.error)
        if write is None and self._pending:
            self._pending[-1].items += items
            if hurry:
                self.flush()
            return None
        waiter = self._loop.create_future() if wait else None
        if self._held is not None and write is not None:
            write = self._held.then(write)
            items = self._pending.pop().items + items
        self._pending.append(_Entry(items, waiter))
        if write is None:
            self._answers.append(None)
            self._drain_answers()
        else:
            self._held = write
            if hurry or not self._takes_time:
                self.flush()
            else:
                self._linger()
        return waiter

    def flush(self) -> None:
        """Submit what waits for the next write."""
        if self._round is not None:
            self._round.cancel()
            self._round = None
        if self._held is not None:
            write, self._held = self._held, None
            self._is_submitting = True
            try:
                with ForeignCode("the store's submit"):
                    self._store.submit(write, self._done)
            except Exception as error:  # noqa: BLE001 - the store may be the application's
                self._done(error if isinstance(error, StorageError) else _storage_error(error))
            finally:
                self._is_submitting = False
            self._takes_time |= not self._answers
            self._drain_answers()

    def waiting(self) -> Iterator[Item]:
        """Yield the items that wait for the store."""
        return (item for entry in self._pending for item in entry.items)

    async def room(self, at_most: int) -> None:
        """Wait until at most ``at_most`` writes are under way."""
        while len(self._pending) > at_most and self.error is None:
            self._room.clear()
            await self._room.wait()

    async def passed(self) -> None:
        """Wait until all writes that are under way now are done, whatever comes behind them meanwhile."""
        until = self._released + len(self._pending)
        while self._released < until and self.error is None:
            self._room.clear()
            await self._room.wait()

    def _done(self, error: StorageError | None) -> None:
        """Take the store's answer to the oldest write without one; may be called on any thread."""
        self._answers.append(error)
        if not (self._is_submitting or self._is_scheduled):
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The event loop has ended, and with it all that waited.
                self._answers.clear()

    def _drain_answers(self) -> None:
        """Take answers that the store gave at once."""
        if self._answers and not self._is_scheduled:
            self._drain()

    def _drain(self) -> None:
        self._is_scheduled = False
        if self._is_draining:
            # Releasing an item added others: the running call releases them in order.
            return
        self._is_draining = True
        try:
            while self._answers and self._pending:
                error = self._answers.popleft()
                entry = self._pending.popleft()
                self._released += 1
                if error is None and self.error is None:
                    if entry.waiter is not None and not entry.waiter.done():
                        entry.waiter.set_result(None)
                    for item in entry.items:
                        self._release(item)
                else:
                    self._fail(error, entry)
        finally:
            self._is_draining = False
            self._room.set()
        self._linger()

    def _linger(self) -> None:
        """Wait for the next write, if another one waits for it and none is under way."""
        if self._held is not None and len(self._pending) == 1 and self._round is None:
            self._wait(_ROUNDS)

    def _wait(self, rounds: int) -> None:
        if rounds:
            self._round = self._loop.call_soon(self._wait, rounds - 1)
        else:
            self.flush()

    def _fail(self, error: StorageError | None, entry: _Entry[Item]) -> None:
        first = self.error is None
        self.error = self.error or error
        if self.error is not None and entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_exception(copy_of(self.error))
        if first and self.error is not None:
            self._failed(self.error)


def _storage_error(cause: Exception) -> StorageError:
    error = StorageError(f"the store's submit raised {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
