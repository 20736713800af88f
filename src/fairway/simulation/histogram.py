"""Durations counted by how long they are: unlike percentiles, those of many worlds add up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

_STEPS: Final = (100, 125, 150, 200, 250, 300, 400, 500, 600, 800)
EDGES_MS: Final = tuple(step * 10**power // 100 for power in range(1, 10) for step in _STEPS)
"""Longest duration of each class: ten classes to a power of ten, from 10 ms to more than a month."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations there are in each class."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """By the longest duration of the class in ms; classes without any are left out."""

    @classmethod
    def of(cls, durations_ms: Iterable[int]) -> Self:
        """Count durations; those beyond the last class are counted in it."""
        last = len(EDGES_MS) - 1
        counts = Counter(EDGES_MS[min(bisect_left(EDGES_MS, duration_ms), last)] for duration_ms in durations_ms)
        return cls(dict(sorted(counts.items())))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(dict(sorted((Counter(self.counts) + Counter(other.counts)).items())))

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    def within(self, longest_ms: int) -> int:
        """Return how many are no longer than an edge of the classes."""
        return sum(count for edge, count in self.counts.items() if edge <= longest_ms)

    def percentile(self, percent: float) -> int | None:
        """Return the edge that at least so many percent do not exceed; None where there are no durations."""
        wanted, so_far = self.count * percent / 100, 0
        for edge, count in self.counts.items():
            so_far += count
            if so_far >= wanted:
                return edge
        return None
