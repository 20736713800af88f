"""Which rows of the state changed since they were last persisted.

The whole state of a channel is a set of rows: a table, a key within it, and a tuple of plain values. A snapshot is all
of them; an operation dirties a few, and only those are persisted. A layer owns its tables: it tells the journal which
keys it touched, and renders a row when asked. Folding all changes since a snapshot into that snapshot
gives the next snapshot; the tests hold every layer to it.
"""

from __future__ import annotations

from typing import Any

Row = tuple[Any, ...]
"""Values of one row: int, float, str, bytes, bool, None, and tuples of them."""


class Journal:
    """Collects the keys of rows that changed, each once, in the order of their first change."""

    __slots__ = ("_dirty",)

    def __init__(self) -> None:
        self._dirty: dict[tuple[str, str], bool] = {}

    def touch(self, table: str, key: str) -> None:
        """Note that a row was put, changed or deleted."""
        self._dirty.setdefault((table, key), False)

    def created(self, table: str, key: str) -> None:
        """Note that a row was put that was not there before."""
        self._dirty.setdefault((table, key), True)

    def deleted(self, table: str, key: str) -> None:
        """Note that a row is gone; of one that came and went within one operation nothing needs telling."""
        if self._dirty.get((table, key), False):
            del self._dirty[table, key]
        else:
            self._dirty[table, key] = False

    def drain(self) -> list[tuple[str, str]]:
        """Return the noted keys and forget them."""
        if not self._dirty:
            return []
        dirty, self._dirty = list(self._dirty), {}
        return dirty
