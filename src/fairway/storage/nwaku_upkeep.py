"""`NwakuUpkeep`: removes old messages from a nwaku archive file, and creates its index by topics.

Invariant: messages younger than ``max_age_s`` are removed only if the file is larger than ``max_bytes``, the oldest
first. Messages are removed in steps of `STEP_ROWS`, so that a writer waits for one step only. Free pages are used
again: the file stops growing, but does not shrink. `fairway.storage.nwaku_pages` describes the index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from fairway.storage.nwaku_pages import create_topic_index, has_topic_index
from fairway.storage.nwaku_schema import open_to_write

STEP_ROWS: Final = 5_000
_MAX_STEPS: Final = 10_000
_BETWEEN_STEPS_S: Final = 0.01
"""Time for writers between two steps: they poll for the lock of the file and do not queue for it."""
_KEPT_SHARE: Final = 0.8
"""A file that is too large is reduced to this share of ``max_bytes``, so that it is not soon too large again."""

_REMOVE_OLD: Final = """
DELETE FROM Message WHERE messageHash IN
    (SELECT messageHash FROM Message WHERE timestamp < ? ORDER BY timestamp LIMIT ?)
"""
_REMOVE_OLDEST: Final = """
DELETE FROM Message WHERE messageHash IN (SELECT messageHash FROM Message ORDER BY timestamp LIMIT ?)
"""


class NwakuUpkeep:
    """The upkeep of one file over a connection of its own; used in the thread that made it, except `stop`."""

    def __init__(self, path: Path, *, max_age_s: float | None, max_bytes: int | None) -> None:
        self._max_age_s: Final = max_age_s
        self._max_bytes: Final = max_bytes
        self._stopped: Final = threading.Event()
        self._database: Final = open_to_write(path)

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._database.close()

    def stop(self) -> None:
        """Interrupt a step in another thread, which then raises `sqlite3.OperationalError` or returns early."""
        self._stopped.set()
        self._database.interrupt()

    def unindexed(self) -> list[str]:
        """Return the table if it lacks the index by topics."""
        return [] if has_topic_index(self._database) else ["Message"]

    def index_topics(self, _table: str = "Message") -> None:
        """Create the index by topics; this blocks other writers for some seconds per million messages."""
        create_topic_index(self._database)

    def size(self) -> tuple[int, int]:
        """Count the messages, and return their number and their size in bytes."""
        (messages,) = self._database.execute("SELECT count(*) FROM Message").fetchone()
        return int(messages), self.used_bytes()

    def used_bytes(self) -> int:
        """Return the size of the messages and their indexes in bytes."""
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (int(self._database.execute(f"PRAGMA {name}").fetchone()[0]) for name in pragmas)
        return (pages - free) * size

    def enforce(self, now_ns: int) -> int:
        """Remove messages beyond ``max_age_s`` and ``max_bytes``, and return their number."""
        removed = 0
        if self._max_age_s is not None:
            oldest_ns = now_ns - round(self._max_age_s * 1e9)
            removed += sum(self._steps(_REMOVE_OLD, (oldest_ns, STEP_ROWS)))
        if self._max_bytes is not None and self.used_bytes() > self._max_bytes:
            for count in self._steps(_REMOVE_OLDEST, (STEP_ROWS,)):
                removed += count
                if self.used_bytes() <= self._max_bytes * _KEPT_SHARE:
                    break
        return removed

    def _steps(self, statement: str, parameters: tuple[int, ...]) -> Iterator[int]:
        for _ in range(_MAX_STEPS):
            with self._database, closing(self._database.execute(statement, parameters)) as cursor:
                count = cursor.rowcount
            if not count:
                return
            yield count
            if self._stopped.wait(_BETWEEN_STEPS_S):
                return
