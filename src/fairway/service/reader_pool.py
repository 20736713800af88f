"""A few readers of an archive, each on a thread of its own, shared by all queries.

Invariants: a reader serves one query at a time; what can only be answered by reading through the archive has readers
apart, so that it never stands in the way of what an index answers; the queries that wait are bounded in number and in
time, and one that would cross either bound is refused at once with `StorageError`. How long a query may take once it
has a reader is the reader's own business.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from fairway.errors import FairwayError, StorageError, StoreQueryError

FAST_READERS: Final = 3
SLOW_READERS: Final = 1
MAX_QUEUED: Final = 64
"""Queries that may wait for a reader, of each kind."""
QUEUE_LIMIT_S: Final = 10.0
"""How long a query waits for a reader at most."""


class Reader(Protocol):
    """An open archive, used in one thread."""

    def close(self) -> None:
        """Let go of the archive."""


R = TypeVar("R", bound=Reader)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat(Generic[R]):
    reader: R
    thread: ThreadPoolExecutor


class ReaderPool(Generic[R]):
    """Made by `ReaderPool.open`."""

    def __init__(self, seats: list[_Seat[R]], slow: int, max_queued: int) -> None:
        self._seats: Final = seats
        self._max_queued: Final = max_queued
        self._fast: Final = _Queue(seats[slow:])
        self._slow: Final = _Queue(seats[:slow])
        self._running: Final[set[asyncio.Future[Any]]] = set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        open_reader: Callable[[], R],
        *,
        fast: int = FAST_READERS,
        slow: int = SLOW_READERS,
        max_queued: int = MAX_QUEUED,
    ) -> Self:
        """Open the readers, each in its own thread; raises what opening one raises."""
        seats: list[_Seat[R]] = []
        try:
            for number in range(fast + slow):
                thread = ThreadPoolExecutor(1, f"archive-reader-{number}")
                try:
                    reader = await asyncio.get_running_loop().run_in_executor(thread, open_reader)
                except BaseException:
                    thread.shutdown()
                    raise
                seats.append(_Seat(reader=reader, thread=thread))
        except BaseException:
            await _close(seats)
            raise
        return cls(seats, slow, max_queued)

    async def run(self, work: Callable[[R], T], *, slow: bool = False) -> T:
        """Return what ``work`` returns, done by a reader.

        Raises `StorageError` if too many are waiting already, or if the archive fails; `StoreQueryError` as ``work``
        does.
        """
        if self._closed:
            raise StorageError("the archive is closed")
        queue = self._slow if slow else self._fast
        if queue.waiting >= self._max_queued:
            raise StorageError(f"{queue.waiting} queries are waiting for the archive already; ask again later")
        seat = await queue.take()
        future = asyncio.get_running_loop().run_in_executor(seat.thread, work, seat.reader)
        # The reader is free when its thread is done, not when the one who asked has left.
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        future.add_done_callback(lambda _: queue.put(seat))
        try:
            return await asyncio.shield(future)
        except (StoreQueryError, StorageError):
            raise
        except (sqlite3.Error, OSError, FairwayError) as error:
            raise StorageError(f"the archive failed: {error}") from error

    async def close(self) -> None:
        """Wait for the queries that are being answered, and close the readers. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*self._running, return_exceptions=True)
        await _close(self._seats)


class _Queue(Generic[R]):
    """Readers that are free, and the queries that wait for one, in their order."""

    def __init__(self, seats: list[_Seat[R]]) -> None:
        self._free: Final[asyncio.Queue[_Seat[R]]] = asyncio.Queue()
        self.waiting = 0
        for seat in seats:
            self.put(seat)

    def put(self, seat: _Seat[R]) -> None:
        self._free.put_nowait(seat)

    async def take(self) -> _Seat[R]:
        self.waiting += 1
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                return await self._free.get()
        except TimeoutError as error:
            raise StorageError(f"no reader of the archive was free for {QUEUE_LIMIT_S:g} s; ask again later") from error
        finally:
            self.waiting -= 1


async def _close(seats: list[_Seat[R]]) -> None:
    for seat in seats:
        await asyncio.get_running_loop().run_in_executor(seat.thread, seat.reader.close)
        seat.thread.shutdown()
