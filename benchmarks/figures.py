"""One measured figure, beside that of a peer measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured, for us and for a peer."""

    name: str
    ours: float
    peer: float | None
    """None where there is nothing to compare with."""
    peer_name: str
    unit: str

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's; None without a peer."""
        return None if self.peer is None else self.ours / self.peer

    def __str__(self) -> str:
        """Return a line of a table."""
        ours = f"{self.name:<44} {self.ours:>10.2f} {self.unit:<6}"
        if self.peer is None or self.ratio is None:
            return ours
        return f"{ours} {self.peer:>10.2f} {self.unit:<6} {self.peer_name:<12} {self.ratio:>6.2f}x"


def best_of(call: Callable[[], object], budget_s: float) -> float:
    """Return the shortest time in seconds that a call took, trying again until the budget is spent.

    The shortest is the one least disturbed by whatever else the machine did.
    """
    return best_of_each([call], budget_s)[0]


def best_of_each(calls: Sequence[Callable[[], object]], budget_s: float) -> list[float]:
    """Return the shortest time of each call, taking turns, so that a busy machine is as unkind to each.

    The first calls are not counted: they fill caches and tables.
    """
    shortest = [float("inf") for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + budget_s * len(calls)
    while True:
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            shortest[number] = min(shortest[number], time.perf_counter() - start)
        if time.perf_counter() >= end:
            return shortest
