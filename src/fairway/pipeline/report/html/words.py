"""Figures of a report in words: parts of wholes, times, and what stands at the marks of an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from fairway.pipeline.report.html.charts import Tick
from fairway.pipeline.report.html.figures import LATENCIES_MS, TimeAxis
from fairway.pipeline.report.terminal_tables import size_text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS_PER_MICROSECOND: Final = 1_000
_HOUR_NS: Final = 3_600_000_000_000
_DAY_NS: Final = 24 * _HOUR_NS
_YEAR_NS: Final = 365 * _DAY_NS
_UNITS_MS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_TICKS: Final = (0.0, 0.33, 0.66, 1.0)
_LEAST_SHARE: Final = 0.001


def of(part: int, whole: int) -> str:
    """Return a part with what it is a part of, and its share."""
    return f"{part:,} of {whole:,} ({percent(part, whole)})" if whole else f"{part:,} of {whole:,}"


def size_of(part_bytes: int, whole_bytes: int) -> str:
    """Return a part of some bytes with what it is a part of, and its share."""
    told = f"{size_text(part_bytes)} of {size_text(whole_bytes)}"
    return f"{told} ({percent(part_bytes, whole_bytes)})" if whole_bytes else told


def percent(part: float, whole: float) -> str:
    """Return a share; what is not nothing does not read as 0, and what is not all not as 100."""
    share = part / whole
    if 0 < share < _LEAST_SHARE:
        return f"under {_LEAST_SHARE:.1%}"
    if 1 - _LEAST_SHARE < share < 1:
        return f"over {1 - _LEAST_SHARE:.1%}"
    return f"{share:.1%}"


def clock(timestamp_ns: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a moment in UTC."""
    return f"{_EPOCH + timedelta(microseconds=timestamp_ns // _NANOSECONDS_PER_MICROSECOND):{form}}"


def duration(milliseconds: int) -> str:
    """Return a length of time in the unit that suits it."""
    for unit_ms, unit in _UNITS_MS:
        if milliseconds >= unit_ms:
            return f"{milliseconds / unit_ms:.3g} {unit}"
    return f"{milliseconds} ms"


def time_ticks(axis: TimeAxis) -> list[Tick]:
    """Return the marks of an axis of time, with as much of date and time as its length needs."""
    span = axis.end_ns - axis.begin_ns
    form = "%Y-%m" if span > _YEAR_NS else "%m-%d" if span > 4 * _DAY_NS else "%m-%d %H:%M"
    if axis.begin_ns // _DAY_NS == axis.end_ns // _DAY_NS:
        form = "%H:%M:%S" if span < _HOUR_NS else "%H:%M"
    return [Tick(place=place, label=clock(axis.begin_ns + int(span * place), form)) for place in _TICKS]


def latency_place(latency_ms: int) -> float:
    """Return where a latency stands on a logarithmic axis from 1 ms to the greatest of `LATENCIES_MS`."""
    return min(math.log10(max(latency_ms, 1)) / math.log10(LATENCIES_MS[-1]), 1.0)


def latency_ticks() -> list[Tick]:
    """Return the marks of that axis."""
    marks: Sequence[int] = (1, 1_000, 60_000, 3_600_000, LATENCIES_MS[-1])
    return [Tick(place=latency_place(mark), label=duration(mark)) for mark in marks]
