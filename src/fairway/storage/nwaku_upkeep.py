"""`NwakuUpkeep`: removes old messages from a nwaku archive file, and creates its index by topics.

Invariant: messages younger than ``max_age_s`` are removed only if the file is larger than ``max_bytes``. The oldest are
removed first, until the file has at most `_KEPT_SHARE` of that size. Messages are removed in steps of at most
`STEP_ROWS` and about `STEP_BYTES`, so that a writer waits for one step only. Free pages are used again: the file stops
growing, but does not shrink. `fairway.storage.nwaku_pages` describes the index.

The number of used pages does not show how many messages to remove. The table is ordered by message hash, so old
messages lie on all pages. SQLite frees a page only when it is nearly empty. So `_occupied` computes the share of the
file that each message occupies, from the file format of SQLite ("B-tree Pages").
"""

from __future__ import annotations

import math
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

from fairway.storage.nwaku_pages import create_topic_index, has_topic_index
from fairway.storage.nwaku_schema import open_to_write
from fairway.units import NS_PER_S

STEP_ROWS: Final = 5_000
STEP_BYTES: Final = 16_777_216
_BETWEEN_STEPS_S: Final = 0.01
"""Time for writers between two steps: they poll for the lock of the file and do not queue for it."""
_KEPT_SHARE: Final = 0.8
"""A file that is too large is reduced to this share of ``max_bytes``, so that it is not soon too large again."""

_FILL: Final = 0.7
"""Used share of a page of a B-tree with keys in random order."""
_ROW_BYTES: Final = 170
"""Hash, numbers and lengths of a row, and of its entries in the two indexes."""
_MAX_NS: Final = 2**63 - 1

_OLDEST: Final = """
SELECT length(contentTopic), length(contentTopic) + length(pubsubTopic) + ifnull(length(payload), 0)
    + ifnull(length(meta), 0)
FROM Message WHERE timestamp < ? ORDER BY timestamp LIMIT ?
"""
_REMOVE: Final = """
DELETE FROM Message WHERE messageHash IN
    (SELECT messageHash FROM Message WHERE timestamp < ? ORDER BY timestamp LIMIT ?)
"""
_OLD: Final = "SELECT count(*), ifnull(min(timestamp), 0) FROM Message WHERE timestamp < ?"


class NwakuUpkeep:
    """The upkeep of one file over a connection of its own; used in the thread that made it, except `stop`."""

    def __init__(self, path: Path, *, max_age_s: float | None, max_bytes: int | None) -> None:
        self._max_age_s: Final = max_age_s
        self._max_bytes: Final = max_bytes
        self._stopped: Final = threading.Event()
        self._database: Final = open_to_write(path)
        self._page_bytes: Final = int(self._database.execute("PRAGMA page_size").fetchone()[0])

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._database.close()

    def stop(self) -> None:
        """Interrupt a step in another thread, which then raises `sqlite3.OperationalError` or returns early."""
        self._stopped.set()
        self._database.interrupt()

    def unindexed(self) -> list[str]:
        """Return the table if it has no index by topics."""
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

    def beyond_age(self, now_ns: int) -> tuple[int, int]:
        """Return how many messages are beyond ``max_age_s``, and the timestamp of the oldest."""
        if self._max_age_s is None:
            return 0, 0
        messages, oldest_ns = self._database.execute(_OLD, (now_ns - round(self._max_age_s * NS_PER_S),)).fetchone()
        return int(messages), int(oldest_ns)

    def enforce(self, now_ns: int) -> int:
        """Remove messages beyond ``max_age_s`` and ``max_bytes``, and return their number."""
        removed = 0
        if self._max_age_s is not None:
            removed += self._remove(now_ns - round(self._max_age_s * NS_PER_S), math.inf)
        if self._max_bytes is not None and (used := self.used_bytes()) > self._max_bytes:
            removed += self._remove(_MAX_NS, used - self._max_bytes * _KEPT_SHARE)
        return removed

    def _remove(self, before_ns: int, excess_bytes: float) -> int:
        """Remove the oldest messages before a time until they occupied ``excess_bytes``, and return their number."""
        removed = 0
        while True:
            rows, step_bytes = self._step(before_ns, min(excess_bytes, STEP_BYTES))
            if rows:
                with self._database:
                    self._database.execute(_REMOVE, (before_ns, rows))
            removed += rows
            excess_bytes -= step_bytes
            if not rows or excess_bytes <= 0 or self._stopped.wait(_BETWEEN_STEPS_S):
                return removed

    def _step(self, before_ns: int, most_bytes: float) -> tuple[int, float]:
        """Return how many of the oldest messages to remove at once, and the bytes that they occupy."""
        rows, size_bytes = 0, 0.0
        with closing(self._database.execute(_OLDEST, (before_ns, STEP_ROWS))) as oldest:
            for topic_bytes, row_bytes in oldest:
                rows += 1
                size_bytes += _occupied(topic_bytes, row_bytes, self._page_bytes)
                if size_bytes >= most_bytes:
                    break
        return rows, size_bytes


def _occupied(topic_bytes: int, row_bytes: int, page_bytes: int) -> float:
    """Return the bytes of the file that a message occupies, with its entries in the indexes.

    Overflow beyond a page of the tree takes full pages of its own.
    """
    in_tree = min(row_bytes, page_bytes)
    return (in_tree + topic_bytes + _ROW_BYTES) / _FILL + row_bytes - in_tree
