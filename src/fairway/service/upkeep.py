"""The upkeep of an archive: creates missing indexes, removes old messages, and measures the archive.

Invariant: the number of messages and the size are known without a query. Counting all messages takes at most a
hundredth of the time; in between, the number follows from the messages added and removed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from fairway.errors import StorageError
from fairway.owned_tasks import OwnedTasks
from fairway.service.archive_writer import in_thread
from fairway.service.archives import Retention
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.storage.postgres_writer import PostgresUpkeep
from fairway.units import NS_PER_S, counted

EVERY_S: Final = 60.0
_COUNT_SHARE: Final = 0.01
_DAY_S: Final = 86_400.0

Upkeep = NwakuUpkeep | PostgresUpkeep
_LOG: Final = logging.getLogger(__name__)


class UpkeepLoop:
    """Runs the upkeep of an archive every `EVERY_S` until `stop`."""

    def __init__(
        self, name: str, upkeep: Upkeep, thread: ThreadPoolExecutor, added: Callable[[], int], retention: Retention
    ) -> None:
        """Start; ``added`` returns how many messages were written to the archive since it was opened."""
        self._name: Final = name
        self._upkeep: Final = upkeep
        self._thread: Final = thread
        self._added: Final = added
        self._retention: Final = retention
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
        removing_from_s: float | None = None
        while True:
            try:
                if removing_from_s is None:
                    removing_from_s = time.monotonic() + await self._notice_s()
                await self._once(removing=time.monotonic() >= removing_from_s)
            except StorageError as error:
                _LOG.warning("the upkeep of %s failed: %s", self._name, error)
            await asyncio.sleep(EVERY_S)

    async def _notice_s(self) -> float:
        """Return the wait before removing messages; log a warning if the archive has messages beyond its age."""
        max_age_s, notice_s = self._retention.max_age_s, self._retention.notice_s
        if max_age_s is None or not notice_s:
            return 0.0
        now_ns = time.time_ns()
        messages, oldest_ns = await in_thread(self._thread, partial(self._upkeep.beyond_age, now_ns))
        if not messages:
            return 0.0
        _LOG.warning(
            "%s has %s older than %s, the oldest of %s. The node removes them after %s. To keep them, stop the node "
            "before that, and give it a longer time (--keep, Retention.max_age_s)",
            self._name,
            counted(messages, "message"),
            f"{max_age_s / _DAY_S:g} days",
            _time_text(oldest_ns),
            _time_text(now_ns + round(notice_s * NS_PER_S)),
        )
        return notice_s

    async def _once(self, *, removing: bool) -> None:
        await self._index_topics()
        if removing:
            removed = await in_thread(self._thread, lambda: self._upkeep.enforce(time.time_ns()))
            self._removed += removed
            if removed:
                _LOG.info("removed %s beyond the retention", counted(removed, "message"))
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
        _LOG.info("%s gets an index by topics; queries by topic are slower until it is ready", self._name)
        started_s = time.monotonic()
        for table in tables:
            await in_thread(self._thread, partial(self._upkeep.index_topics, table))
        _LOG.info("%s has its index by topics, made in %.1f s", self._name, time.monotonic() - started_s)


def _time_text(time_ns: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns // 1_000)).strftime("%Y-%m-%d %H:%M UTC")
