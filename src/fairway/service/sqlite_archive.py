"""A service node's archive in one SQLite file laid out as nwaku's.

Readers have connections of their own, which the write-ahead log lets them use beside the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from fairway.service.archives import Retention, is_too_far_ahead
from fairway.service.database_archive import QUERY_LIMIT_S, DatabaseArchive, Threads
from fairway.service.reader_pool import ReaderPool
from fairway.storage.archive import ArchiveEntry, PagedArchive
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.nwaku_upkeep import NwakuUpkeep

INDEX_AT_ONCE_BYTES: Final = 16_777_216
"""A smaller file gets its index before it is used, a larger one meanwhile."""


async def open_sqlite(path: Path, retention: Retention, *, query_limit_s: float = QUERY_LIMIT_S) -> DatabaseArchive:
    """Open or make a file; raises what `NwakuArchive` raises."""
    loop = asyncio.get_running_loop()
    threads = Threads()

    def look_after() -> NwakuUpkeep:
        upkeep = NwakuUpkeep(path, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
        if upkeep.used_bytes() < INDEX_AT_ONCE_BYTES:
            upkeep.index_topics()
        return upkeep

    try:
        file = await loop.run_in_executor(threads.writer, NwakuArchive, path)
        upkeep = await loop.run_in_executor(threads.upkeep, look_after)
        readers: ReaderPool[PagedArchive] = await ReaderPool.open(
            partial(NwakuArchive, path, read_only=True, read_limit_s=query_limit_s)
        )
    except BaseException:
        threads.shutdown()
        raise
    return DatabaseArchive(str(path), _File(file), readers, upkeep, threads, break_off=upkeep.stop)


class _File:
    """The file as its writer has it."""

    def __init__(self, file: NwakuArchive) -> None:
        self._file: Final = file
        self.added = 0

    def write(self, entries: Sequence[ArchiveEntry]) -> int:
        before = self._file.added
        kept = [entry for entry in entries if not is_too_far_ahead(entry[1])]
        for pubsub_topic, message, message_hash, received_ns in kept:
            self._file.append(pubsub_topic, message, message_hash, received_ns=received_ns)
        self._file.flush()
        self.added += self._file.added - before
        return len(entries) - len(kept)

    def close(self) -> None:
        self._file.close()
