"""`BoundedDict`: a dictionary of bounded size, for data from the network."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """At most ``max_entries`` entries: a new one evicts the oldest. A key that is set again becomes the newest."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def put(self, key: K, value: V) -> K | None:
        """Set a key, and return the key that it evicted; None if it evicted none."""
        if key in self:
            self.move_to_end(key)
        super().__setitem__(key, value)
        return self.popitem(last=False)[0] if len(self) > self._max_entries else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the bound in a copy."""
        return type(self), (self._max_entries,), None, None, iter(list(self.items()))

    def copy(self) -> BoundedDict[K, V]:
        """Return an independent copy."""
        other: BoundedDict[K, V] = BoundedDict(self._max_entries)
        other.update(self)
        return other

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)
