"""A service node's archive in one SQLite file laid out as nwaku's, written and read away from the event loop.

One thread writes, in transactions that take in everything that came meanwhile; a few others read, each over a
connection of its own, which the write-ahead log lets them do beside the writer; one more removes what is too old and,
in a file that has none, makes the index by topics. See `NodeArchive` for what is promised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Self

from fairway.errors import StoreQueryError
from fairway.service.archive_writer import ArchiveWriter, Waiting, in_thread
from fairway.service.archives import ArchiveStatistics, NodeArchive, Retention, is_too_far_ahead
from fairway.service.reader_pool import ReaderPool
from fairway.service.upkeep import UpkeepLoop
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.nwaku_pages import MAX_MERGED_TOPICS
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.waku.local.archive import page_of
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery

QUERY_LIMIT_S: Final = 5.0
"""How long a query may read; one that takes longer is answered with an error."""
FLUSH_LIMIT_S: Final = 2.0
"""How long a query waits for what was put before it; on a full disk it is answered from what is there."""
INDEX_AT_ONCE_BYTES: Final = 16_777_216
"""A smaller file gets its index before it is used, a larger one meanwhile."""
_CLOSE_LIMIT_S: Final = 10.0


class SqliteArchive(NodeArchive):
    """Made by `SqliteArchive.open`."""

    def __init__(
        self,
        file: NwakuArchive,
        upkeep: NwakuUpkeep,
        readers: ReaderPool[NwakuArchive],
        threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    ) -> None:
        self._file: Final = file
        self._upkeep: Final = upkeep
        self._readers: Final = readers
        self._threads: Final = threads
        self._writer: Final = ArchiveWriter(self._write, threads[0])
        self._added = self._queries = 0
        self._closed = False
        self._looking_after: Final = UpkeepLoop(str(file.path), upkeep, threads[1], lambda: self._added)

    @classmethod
    async def open(cls, path: Path, retention: Retention, *, query_limit_s: float = QUERY_LIMIT_S) -> Self:
        """Open or make a file; raises what `NwakuArchive` raises."""
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(1, "archive-writer"), ThreadPoolExecutor(1, "archive-upkeep")

        def look_after() -> NwakuUpkeep:
            upkeep = NwakuUpkeep(path, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
            if upkeep.used_bytes() < INDEX_AT_ONCE_BYTES:
                upkeep.index_topics()
            return upkeep

        try:
            file = await loop.run_in_executor(threads[0], NwakuArchive, path)
            upkeep = await loop.run_in_executor(threads[1], look_after)
            readers = await ReaderPool.open(partial(NwakuArchive, path, read_only=True, read_limit_s=query_limit_s))
        except BaseException:
            for thread in threads:
                thread.shutdown()
            raise
        return cls(file, upkeep, readers, threads)

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message, soon."""
        if is_too_far_ahead(message):
            self._writer.dropped += 1
        else:
            self._writer.put(message, received_ns)

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        if self._closed:
            raise StoreQueryError("the archive is closed")
        self._queries += 1
        await self._writer.flush(FLUSH_LIMIT_S)
        return await self._readers.run(lambda file: page_of(file, query, cursor, lambda _: True), slow=reads_on(query))

    async def statistics(self) -> ArchiveStatistics:
        """Return what the archive holds and has done, without looking into the file."""
        return ArchiveStatistics(
            messages=self._looking_after.messages,
            size_bytes=self._looking_after.size_bytes,
            waiting=len(self._writer),
            dropped=self._writer.dropped,
            queries=self._queries,
        )

    async def close(self) -> None:
        """Write what is waiting, and close the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._upkeep.stop()
        await self._looking_after.stop()
        try:
            await in_thread(self._threads[1], self._upkeep.close)
            await self._writer.close(_CLOSE_LIMIT_S)
            await self._readers.close()
            await in_thread(self._threads[0], self._file.close)
        finally:
            for thread in self._threads:
                thread.shutdown()

    def _write(self, batch: Sequence[Waiting]) -> int:
        before = self._file.added
        for message, received_ns in batch:
            self._file.append(message.pubsub_topic, message.message, message.message_hash, received_ns=received_ns)
        self._file.flush()
        self._added += self._file.added - before
        return 0


def reads_on(query: StoreQuery) -> bool:
    """Return whether a query is answered by reading on until there is enough, instead of by an index."""
    topics = len(query.content_topics)
    return not query.message_hashes and (topics > MAX_MERGED_TOPICS or bool(query.pubsub_topic and not topics))
