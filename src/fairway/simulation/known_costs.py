"""What a tour costs, beside what it is known to cost: a change by which something is dearer, later or rarer is seen.

Each world has some hundred figures (`fairway.simulation.costs`). One world says little, since other chances give other
figures. So all worlds of a tour are taken together, as the mean of how many times as much each is as in the same world
as it is known. Chance moves most of these means by 2 % or less.

`tour_costs.json` holds what is known: the figures of each world of the first tour, as a mean over runs with other
chances, and how far the tour's mean may be from them, which follows from how far those runs were. ``make tour-costs``
writes it anew after a change that is meant. All means are geometric.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Self

from fairway.simulation.report import SimulationReport
from fairway.simulation.tour import KINDS, tour_plan

COSTS: Final = "a tour costs what it is known to cost"
"""What a tour broke in which something costs more or less than is known of it."""

FILE: Final = "tour_costs.json"
"""What is known, beside this module."""
_DIGITS: Final = 3
_HARDLY_ANY: Final = 0.01
_FEW: Final = {"ms": 2_000, "bytes": 2_000}
"""What is added to a figure in these units before it is compared, and `_FEW_OF_ALL` to a number: a difference of a few
says nothing, and what is never there has no ratio."""
_FEW_OF_ALL: Final = 5
_MOST: Final = 2.0
"""No world counts as more than e² times as dear, or as cheap."""
_LEAST_LEEWAY: Final = 0.03
_DEVIATIONS: Final = 5.0
"""A tour may be so many standard deviations of the known runs from their mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusual:
    """A figure of a tour that is not what it is known to be."""

    figure: str
    factor: float
    """How many times as much it is, as the geometric mean over worlds."""
    leeway: float
    """How much of that chance may do: the factor is beyond 1 / leeway to leeway."""

    @property
    def sentence(self) -> str:
        """What is unusual, for people."""
        return f"{self.figure}: {self.factor:.2f} times what is known, and chance makes no more than {self.leeway:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    typical: tuple[float, ...]
    """In each world of the tour."""
    leeway: float
    """Natural logarithm of the factor by which a tour may be off."""


class KnownCosts:
    """What the worlds of the first tour are known to cost."""

    def __init__(self, figures: Mapping[str, _Known]) -> None:
        """Take what is known of each figure; see `of_runs` and `of_text`."""
        self._figures = figures

    @classmethod
    def load(cls) -> Self:
        """Return what comes with the package."""
        return cls.of_text(resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8"))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return what `as_text` wrote down."""
        told = json.loads(text).items()
        return cls({name: _Known(typical=tuple(known["typical"]), leeway=known["leeway"]) for name, known in told})

    @classmethod
    def of_runs(cls, runs: Sequence[Mapping[int, Mapping[str, int]]]) -> Self:
        """Learn from several runs of the tour with other chances, each the costs of its worlds by seed."""
        names = sorted({name for run in runs for costs in run.values() for name in costs})
        known: dict[str, _Known] = {}
        for name in names:
            few = _few(name)
            typical = tuple(
                _rounded(math.exp(statistics.fmean(math.log(run[seed].get(name, 0) + few) for run in runs)) - few)
                for seed in range(1, len(KINDS) + 1)
            )
            tried = cls({name: _Known(typical=typical, leeway=0.0)})
            spread = statistics.stdev(tried._deviation(name, run) for run in runs)
            known[name] = _Known(typical=typical, leeway=round(max(_LEAST_LEEWAY, _DEVIATIONS * spread), 3))
        return cls(known)

    def as_text(self) -> str:
        """Return the figures as JSON, a line for each."""
        lines = (
            f"{json.dumps(name)}: " + json.dumps({"leeway": known.leeway, "typical": known.typical})
            for name, known in sorted(self._figures.items())
        )
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def unusual(self, costs: Mapping[int, Mapping[str, int]]) -> list[Unusual]:
        """Return the figures of a tour that are not what is known, the most unusual first.

        ``costs`` are those of all its worlds, by seed. A figure that nothing is known of is left out.
        """
        found = []
        for name, known in self._figures.items():
            deviation = self._deviation(name, costs)
            if abs(deviation) > known.leeway:
                found.append(
                    (
                        abs(deviation) / known.leeway,
                        Unusual(figure=name, factor=math.exp(deviation), leeway=math.exp(known.leeway)),
                    )
                )
        return [unusual for _, unusual in sorted(found, key=lambda each: -each[0])]

    def _deviation(self, name: str, costs: Mapping[int, Mapping[str, int]]) -> float:
        """Return by how much a figure of a tour is off: the mean over worlds of the ratios' natural logarithms."""
        few = _few(name)
        ratios = [
            math.log((costs[seed].get(name, 0) + few) / (typical + few))
            for seed, typical in enumerate(self._figures[name].typical, 1)
            if typical or costs[seed].get(name)
        ]
        return statistics.fmean(min(_MOST, max(-_MOST, ratio)) for ratio in ratios) if ratios else 0.0


class TourCosts:
    """The costs of the worlds of the first tour, as they end."""

    def __init__(self, known: KnownCosts | None = None) -> None:
        """Compare with what is known; by default with what comes with the package."""
        self._known = known
        self._costs: dict[int, Mapping[str, int]] = {}

    def add(self, report: SimulationReport) -> None:
        """Take in a world, if it is one of the first tour."""
        plan = report.plan
        if 1 <= plan.seed <= len(KINDS) and plan == tour_plan(plan.seed):
            self._costs[plan.seed] = report.costs

    @property
    def is_whole(self) -> bool:
        """Whether each world of the tour was taken in."""
        return len(self._costs) == len(KINDS)

    def unusual(self) -> list[Unusual]:
        """Return what is not as it is known, once the tour is whole."""
        if not self.is_whole:
            return []
        return (self._known or KnownCosts.load()).unusual(self._costs)


def _few(name: str) -> int:
    return _FEW.get(name.rpartition(" ")[2], _FEW_OF_ALL)


def _rounded(value: float) -> float:
    """Return the value with three digits, so that the file stays short; 0 for what is hardly anything."""
    if value < _HARDLY_ANY:
        return 0
    rounded = round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded
