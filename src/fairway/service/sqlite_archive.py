"""A service node's archive in one SQLite file laid out as nwaku's, written and read away from the event loop.

One thread writes, in transactions that take in everything that came meanwhile; another one reads over a connection of
its own, which the write-ahead log lets it do beside the writer. See `NodeArchive` for what is promised.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from fairway.errors import FairwayError, StorageError, StoreQueryError
from fairway.service.archives import ArchiveStatistics, NodeArchive, Retention
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.waku.local.archive import ArchiveStore
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery

FLUSH_AFTER_S: Final = 0.05
"""How long a message may wait before it is written, unless a query comes."""
MAX_WAITING_BYTES: Final = 67_108_864
"""Of messages that wait; beyond it, when the disk does not keep up or is full, messages are dropped."""
_UPKEEP_S: Final = 60.0

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class SqliteArchive(NodeArchive):
    """Made by `SqliteArchive.open`."""

    def __init__(
        self, writer: ThreadPoolExecutor, reader: ThreadPoolExecutor, file: NwakuArchive, upkeep: NwakuUpkeep
    ) -> None:
        self._writer: Final = writer
        self._reader: Final = reader
        self._file: Final = file
        self._upkeep: Final = upkeep
        self._pages: ArchiveStore | None = None
        self._waiting: list[tuple[RoutedMessage, int]] = []
        self._accepted_bytes = self._written_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._dropped = self._queries = 0
        self._closed = False

    @classmethod
    async def open(cls, path: Path, retention: Retention) -> Self:
        """Open or make a file; raises what `NwakuArchive` raises."""
        loop = asyncio.get_running_loop()
        writer = ThreadPoolExecutor(1, "archive-writer")
        reader = ThreadPoolExecutor(1, "archive-reader")
        try:
            file = await loop.run_in_executor(writer, NwakuArchive, path)
            upkeep = await loop.run_in_executor(
                writer, lambda: NwakuUpkeep(path, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
            )
            archive = cls(writer, reader, file, upkeep)
            archive._pages = await loop.run_in_executor(
                reader, lambda: ArchiveStore(NwakuArchive(path, read_only=True))
            )
        except BaseException:
            writer.shutdown()
            reader.shutdown()
            raise
        archive._keeping = loop.create_task(archive._keep_up())
        return archive

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message, soon."""
        if self._closed or self._accepted_bytes - self._written_bytes > MAX_WAITING_BYTES:
            self._dropped += 1
            return
        self._waiting.append((message, received_ns))
        self._accepted_bytes += len(message.encoded)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        if self._closed or self._pages is None:
            raise StoreQueryError("the archive is closed")
        self._queries += 1
        await self._write()
        pages = self._pages
        return await self._in(self._reader, lambda: pages.page(query, cursor, lambda _: True))

    async def statistics(self) -> ArchiveStatistics:
        """Return what the archive holds and has done."""
        messages, size_bytes = await self._in(self._writer, self._upkeep.size)
        return ArchiveStatistics(
            messages=messages,
            size_bytes=size_bytes,
            waiting=len(self._waiting),
            dropped=self._dropped,
            queries=self._queries,
        )

    async def close(self) -> None:
        """Write what is waiting, and close the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for task in (self._writing, self._keeping):
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, (self._writing, self._keeping)), return_exceptions=True)
        try:
            await self._write()
            if self._pages is not None:
                await self._in(self._reader, self._pages.close)
            await self._in(self._writer, self._upkeep.close)
            await self._in(self._writer, self._file.close)
        finally:
            self._writer.shutdown()
            self._reader.shutdown()

    async def _write_soon(self) -> None:
        await asyncio.sleep(FLUSH_AFTER_S)
        self._writing = None
        try:
            await self._write()
        except StorageError as error:
            _LOG.warning("messages were not kept: %s", error)

    async def _write(self) -> None:
        """Write what is waiting; what cannot be written now is tried again with what comes next."""
        batch, self._waiting = self._waiting, []
        accepted_bytes = self._accepted_bytes

        def write() -> None:
            for message, received_ns in batch:
                self._file.append(message.pubsub_topic, message.message, message.message_hash, received_ns=received_ns)
            self._file.flush()

        await self._in(self._writer, write)
        self._written_bytes = max(self._written_bytes, accepted_bytes)

    async def _keep_up(self) -> None:
        """Remove what is too old or too much, now and then."""
        while True:
            try:
                removed = await self._in(self._writer, lambda: self._upkeep.enforce(time.time_ns()))
            except StorageError as error:
                _LOG.warning("old messages could not be removed: %s", error)
            else:
                if removed:
                    _LOG.info("removed %d old messages", removed)
            await asyncio.sleep(_UPKEEP_S)

    @staticmethod
    async def _in(thread: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except StoreQueryError:
            raise
        except (sqlite3.Error, OSError, FairwayError) as error:
            raise StorageError(f"the archive failed: {error}") from error
