"""`ReaderPool`: a few readers of an archive, each on a thread of its own, which all queries share.

Invariants: a reader answers one query at a time. Slow queries, which no index answers, have readers of their own and do
not delay the others. The queries that wait for a reader are bounded in number and in time; a query beyond either bound
raises `StorageError`. The pool does not limit the time that a query takes once it has a reader: the reader does.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Self, TypeVar

from fairway.errors import FairwayError, StorageError, StoreQueryError
from fairway.storage.archive import PagedArchive

FAST_READERS: Final = 3
SLOW_READERS: Final = 1
MAX_QUEUED: Final = 64
"""Fast queries that may wait for a reader, and slow ones."""
QUEUE_LIMIT_S: Final = 10.0
"""Longest time for which a query waits for a reader."""

T = TypeVar("T")


class _Seat(NamedTuple):
    reader: PagedArchive
    thread: ThreadPoolExecutor


class ReaderPool:
    """Made by `ReaderPool.open`."""

    def __init__(self, seats: list[_Seat]) -> None:
        self._seats: Final = seats
        self._slow: Final = _Queue(seats[:SLOW_READERS])
        self._fast: Final = _Queue(seats[SLOW_READERS:])
        self._running: Final[set[asyncio.Future[Any]]] = set()
        self._closed = False

    @classmethod
    async def open(cls, open_reader: Callable[[], PagedArchive]) -> Self:
        """Open the readers, each in its own thread; raises what ``open_reader`` raises."""
        seats: list[_Seat] = []
        try:
            for number in range(SLOW_READERS + FAST_READERS):
                thread = ThreadPoolExecutor(1, f"archive-reader-{number}")
                try:
                    reader = await asyncio.get_running_loop().run_in_executor(thread, open_reader)
                except BaseException:
                    thread.shutdown()
                    raise
                seats.append(_Seat(reader, thread))
        except BaseException:
            await _close(seats)
            raise
        return cls(seats)

    async def run(self, work: Callable[[PagedArchive], T], *, slow: bool = False) -> T:
        """Call ``work`` with a reader, on its thread, and return the result.

        ``slow`` says that no index answers the query. Raises `StorageError` if `MAX_QUEUED` queries are waiting, none
        of the readers is free within `QUEUE_LIMIT_S`, or the archive fails; passes on a `StoreQueryError` of ``work``.
        """
        if self._closed:
            raise StorageError("the archive is closed")
        queue = self._slow if slow else self._fast
        if queue.waiting >= MAX_QUEUED:
            raise StorageError(f"{queue.waiting} queries are waiting for the archive already; ask again later")
        seat = await queue.take()
        future = asyncio.get_running_loop().run_in_executor(seat.thread, work, seat.reader)
        # The reader is free when its thread has finished, even if the caller was cancelled before.
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
        """Wait for the queries that have a reader, and close the readers. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*self._running, return_exceptions=True)
        await _close(self._seats)


class _Queue:
    """The free readers of one kind, and how many queries wait for one; they get one in their order."""

    def __init__(self, seats: list[_Seat]) -> None:
        self._free: Final[asyncio.Queue[_Seat]] = asyncio.Queue()
        self.waiting = 0
        for seat in seats:
            self.put(seat)

    def put(self, seat: _Seat) -> None:
        self._free.put_nowait(seat)

    async def take(self) -> _Seat:
        self.waiting += 1
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                return await self._free.get()
        except TimeoutError as error:
            raise StorageError(f"no reader of the archive was free for {QUEUE_LIMIT_S:g} s; ask again later") from error
        finally:
            self.waiting -= 1


async def _close(seats: list[_Seat]) -> None:
    for seat in seats:
        await asyncio.get_running_loop().run_in_executor(seat.thread, seat.reader.close)
        seat.thread.shutdown()
