"""What an archive does beside writing and reading: indexes, retention, and knowing how much there is.

Invariant: asking for the figures costs nothing. Messages are counted anew only as often as that takes a hundredth of
the time; in between what was added and removed is counted.
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
    """Looks after one archive; used in one thread."""

    def close(self) -> None:
        """Let go of the archive."""

    def unindexed(self) -> list[str]:
        """Return the parts that lack the index by topics."""

    def index_topics(self, part: str) -> None:
        """Make that index for one of them."""

    def enforce(self, now_ns: int) -> int:
        """Remove what may not stay, and return how many messages that was."""

    def size(self) -> tuple[int, int]:
        """Return how many messages there are, by counting them, and the bytes that they take."""

    def used_bytes(self) -> int:
        """Return the bytes that the messages take."""


class UpkeepLoop:
    """Looks after an archive now and then until it is cancelled; ``added`` says how many messages were ever added."""

    def __init__(self, name: str, upkeep: Upkeep, thread: ThreadPoolExecutor, added: Callable[[], int]) -> None:
        self._name: Final = name
        self._upkeep: Final = upkeep
        self._thread: Final = thread
        self._added: Final = added
        self._counted = self._removed = self._added_before = 0
        self._count_at_s = 0.0
        self.size_bytes = 0
        """When the archive was last looked after."""
        self._tasks: Final = OwnedTasks()
        self._tasks.spawn(self._run())

    @property
    def messages(self) -> int:
        """How many there are, as far as is known."""
        return max(0, self._counted + self._added() - self._added_before - self._removed)

    async def stop(self) -> None:
        """Wait for what is being done, and do no more."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._once()
            except StorageError as error:
                _LOG.warning("%s could not be looked after: %s", self._name, error)
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
        parts = await in_thread(self._thread, self._upkeep.unindexed)
        if not parts:
            return
        _LOG.info("%s gets an index by topics; until it has one, queries by topic are slower", self._name)
        started_s = time.monotonic()
        for part in parts:
            await in_thread(self._thread, partial(self._upkeep.index_topics, part))
        _LOG.info("%s has its index by topics, made in %.1f s", self._name, time.monotonic() - started_s)
