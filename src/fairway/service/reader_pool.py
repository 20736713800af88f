"""`ReaderPool`: a few readers of an archive, each on a thread of its own, shared by all queries.

A reader answers one query at a time. Slow queries, which no index answers, have a reader of their own and do not delay
the others. The number and the time of waiting queries are bounded; beyond either bound a query raises `StorageError`.
The reader itself limits the time of a query.
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
"""Most fast queries that wait for a reader, and most slow ones."""
QUEUE_LIMIT_S: Final = 10.0
"""Longest time for which a query waits for a reader."""

T = TypeVar("T")


class _Seat(NamedTuple):
    reader: PagedArchive
    thread: ThreadPoolExecutor


class ReaderPool:
    """Made by `ReaderPool.open`."""

    def __init__(self) -> None:
        self._seats: Final[list[_Seat]] = []
        self._fast: Final[asyncio.Queue[_Seat]] = asyncio.Queue()
        self._slow: Final[asyncio.Queue[_Seat]] = asyncio.Queue()
        self._waiting = {False: 0, True: 0}
        """Queries that wait for a reader, fast and slow."""
        self._running: Final[set[asyncio.Future[Any]]] = set()
        self._closed = False

    @classmethod
    async def open(cls, open_reader: Callable[[], PagedArchive]) -> Self:
        """Open the readers, each in its own thread; raises the errors of ``open_reader``."""
        pool = cls()
        try:
            for number in range(SLOW_READERS + FAST_READERS):
                thread = ThreadPoolExecutor(1, f"archive-reader-{number}")
                try:
                    reader = await asyncio.get_running_loop().run_in_executor(thread, open_reader)
                except BaseException:
                    thread.shutdown()
                    raise
                seat = _Seat(reader, thread)
                pool._seats.append(seat)
                (pool._slow if number < SLOW_READERS else pool._fast).put_nowait(seat)
        except BaseException:
            await pool.close()
            raise
        return pool

    async def run(self, work: Callable[[PagedArchive], T], *, slow: bool = False) -> T:
        """Call ``work`` with a reader, on its thread, and return the result.

        ``slow``: no index answers the query. Raises `StorageError` if `MAX_QUEUED` queries are waiting, no reader is
        free within `QUEUE_LIMIT_S`, or the archive fails; passes on a `StoreQueryError` of ``work``.
        """
        if self._closed:
            raise StorageError("the archive is closed")
        free = self._slow if slow else self._fast
        seat = await self._take(free, slow=slow)
        future = asyncio.get_running_loop().run_in_executor(seat.thread, work, seat.reader)
        # The reader is free when its thread has finished, also if the caller was cancelled before.
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        future.add_done_callback(lambda _: free.put_nowait(seat))
        try:
            return await asyncio.shield(future)
        except (StoreQueryError, StorageError):
            raise
        except (sqlite3.Error, OSError, FairwayError) as error:
            raise StorageError(f"the archive failed: {error}") from error

    async def close(self) -> None:
        """Wait for the running queries, and close the readers. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*self._running, return_exceptions=True)
        for seat in self._seats:
            await asyncio.get_running_loop().run_in_executor(seat.thread, seat.reader.close)
            seat.thread.shutdown()

    async def _take(self, free: asyncio.Queue[_Seat], *, slow: bool) -> _Seat:
        if self._waiting[slow] >= MAX_QUEUED:
            raise StorageError(f"{MAX_QUEUED} queries are waiting for the archive already; query again later")
        self._waiting[slow] += 1
        try:
            async with asyncio.timeout(QUEUE_LIMIT_S):
                return await free.get()
        except TimeoutError as error:
            raise StorageError(f"no reader was free for {QUEUE_LIMIT_S:g} s; query again later") from error
        finally:
            self._waiting[slow] -= 1
