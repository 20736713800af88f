"""The marks of the axes of a report's charts: dates and times, and latencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fairway.pipeline.report.figures import LATENCIES_MS, TimeAxis
from fairway.pipeline.report.html.charts import Tick
from fairway.pipeline.report.words import clock, duration

_HOUR_NS: Final = 3_600_000_000_000
_DAY_NS: Final = 24 * _HOUR_NS
_TICKS: Final = (0.0, 0.5, 1.0)


def time_ticks(axis: TimeAxis) -> list[Tick]:
    """Return the marks of an axis of time: dates, and the time of day as far as the length of the axis needs it."""
    span = axis.end_ns - axis.begin_ns
    form = "%Y-%m-%d" if span > 4 * _DAY_NS else "%Y-%m-%d %H:%M"
    if span < _HOUR_NS:
        form = "%Y-%m-%d %H:%M:%S"
    begins, *others = (clock(axis.begin_ns + int(span * place), form) for place in _TICKS)
    day = len("2026-01-01")
    # The date once, where it is the same throughout.
    labels = [begins, *(told[day + 1 :] if told[:day] == begins[:day] and told[day:] else told for told in others)]
    return [Tick(place=place, label=label) for place, label in zip(_TICKS, labels, strict=True)]


def latency_place(latency_ms: int) -> float:
    """Return where a latency stands on a logarithmic axis from 1 ms to the greatest of `LATENCIES_MS`."""
    return min(math.log10(max(latency_ms, 1)) / math.log10(LATENCIES_MS[-1]), 1.0)


def latency_ticks() -> list[Tick]:
    """Return the marks of that axis."""
    marks: Sequence[int] = (1, 1_000, 60_000, 3_600_000, LATENCIES_MS[-1])
    return [Tick(place=latency_place(mark), label=duration(mark)) for mark in marks]
