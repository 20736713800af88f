"""A measured figure, beside that of a peer measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured row of the table."""

    ours: float
    unit: str
    peer: float | None = None
    """None if there is no peer, or it was not measured."""
    peer_name: str = ""
    remark: str = ""
    """Why the peer's value is absent, or how it differs from ours."""

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's; None without a peer."""
        return None if self.peer is None else self.ours / self.peer


def best_of(call: Callable[[], object], budget_s: float) -> float:
    """Return the shortest time in seconds of repeated calls; other work on the machine disturbs it least."""
    return best_of_each([call], budget_s)[0]


def best_of_each(calls: Sequence[Callable[[], object]], budget_s: float) -> list[float]:
    """Return the shortest time of each call. The calls take turns, so that a busy machine slows all of them.

    The first calls fill caches and tables, and are not counted.
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
