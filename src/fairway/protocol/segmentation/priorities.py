"""A set of strings, each with a priority that may change; the least is found at once."""

from __future__ import annotations

from heapq import heapify, heappop, heappush


class Priorities:
    """Items ordered by priority, equal priorities by name."""

    def __init__(self) -> None:
        self._current: dict[str, tuple[int, int]] = {}
        # A change is pushed as a further entry. An entry that differs from the item's current priority is skipped.
        self._heap: list[tuple[tuple[int, int], str]] = []

    def put(self, item: str, priority: tuple[int, int]) -> None:
        """Add an item, or change its priority."""
        self._current[item] = priority
        heappush(self._heap, (priority, item))
        if len(self._heap) > 64 + 4 * len(self._current):
            self._heap = [(current, name) for name, current in self._current.items()]
            heapify(self._heap)

    def remove(self, item: str) -> None:
        """Take an item out."""
        del self._current[item]

    def least(self) -> tuple[tuple[int, int], str] | None:
        """Return the least priority and its item; None if there are no items."""
        while self._heap and self._current.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None
