"""Keeping an archive file at its size: what is too old or too much goes, the oldest first.

Invariant: nothing is removed that is younger than ``max_age_s`` as long as the file is smaller than ``max_bytes``.
Removal goes in steps of `STEP_ROWS`, so that a writer waits only for one; pages that become free are used again, so the
file stops growing rather than shrinks. It also gives the file the index by topics, see `fairway.storage.nwaku_pages`.
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
"""For writers, which look again and again whether the file is free rather than stand in a queue."""
_KEPT_SHARE: Final = 0.8
"""A file that is too large is reduced to this share of what it may have, so that it does not stand at the bound."""

_REMOVE_OLD: Final = """
DELETE FROM Message WHERE messageHash IN
    (SELECT messageHash FROM Message WHERE timestamp < ? ORDER BY timestamp LIMIT ?)
"""
_REMOVE_OLDEST: Final = """
DELETE FROM Message WHERE messageHash IN (SELECT messageHash FROM Message ORDER BY timestamp LIMIT ?)
"""


class NwakuUpkeep:
    """Looks after one file over a connection of its own, in the thread that made it but for `stop`."""

    def __init__(self, path: Path, *, max_age_s: float | None, max_bytes: int | None) -> None:
        self._max_age_s: Final = max_age_s
        self._max_bytes: Final = max_bytes
        self._stopped: Final = threading.Event()
        self._database: Final = open_to_write(path)

    def close(self) -> None:
        """Close the connection; more than once does no harm."""
        self._database.close()

    def stop(self) -> None:
        """Break off what another thread is doing here, which then raises `sqlite3.OperationalError` or ends early."""
        self._stopped.set()
        self._database.interrupt()

    def unindexed(self) -> list[str]:
        """Return the table if it lacks the index by topics."""
        return [] if has_topic_index(self._database) else ["Message"]

    def index_topics(self, _table: str = "Message") -> None:
        """Make the index by topics, which blocks other writers for some seconds per million messages."""
        create_topic_index(self._database)

    def size(self) -> tuple[int, int]:
        """Return how many messages the file holds, and the bytes that they take."""
        (messages,) = self._database.execute("SELECT count(*) FROM Message").fetchone()
        return int(messages), self.used_bytes()

    def used_bytes(self) -> int:
        """Return the bytes that the messages take, with their indexes."""
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (int(self._database.execute(f"PRAGMA {name}").fetchone()[0]) for name in pragmas)
        return (pages - free) * size

    def enforce(self, now_ns: int) -> int:
        """Remove what may not stay, and return how many messages that was."""
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
