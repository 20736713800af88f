"""The queue of the rate limit: four classes, each first in, first out; and which entry is dropped when it is full.

Order (RELIABLE-CHANNEL-API, "Rate Limit Management": what exceeds the limit "SHOULD be queued"): users' content,
then repairs that others asked for, then retries, then sync; within a class the order of the sequence numbers,
which is the order of arrival unless the caller says otherwise. An entry that is put back keeps its number,
and so stands where it was.

Invariant: an entry is in the queue exactly once until it is popped, discarded or displaced, and each of these
hands it to the caller. Every operation costs O(log n) or less, amortised; only `discard` with a predicate
looks at all entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

T = TypeVar("T")

_COMPACT_FROM: Final = 64
"""Heaps smaller than this are not worth compacting."""


class Priority(IntEnum):
    """The classes of transmissions, most urgent first."""

    CONTENT = 0
    """Segments of users' messages, first transmission."""
    REPAIR = 1
    """Answers to repair requests of other participants."""
    RETRY = 2
    """Retransmissions of own segments that are not acknowledged enough."""
    SYNC = 3
    """Sync messages: no content, only causal history."""


CLASSES: Final = tuple(Priority)
"""All classes; to iterate over an enum takes longer than to look at what waits."""


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    """One entry of the queue."""

    item: T
    priority: Priority
    sequence: int
    free: bool
    """Whether it costs nothing (the option first_segment_only)."""
    key: Hashable | None
    gone: bool = False
    """Whether it left otherwise than from the front; the heap forgets it later."""


class WaitingQueue(Generic[T]):
    """A bounded queue with priorities, FIFO within each."""

    __slots__ = ("_arrivals", "_by_key", "_counts", "_heaps", "_max", "_next_sequence", "_paying", "_total")

    def __init__(self, max_queued: int) -> None:
        self._max = max_queued
        self._heaps: dict[Priority, list[tuple[int, int, Waiting[T]]]] = {p: [] for p in Priority}
        self._total = 0
        self._counts = dict.fromkeys(Priority, 0)
        self._paying = dict.fromkeys(Priority, 0)
        self._by_key: dict[Hashable, dict[int, Waiting[T]]] = {}
        self._arrivals = 0
        self._next_sequence = 0

    def __len__(self) -> int:
        return self._total

    def count(self, priority: Priority) -> int:
        """Return how many entries of a class wait."""
        return self._counts[priority]

    def paying(self, priority: Priority) -> int:
        """Return how many entries of a class wait that will be charged."""
        return self._paying[priority]

    def has(self, key: Hashable) -> bool:
        """Return whether an entry with this key waits."""
        return key in self._by_key

    def take_sequence(self, wanted: int | None = None) -> int:
        """Return ``wanted``, or the number after all numbers so far."""
        sequence = self._next_sequence if wanted is None else wanted
        self._next_sequence = max(self._next_sequence, sequence + 1)
        return sequence

    def make_room(self, priority: Priority) -> tuple[bool, Waiting[T] | None]:
        """Return whether an entry of this class may come in, and who had to give way.

        The oldest entry of the least urgent class gives way, but never content, and never for something less
        urgent than itself.
        """
        if len(self) < self._max:
            return True, None
        for candidate in reversed(Priority):
            if candidate is Priority.CONTENT or candidate < priority:
                break
            if self._counts[candidate]:
                return True, self.pop(candidate)
        return False, None

    def push(self, entry: Waiting[T]) -> None:
        """Put an entry at the place of its sequence number, whether there is room or not."""
        self._arrivals += 1
        heappush(self._heaps[entry.priority], (entry.sequence, self._arrivals, entry))
        self._total += 1
        self._counts[entry.priority] += 1
        self._paying[entry.priority] += not entry.free
        if entry.key is not None:
            self._by_key.setdefault(entry.key, {})[id(entry)] = entry

    def front(self, priority: Priority) -> Waiting[T] | None:
        """Return the first entry of a class without taking it."""
        heap = self._heaps[priority]
        while heap and heap[0][2].gone:
            heappop(heap)
        return heap[0][2] if heap else None

    def pop(self, priority: Priority) -> Waiting[T]:
        """Take the first entry of a class."""
        entry = self.front(priority)
        if entry is None:
            raise LookupError(f"no {priority.name.lower()} waits")
        heappop(self._heaps[priority])
        self._forget(entry)
        return entry

    def discard(self, leaves: Callable[[T], bool], priorities: Iterable[Priority]) -> tuple[T, ...]:
        """Take every entry of these classes for which ``leaves(item)`` is true; returns their items in order."""
        chosen = [
            triple
            for priority in priorities
            for triple in sorted(self._heaps[priority], key=lambda triple: triple[:2])
            if not triple[2].gone and leaves(triple[2].item)
        ]
        return tuple(self._withdraw(entry) for _, _, entry in chosen)

    def discard_key(self, key: Hashable) -> tuple[T, ...]:
        """Take every entry with this key; returns their items in order of arrival."""
        return tuple(self._withdraw(entry) for entry in list(self._by_key.get(key, {}).values()))

    def _withdraw(self, entry: Waiting[T]) -> T:
        entry.gone = True
        self._forget(entry)
        heap = self._heaps[entry.priority]
        if len(heap) >= _COMPACT_FROM and len(heap) > 2 * self._counts[entry.priority]:
            heap[:] = [triple for triple in heap if not triple[2].gone]
            heapify(heap)
        return entry.item

    def _forget(self, entry: Waiting[T]) -> None:
        self._total -= 1
        self._counts[entry.priority] -= 1
        self._paying[entry.priority] -= not entry.free
        if entry.key is not None:
            same = self._by_key[entry.key]
            del same[id(entry)]
            if not same:
                del self._by_key[entry.key]
