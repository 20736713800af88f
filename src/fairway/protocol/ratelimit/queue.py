"""The queue of the rate limit: four classes, each in the order of its sequence numbers.

Messages beyond the limit "SHOULD be queued" (RELIABLE-CHANNEL-API, "Rate Limit Management"). The order of the classes:
users' content, repairs that others requested, retries, sync. A sequence number is the order of arrival unless the
caller gives another number. An entry that returns to the queue keeps its number, and so its position.

The caller bounds the queue: content waits upstream (`Upstream`), and the caller limits the other classes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_COMPACT_FROM: Final = 64
"""Smallest size of a heap that is compacted."""


class Priority(IntEnum):
    """The classes of transmissions, most urgent first."""

    CONTENT = 0
    """Segments of users' messages, first transmission."""
    REPAIR = 1
    """Answers to repair requests of other participants."""
    RETRY = 2
    """Retransmissions of own segments without the required acknowledgements."""
    SYNC = 3
    """Sync messages: no content, only causal history."""


CLASSES: Final = tuple(Priority)
"""All classes as a tuple, because iteration over an enum is slow."""


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    """One entry of the queue."""

    item: T
    priority: Priority
    sequence: int
    key: Hashable
    """Identity of the transmission, such as the SDS message id."""
    gone: bool = False
    """Whether it left the queue; its heap drops it later."""


class WaitingQueue(dict[Hashable, Waiting[T]]):
    """A queue with priorities: its entries by key. An entry replaces one with the same key.

    `add`, `push` and `remove` change it, and cost O(log n), amortised.
    """

    __slots__ = ("_arrivals", "_counts", "_heaps", "_next_sequence")

    def __init__(self) -> None:
        super().__init__()
        self._heaps: dict[Priority, list[tuple[int, int, Waiting[T]]]] = {p: [] for p in Priority}
        self._counts = dict.fromkeys(Priority, 0)
        self._arrivals = 0
        self._next_sequence = 0

    def count(self, priority: Priority) -> int:
        """Return how many entries of a class wait."""
        return self._counts[priority]

    def classes(self) -> list[Priority]:
        """Return the classes with waiting entries, most urgent first."""
        return [priority for priority in CLASSES if self._counts[priority]] if self else []

    def add(self, item: T, priority: Priority, key: Hashable, sequence: int | None = None) -> None:
        """Add an item at the position of its sequence number; None appends it."""
        sequence = self._next_sequence if sequence is None else sequence
        self._next_sequence = max(self._next_sequence, sequence + 1)
        self.push(Waiting(item, priority, sequence, key))

    def push(self, entry: Waiting[T]) -> None:
        """Add an entry at the position of its sequence number."""
        self.remove(entry.key)
        self._arrivals += 1
        heappush(self._heaps[entry.priority], (entry.sequence, self._arrivals, entry))
        self._counts[entry.priority] += 1
        self[entry.key] = entry

    def front(self, priority: Priority) -> Waiting[T] | None:
        """Return the first entry of a class without removing it; None if the class is empty."""
        heap = self._heaps[priority]
        while heap and heap[0][2].gone:
            heappop(heap)
        return heap[0][2] if heap else None

    def remove(self, key: Hashable) -> bool:
        """Remove the entry with this key; return whether the queue held one."""
        entry = self.pop(key, None)
        if entry is None:
            return False
        entry.gone = True
        self._counts[entry.priority] -= 1
        heap = self._heaps[entry.priority]
        if len(heap) >= _COMPACT_FROM and len(heap) > 2 * self._counts[entry.priority]:
            heap[:] = [triple for triple in heap if not triple[2].gone]
            heapify(heap)
        return True
