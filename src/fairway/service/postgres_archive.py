"""A service node's archive in PostgreSQL, in the tables of nwaku: several nodes, nwaku among them, may share one.

One thread writes, a few read, one looks after the tables, each over a connection of its own that is made anew when the
server was restarted. While the server is away messages wait, as many as `ArchiveWriter` holds, and queries are refused.
A message is not kept if its timestamp lies more than an hour ahead, or longer ago than the retention or a month. See
`NodeArchive` for what is promised; of the age only whole hours go, so a message may stay an hour longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Self

from fairway.errors import StoreQueryError
from fairway.service.archive_writer import ArchiveWriter, Waiting, in_thread
from fairway.service.archives import ArchiveStatistics, NodeArchive, Retention
from fairway.service.reader_pool import ReaderPool
from fairway.service.sqlite_archive import FLUSH_LIMIT_S, QUERY_LIMIT_S, reads_on
from fairway.service.upkeep import UpkeepLoop
from fairway.storage.postgres_archive import place_without_credentials
from fairway.storage.postgres_pages import PostgresPages
from fairway.storage.postgres_writer import PostgresUpkeep, PostgresWriter
from fairway.waku.local.archive import page_of
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery

_CLOSE_LIMIT_S: Final = 10.0


class PostgresNodeArchive(NodeArchive):
    """Made by `PostgresNodeArchive.open`."""

    def __init__(
        self,
        name: str,
        tables: PostgresWriter,
        upkeep: PostgresUpkeep,
        readers: ReaderPool[PostgresPages],
        threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    ) -> None:
        self._name: Final = name
        self._tables: Final = tables
        self._upkeep: Final = upkeep
        self._readers: Final = readers
        self._threads: Final = threads
        self._writer: Final = ArchiveWriter(self._write, threads[0])
        self._queries = 0
        self._closed = False
        self._looking_after: Final = UpkeepLoop(name, upkeep, threads[1], lambda: tables.added)

    @classmethod
    async def open(cls, uri: str, retention: Retention, *, query_limit_s: float = QUERY_LIMIT_S) -> Self:
        """Connect, and make the tables where there are none.

        Raises `ConfigurationError` for a URI that is none or without psycopg, `SnapshotError` for tables of another
        version, `StorageError` if the server cannot be reached.
        """
        threads = ThreadPoolExecutor(1, "archive-writer"), ThreadPoolExecutor(1, "archive-upkeep")
        tables = PostgresWriter(uri, max_age_s=retention.max_age_s)
        try:
            await asyncio.get_running_loop().run_in_executor(threads[0], tables.prepare)
            readers = await ReaderPool.open(partial(PostgresPages, uri, read_limit_s=query_limit_s))
        except BaseException:
            tables.close()
            for thread in threads:
                thread.shutdown()
            raise
        upkeep = PostgresUpkeep(uri, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
        return cls(place_without_credentials(uri), tables, upkeep, readers, threads)

    def __repr__(self) -> str:
        """Show the database, without credentials."""
        return f"<PostgresNodeArchive {self._name}>"

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message, soon."""
        self._writer.put(message, received_ns)

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        if self._closed:
            raise StoreQueryError("the archive is closed")
        self._queries += 1
        await self._writer.flush(FLUSH_LIMIT_S)
        return await self._readers.run(lambda file: page_of(file, query, cursor, lambda _: True), slow=reads_on(query))

    async def statistics(self) -> ArchiveStatistics:
        """Return what the archive holds and has done, without looking into it."""
        return ArchiveStatistics(
            messages=self._looking_after.messages,
            size_bytes=self._looking_after.size_bytes,
            waiting=len(self._writer),
            dropped=self._writer.dropped,
            queries=self._queries,
        )

    async def close(self) -> None:
        """Write what is waiting, and let go of the database. May be called twice."""
        if self._closed:
            return
        self._closed = True
        await self._looking_after.stop()
        try:
            await self._writer.close(_CLOSE_LIMIT_S)
            await self._readers.close()
            await in_thread(self._threads[0], self._tables.close)
            await in_thread(self._threads[1], self._upkeep.close)
        finally:
            for thread in self._threads:
                thread.shutdown()

    def _write(self, batch: Sequence[Waiting]) -> int:
        return self._tables.write(
            [
                (message.pubsub_topic, message.message, message.message_hash, received_ns)
                for message, received_ns in batch
            ]
        )
