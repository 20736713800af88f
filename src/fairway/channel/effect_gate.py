"""`EffectGate`: releases each effect of the channel after the state behind it is durable.

The protocol changes its state at once. The gate holds the effects until the store confirms the change, and releases
them in order. So after a crash other participants have seen nothing that the store lost.

If the store fails, or its `submit` raises, the gate never releases the held effects, as after a crash of the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from fairway.errors import StorageError, copy_of
from fairway.foreign_code import as_exception
from fairway.storage.channel_store import ChannelStore, Write
from fairway.waiters import Waiters

Item = TypeVar("Item")


class _Entry(Generic[Item]):
    """A write that the store has not confirmed, and the items that wait for it."""

    __slots__ = ("hurry", "is_confirmed", "items", "waiter")

    def __init__(self, items: list[Item], *, hurry: bool) -> None:
        self.items = items
        self.hurry = hurry
        self.waiter: asyncio.Future[None] | None = None
        self.is_confirmed = False


class EffectGate(Generic[Item]):
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
        self._answers: deque[StorageError | None] = deque()
        self._is_submitting = False
        self._is_scheduled = False
        self._is_draining = False
        self._waiters = Waiters()
        self._released = 0
        """Number of entries that left the gate."""
        self.error: StorageError | None = None
        """The store's error. After it the gate releases nothing."""

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self, write: Write | None, items: list[Item], *, wait: bool = False, hurry: bool = True
    ) -> asyncio.Future[None] | None:
        """Release items when ``write`` and all writes before it are durable.

        With ``wait`` return a future of that, or None if they are durable already. Cancelling the future does not
        cancel the write. For ``hurry`` see `ChannelStore.submit`. Raises the store's error if the store has failed.
        """
        if self.error is not None:
            raise copy_of(self.error)
        if write is None and self._pending and (self._pending[-1].hurry or not hurry):
            self._pending[-1].items.extend(items)
            return None
        entry = _Entry(items, hurry=hurry)
        is_first = not self._pending
        self._pending.append(entry)
        if write is None and is_first:
            self._answers.append(None)
        else:
            self._submit(write or Write(), hurry=hurry)
        if self._answers and not self._is_scheduled:
            self._drain()
        if not wait or entry.is_confirmed:
            return None
        if self.error is not None:
            raise copy_of(self.error)
        entry.waiter = self._loop.create_future()
        return entry.waiter

    def waiting(self) -> Iterator[Item]:
        """Yield the items that wait for the store."""
        return (item for entry in self._pending for item in entry.items)

    async def room(self, at_most: int) -> None:
        """Wait until at most ``at_most`` writes are not confirmed."""
        while len(self._pending) > at_most and self.error is None:
            await self._waiters.wait()

    async def passed(self) -> None:
        """Wait until all writes submitted so far are confirmed; do not wait for later ones."""
        until = self._released + len(self._pending)
        while self._released < until and self.error is None:
            await self._waiters.wait()

    def _submit(self, write: Write, *, hurry: bool) -> None:
        self._is_submitting = True
        try:
            self._store.submit(write, self._done, hurry=hurry)
        except BaseException as error:  # noqa: BLE001 - the store may be the application's
            self._done(_storage_error(as_exception("the store's submit", error)))
        finally:
            self._is_submitting = False

    def _done(self, error: StorageError | None) -> None:
        """Take the store's answer to the oldest write without one; may be called on any thread."""
        self._answers.append(error)
        if not (self._is_submitting or self._is_scheduled):
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The event loop and all waiting tasks have ended.
                self._answers.clear()

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
                    entry.is_confirmed = True
                    if entry.waiter is not None and not entry.waiter.done():
                        entry.waiter.set_result(None)
                    for item in entry.items:
                        self._release(item)
                else:
                    self._fail(error, entry)
        finally:
            self._is_draining = False
            self._waiters.wake()

    def _fail(self, error: StorageError | None, entry: _Entry[Item]) -> None:
        first = self.error is None
        self.error = self.error or error
        if self.error is not None and entry.waiter is not None and not entry.waiter.done():
            entry.waiter.set_exception(copy_of(self.error))
        if first and self.error is not None:
            self._failed(self.error)


def _storage_error(cause: Exception) -> StorageError:
    if isinstance(cause, StorageError):
        return cause
    error = StorageError(f"the store's submit raised {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
