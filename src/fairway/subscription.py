"""`Subscription`: a bounded queue from a node to one reader.

A slow reader does not delay the network or increase memory: beyond the bound the queue drops and counts the oldest
items. A reliable channel retrieves dropped messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Self, TypeVar

from fairway.waiters import Waiters

Item = TypeVar("Item")

_MAX_ITEMS: Final = 10_000
_MAX_BYTES: Final = 134_217_728


class Subscription(Generic[Item]):
    """An async iterator over arriving items. After `close` it yields the waiting items, then ends."""

    def __init__(
        self,
        *,
        on_close: Callable[[], None] = lambda: None,
        max_items: int = _MAX_ITEMS,
        size_of: Callable[[Item], int] = lambda _: 0,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        """Create an empty queue; ``on_close`` is called once, when the reader or the node closes it.

        The queue holds at most ``max_items`` and, by ``size_of``, at most ``max_bytes``; the newest item always stays.
        """
        self.dropped = 0
        """Number of items dropped for newer ones."""
        self._items: deque[Item] = deque()
        self._max_items = max_items
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._bytes = 0
        self._on_close = on_close
        self._waiters = Waiters()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def waiting_bytes(self) -> int:
        """Size of the waiting items by ``size_of``."""
        return self._bytes

    def put(self, item: Item) -> None:
        """Add an item, unless the subscription is closed."""
        if self._closed:
            return
        self._bytes += self._size_of(item)
        while self._items and (len(self._items) >= self._max_items or self._bytes > self._max_bytes):
            self._next()
            self.dropped += 1
        self._items.append(item)
        self._waiters.wake()

    def take(self) -> list[Item]:
        """Return all waiting items, without waiting."""
        items = list(self._items)
        self._items.clear()
        self._bytes = 0
        return items

    def close(self) -> None:
        """End the iteration; repeated calls are allowed."""
        if not self._closed:
            self._closed = True
            self._waiters.wake()
            self._on_close()

    async def next_batch(self) -> list[Item]:
        """Wait for at least one item and return all waiting items; an empty list means the end."""
        await self._until_there()
        return self.take()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """Return the next item, or end the iteration if the subscription is closed."""
        await self._until_there()
        if not self._items:
            raise StopAsyncIteration
        return self._next()

    async def _until_there(self) -> None:
        """Wait for an item or the end; if an item is waiting, do not yield to the event loop."""
        while not self._items and not self._closed:
            await self._waiters.wait()

    def _next(self) -> Item:
        item = self._items.popleft()
        self._bytes -= self._size_of(item)
        return item
