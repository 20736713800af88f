"""`DatabaseArchive`: a service node's archive in a database, written and read on threads of its own.

One thread writes, each time all messages since its last transaction. A few threads read, each over its own connection.
One more removes old messages and creates a missing index by topics. `NodeArchive` has the guarantees for callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, Self

from fairway.errors import StoreQueryError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.service.archive_pages import page_of
from fairway.service.archive_writer import ArchiveWriter, Waiting, in_thread
from fairway.service.archives import ArchiveStatistics, NodeArchive, Retention
from fairway.service.reader_pool import ReaderPool
from fairway.service.upkeep import Upkeep, UpkeepLoop
from fairway.storage.archive import ArchivedId, ArchiveEntry, PagedArchive
from fairway.storage.nwaku_pages import MAX_MERGED_TOPICS
from fairway.storage.nwaku_upkeep import NwakuUpkeep

QUERY_LIMIT_S: Final = 5.0
"""Longest time for which a query reads; after it the query raises an error."""
FLUSH_LIMIT_S: Final = 2.0
"""Longest time for which a query waits until the messages put before it are written. After it, for example on a full
disk, the query reads without them."""
_CLOSE_LIMIT_S: Final = 10.0
Threads = tuple[ThreadPoolExecutor, ThreadPoolExecutor]
"""The thread that writes, and the thread of the upkeep."""


class Tables(Protocol):
    """The tables for messages; used in one thread, except ``added``."""

    added: int
    """Number of new messages written."""

    def write(self, entries: Sequence[ArchiveEntry], /) -> int:
        """Write messages, and return how many the tables cannot hold; raises `StorageError`."""

    def close(self) -> None:
        """Close the connection to the database."""


class DatabaseArchive(NodeArchive):
    """An archive in a database; made by `DatabaseArchive.open`."""

    def __init__(
        self, name: str, tables: Tables, readers: ReaderPool, upkeep: Upkeep, retention: Retention, threads: Threads
    ) -> None:
        """Use `open`."""
        self._name: Final = name
        self._tables: Final = tables
        self._readers: Final = readers
        self._upkeep: Final = upkeep
        self._writing, self._keeping = self._threads = threads
        self._writer: Final = ArchiveWriter(self._write, self._writing)
        self._queries = 0
        self._closed = False
        self._upkeep_loop: Final = UpkeepLoop(name, upkeep, self._keeping, lambda: tables.added, retention)

    @classmethod
    async def open(
        cls,
        name: str,
        *,
        tables: Callable[[], Tables],
        reader: Callable[[], PagedArchive],
        upkeep: Callable[[], Upkeep],
        retention: Retention,
    ) -> Self:
        """Open the tables, the upkeep and the readers, each in the thread that uses it; raises their errors."""
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(1, "archive-writer"), ThreadPoolExecutor(1, "archive-upkeep")
        try:
            opened = await loop.run_in_executor(threads[0], tables)
            try:
                keeper = await loop.run_in_executor(threads[1], upkeep)
                readers = await ReaderPool.open(reader)
            except BaseException:
                await loop.run_in_executor(threads[0], opened.close)
                raise
        except BaseException:
            for thread in threads:
                thread.shutdown()
            raise
        return cls(name, opened, readers, keeper, retention, threads)

    def __repr__(self) -> str:
        """Show the database, without credentials."""
        return f"<DatabaseArchive {self._name}>"

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Queue a message for writing."""
        self._writer.put(message, received_ns)

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        if self._closed:
            raise StoreQueryError("the archive is closed")
        self._queries += 1
        await self._writer.flush(FLUSH_LIMIT_S)
        return await self._readers.run(lambda reader: page_of(reader, query, cursor), slow=reads_on(query))

    async def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest messages dated ``start_ns`` or later, from the reader for slow queries."""
        if self._closed:
            raise StoreQueryError("the archive is closed")
        await self._writer.flush(FLUSH_LIMIT_S)
        return await self._readers.run(lambda reader: reader.newest_ids(start_ns, count), slow=True)

    @property
    def problem(self) -> str | None:
        """Reason why messages cannot be written now; None if they can."""
        return self._writer.problem

    async def statistics(self) -> ArchiveStatistics:
        """Return counts and sizes, without a query to the database."""
        return ArchiveStatistics(
            messages=self._upkeep_loop.messages,
            size_bytes=self._upkeep_loop.size_bytes,
            waiting=len(self._writer),
            failing=int(self._writer.problem is not None),
            dropped=self._writer.dropped,
            queries=self._queries,
        )

    async def close(self) -> None:
        """Write the queued messages, and close the database. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        if isinstance(self._upkeep, NwakuUpkeep):
            self._upkeep.stop()
        await self._upkeep_loop.stop()
        try:
            await in_thread(self._keeping, self._upkeep.close)
            await self._writer.close(_CLOSE_LIMIT_S)
            await self._readers.close()
            await in_thread(self._writing, self._tables.close)
        finally:
            for thread in self._threads:
                thread.shutdown()

    def _write(self, batch: Sequence[Waiting]) -> int:
        return self._tables.write([(one.pubsub_topic, one.message, one.message_hash, at_ns) for one, at_ns in batch])


def reads_on(query: StoreQuery) -> bool:
    """Return whether no index answers a query, so that it reads all messages of its time range until a page is full."""
    topics = len(query.content_topics)
    return not query.message_hashes and (topics > MAX_MERGED_TOPICS or bool(query.pubsub_topic and not topics))
