"""The upkeep of an archive: it creates missing indexes, removes old messages, and measures the archive.

Invariant: the number of messages and the size are known without a query. Counting all messages takes at most a
hundredth of the time; in between, the number follows from the messages added and removed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from fairway.errors import StorageError
from fairway.service.archive_writer import in_thread
from fairway.waku.owned_tasks import OwnedTasks

EVERY_S: Final = 60.0
_COUNT_SHARE: Final = 0.01

_LOG: Final = logging.getLogger(__name__)


class Upkeep(Protocol):
    """The steps of the upkeep of one archive; used in one thread."""

    def close(self) -> None:
        """Close the connection to the archive."""

    def unindexed(self) -> list[str]:
        """Return the names of the tables that lack the index by topics."""

    def index_topics(self, table: str, /) -> None:
        """Create the index by topics of one table."""

    def enforce(self, now_ns: int) -> int:
        """Remove messages beyond the retention at ``now_ns`` (Unix nanoseconds), and return their number."""

    def size(self) -> tuple[int, int]:
        """Count the messages, and return their number and their size in bytes."""

    def used_bytes(self) -> int:
        """Return the size of the messages in bytes."""


class UpkeepLoop:
    """Runs the upkeep of an archive every `EVERY_S` until `stop`."""

    def __init__(self, name: str, upkeep: Upkeep, thread: ThreadPoolExecutor, added: Callable[[], int]) -> None:
        """Start; ``added`` returns how many messages were written to the archive since it was opened."""
        self._name: Final = name
        self._upkeep: Final = upkeep
        self._thread: Final = thread
        self._added: Final = added
        self._counted = self._removed = self._added_before = 0
        self._count_at_s = 0.0
        self.size_bytes = 0
        """The size of the archive at the last upkeep."""
        self._tasks: Final = OwnedTasks()
        self._tasks.spawn(self._run())

    @property
    def messages(self) -> int:
        """The number of messages: the last count, plus the messages added since, minus those removed."""
        return max(0, self._counted + self._added() - self._added_before - self._removed)

    async def stop(self) -> None:
        """Wait for the step under way, and end."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._once()
            except StorageError as error:
                _LOG.warning("the upkeep of %s failed: %s", self._name, error)
            await asyncio.sleep(EVERY_S)

    async def _once(self) -> None:
        await self._index_topics()
        removed = await in_thread(self._thread, lambda: self._upkeep.enforce(time.time_ns()))
        self._removed += removed
        if removed:
            _LOG.info("removed %d old messages", removed)
        self.size_bytes = await in_thread(self._thread, self._upkeep.used_bytes)
        started_s = time.monotonic()
        if started_s >= self._count_at_s:
            added = self._added()
            self._counted, self.size_bytes = await in_thread(self._thread, self._upkeep.size)
            self._added_before, self._removed = added, 0
            self._count_at_s = started_s + (time.monotonic() - started_s) / _COUNT_SHARE

    async def _index_topics(self) -> None:
        tables = await in_thread(self._thread, self._upkeep.unindexed)
        if not tables:
            return
        _LOG.info("%s gets an index by topics; until it has one, queries by topic are slower", self._name)
        started_s = time.monotonic()
        for table in tables:
            await in_thread(self._thread, partial(self._upkeep.index_topics, table))
        _LOG.info("%s has its index by topics, made in %.1f s", self._name, time.monotonic() - started_s)
