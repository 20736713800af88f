"""Many worlds with plans drawn at random: which broke, the smallest plan that breaks the same way, and the figures.

A `Campaign` says which worlds, and how long; `CampaignTally` is what came of them so far.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.simulation.figures import Figures, loss_class
from fairway.simulation.known_costs import TourCosts
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.report import plain
from fairway.simulation.runner import simulate
from fairway.simulation.shrinking import shrink
from fairway.simulation.workers import PATIENCE, World, WorldOutcome, run_worlds
from fairway.units import HOUR_MS

_MOST_JOBS: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Which worlds are run, and how."""

    worlds: int | None = None
    """How many at most; None for as many as the budget allows."""
    budget_s: float | None = None
    """No world begins later than that; None for as long as it takes."""
    first_seed: int = 1
    """The worlds' plans are drawn from this seed and those that follow it."""
    jobs: int = 1
    """Processes side by side."""
    world_s: float = 300.0
    """A world that takes more CPU time counts as broken, as it hangs; more than 40 participants may take longer."""
    shrink_s: float = 120.0
    """How long a smaller plan is looked for."""
    draw: Callable[..., SimulationPlan] = draw_plan
    """Makes a plan of a seed and fields that are given."""
    given: dict[str, Any] = field(default_factory=dict)
    """Fields of the plans that are not drawn but so."""
    done: frozenset[int] = frozenset()
    """Seeds whose worlds are left out, since they ran before."""
    world: World = simulate
    """What runs a world; it has to be a function at the top of a module."""

    def __post_init__(self) -> None:
        _require(self.worlds is not None or self.budget_s is not None, "give a number of worlds, a budget, or both")
        _require(self.worlds is None or self.worlds >= 1, f"worlds must be at least 1, not {self.worlds}")
        _require(self.first_seed >= 0, f"first_seed must be 0 or more, not {self.first_seed}")
        _require(1 <= self.jobs <= _MOST_JOBS, f"jobs must be 1 to {_MOST_JOBS}, not {self.jobs}")
        for name in ("budget_s", "world_s", "shrink_s"):
            value = getattr(self, name)
            _require(value is None or 0 < value < float("inf"), f"{name} must be more than 0 seconds, not {value}")
        _require("seed" not in self.given, "the plans are drawn from seeds: give the first one as first_seed")
        self.draw(self.first_seed, **self.given)

    def outcomes(self) -> Generator[WorldOutcome]:
        """Run the worlds, and yield the outcome of each as it ends. Closing the iterator ends the others."""
        return self._run(self._plans(), self.jobs)

    def _run(self, plans: Iterable[SimulationPlan], jobs: int) -> Generator[WorldOutcome]:
        wall_s = self.world_s * PATIENCE
        return run_worlds(plans, jobs=jobs, limit_s=self.world_s, wall_s=wall_s, world=self.world)

    def _plans(self) -> Iterator[SimulationPlan]:
        until = None if self.budget_s is None else time.monotonic() + self.budget_s
        for seed in islice(count(self.first_seed), self.worlds):
            if until is not None and time.monotonic() >= until:
                return
            if seed not in self.done:
                yield self.draw(seed, **self.given)

    def shrunk(self, broken: WorldOutcome, tried: Callable[[SimulationPlan], None] = lambda _: None) -> WorldOutcome:
        """Return what came of the smallest plan found that violates the same invariant, that very one if need be.

        An interrupt ends the search, with what was found until then.
        """
        until = time.monotonic() + self.shrink_s
        smallest = broken
        asked: list[SimulationPlan] = []
        outcomes = self._run(iter(asked.pop, None), jobs=1)

        def breaks(plan: SimulationPlan) -> bool:
            nonlocal smallest
            tried(plan)
            asked.append(plan)
            outcome = next(outcomes)
            found = broken.violations[0][0] in {invariant for invariant, _ in outcome.violations}
            smallest = outcome if found else smallest
            return found

        with closing(outcomes), suppress(KeyboardInterrupt):
            shrink(broken.plan, breaks, over=lambda: time.monotonic() >= until)
        return smallest


@dataclass(slots=True)
class CampaignTally:
    """What came of worlds so far."""

    worlds: int = 0
    virtual_ms: int = 0
    broken: list[WorldOutcome] = field(default_factory=list)
    figures: dict[int, Figures] = field(default_factory=dict)
    """By class of loss, of the worlds that came to their end."""
    tour: TourCosts = field(default_factory=TourCosts)
    """What the first tour costs, should its worlds be among these."""

    def add(self, outcome: WorldOutcome) -> None:
        """Count a world."""
        self.worlds += 1
        if outcome.report is not None:
            self.virtual_ms += outcome.report.virtual_ms
            self.tour.add(outcome.report)
            loss = loss_class(outcome.plan.loss)
            self.figures[loss] = self.figures.get(loss, Figures()) + Figures.of(outcome.report)
        if not outcome.ok:
            self.broken.append(outcome)


def row_of(outcome: WorldOutcome) -> dict[str, Any]:
    """Return the figures of one world, as what JSON can hold."""
    plan, report = outcome.plan, outcome.report
    row = {
        "seed": plan.seed,
        "participants": plan.participants,
        "loss": plan.loss,
        "profile": plan.profile.value,
        "replay": replay_command(plan),
        "ok": outcome.ok,
        "violations": [{"invariant": invariant, "sentence": sentence} for invariant, sentence in outcome.violations],
        "cpu_s": round(outcome.cpu_s, 3),
    }
    if report is None:
        return row
    return row | {
        "virtual_hours": round(report.virtual_ms / HOUR_MS, 4),
        "messages": report.sent,
        "deliveries": report.delivered,
        "transmissions": report.transmissions,
        "transmitted_bytes": report.transmitted_bytes,
        "bytes_per_delivery": report.bytes_per_delivery,
        "p50_delivery_ms": report.delivery.p50_ms,
        "p95_delivery_ms": report.delivery.p95_ms,
        "trace_hash": report.trace_hash,
        "figures": Figures.of(report).as_json(),
    }


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the worlds of a record, as `row_of` tells them, but for a last line that is not whole.

    Raises `ConfigurationError` for a line that is no such row.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
                lacking = {"seed", "loss", "ok"} - row.keys()
            except (ValueError, AttributeError) as error:
                raise ConfigurationError(f"line {number} of {path} is no world, but {line[:40]!r}") from error
            if lacking:
                raise ConfigurationError(f"line {number} of {path} is no world: it lacks {', '.join(sorted(lacking))}")
            yield row


def broken_row(outcome: WorldOutcome, shrunk: WorldOutcome | None) -> dict[str, Any]:
    """Return a broken world, and the smallest that breaks like it, as what JSON can hold."""
    return _told(outcome) | {"shrunk": None if shrunk is None else _told(shrunk)}


def _told(outcome: WorldOutcome) -> dict[str, Any]:
    return {
        "plan": plain(asdict(outcome.plan)),
        "replay": replay_command(outcome.plan),
        "violations": [{"invariant": invariant, "sentence": sentence} for invariant, sentence in outcome.violations],
    }


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ConfigurationError(text)
