"""Makes of a plan that breaks an invariant a small one that still does: fewer participants, fewer faults, shorter.

Greedy: of the plan, ever smaller changes towards calm are tried, and each that still breaks is kept, until none does or
nothing may be tried any more. Since a smaller world is another world, in which other things are drawn, each change is
tried with a second seed too. What breaks is asked of a function, so that nothing here runs a world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.random_plans import CALM

_KEPT: Final = ("participants", "duration_ms", "seed", "messages_per_hour", "settle_ms")
"""Fields that no calm value has: they only get smaller."""
_LEAST: Final = {"participants": 2, "duration_ms": 60_000, "messages_per_hour": 1.0}
_SEEDS: Final = 2


def shrink(
    plan: SimulationPlan,
    breaks: Callable[[SimulationPlan], bool],
    *,
    attempts: int = 120,
    over: Callable[[], bool] = lambda: False,
) -> SimulationPlan:
    """Return the smallest plan found that still breaks.

    ``breaks`` is asked at most so many times, about no plan twice, and not any more once it is ``over``.
    """
    tried: set[SimulationPlan] = set()

    def first(plan: SimulationPlan) -> SimulationPlan | None:
        for smaller in _smaller(plan):
            for seed in range(plan.seed, plan.seed + _SEEDS):
                candidate = replace(smaller, seed=seed)
                if candidate in tried:
                    continue
                if len(tried) == attempts or over():
                    return None
                tried.add(candidate)
                if breaks(candidate):
                    return candidate
        return None

    smallest = plan
    while (found := first(smallest)) is not None:
        smallest = found
    return smallest


def _smaller(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    """Yield smaller plans, the boldest changes first."""
    troubles = [field.name for field in fields(plan) if field.name not in _KEPT and not _is_calm(plan, field.name)]
    size = len(troubles)
    while size:
        for first in range(0, len(troubles), size):
            yield from _with(plan, {name: getattr(CALM, name) for name in troubles[first : first + size]})
        if size == len(troubles):
            yield from _less(plan, 0.25)
            yield from _less(plan, 0.5)
        size //= 2
    yield from _less(plan, 0.5)
    yield from _less(plan, 0.8)
    for name in troubles:
        value, calm = getattr(plan, name), getattr(CALM, name)
        if isinstance(value, int | float) and isinstance(calm, int | float) and not isinstance(value, bool):
            middle = (value + calm) / 2
            yield from _with(plan, {name: round(middle) if isinstance(value, int) else round(middle, 2)})


def _less(plan: SimulationPlan, share: float) -> Iterator[SimulationPlan]:
    for name, least in _LEAST.items():
        value = getattr(plan, name)
        smaller = max(least, int(value * share))
        if smaller < value:
            yield from _with(plan, {name: smaller})


def _is_calm(plan: SimulationPlan, name: str) -> bool:
    return bool(getattr(plan, name) == getattr(CALM, name))


def _with(plan: SimulationPlan, changes: dict[str, Any]) -> Iterator[SimulationPlan]:
    """Yield the plan with these changes, should there be such a world and another one than before."""
    participants = changes.get("participants", plan.participants)
    leaves = min(changes.get("leaves", plan.leaves), participants - 2)
    try:
        changed = replace(plan, **{**changes, "leaves": leaves})
    except ConfigurationError:
        return
    if changed != plan:
        yield changed
