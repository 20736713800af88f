"""The journal: rows of the state that changed since the last write.

The whole state of a channel is a set of rows. A row has a table, a key within it, and a tuple of plain values. A
snapshot has all rows. An operation changes a few rows, and only those are persisted. A layer owns its tables. It
reports changed keys to the journal, and returns the present row of a key on request. A snapshot and all later changes
together give the next snapshot; the tests check this for every layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[Any, ...]
"""Values of one row: int, float, str, bytes, bool, None, and tuples of them."""
RowReader = Callable[[str], Row | None]
"""Returns the present row of a key of a table; None if it was deleted."""


class Journal:
    """Collects the keys of rows that changed, each once, in the order of their first change."""

    __slots__ = ("_dirty",)

    def __init__(self) -> None:
        self._dirty: dict[tuple[str, str], bool] = {}

    def touch(self, table: str, key: str) -> None:
        """Note that a row was written, changed or deleted."""
        self._dirty.setdefault((table, key), False)

    def created(self, table: str, key: str) -> None:
        """Note that a new row was written."""
        self._dirty.setdefault((table, key), True)

    def deleted(self, table: str, key: str) -> None:
        """Note that a row was deleted; a row that was also created in this operation leaves no change."""
        if self._dirty.get((table, key), False):
            del self._dirty[table, key]
        else:
            self._dirty[table, key] = False

    def drain(self) -> list[tuple[str, str]]:
        """Return and clear the noted keys."""
        if not self._dirty:
            return []
        dirty, self._dirty = list(self._dirty), {}
        return dirty
