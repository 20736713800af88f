"""Charts of a report as inline SVG: they scale with the page, use its colours, and describe their content in words.

A chart is as wide as a phone's page, so that its letters are readable there; a wide screen shows a table beside it.
Screen readers read out its title and description, and each mark has a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import Final

from fairway.pipeline.report.figures import LATENCIES_MS, TimeAxis
from fairway.pipeline.report.words import clock, duration, of

_WIDTH: Final = 420
_LEFT: Final = 4
_RIGHT: Final = 416
_PLOT_HEIGHT: Final = 120
_TOP: Final = 20
_BOTTOM: Final = _TOP + _PLOT_HEIGHT
_HEIGHT: Final = _BOTTOM + 22
_BAR_PITCH: Final = 36
_BAR_THICKNESS: Final = 12
_FAINTEST: Final = 0.12
_FULL_SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A part of a whole."""

    label: str
    value: float
    whole: float
    note: str
    """The value in words, with its denominator."""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on the horizontal axis."""

    place: float
    """From 0, the left end, to 1."""
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A row of a timeline: for each stretch of time a part of a whole."""

    label: str
    note: str
    parts: Sequence[int]
    wholes: Sequence[int]
    """0 for a stretch without messages."""
    bad: frozenset[int] = frozenset()
    """Stretches in red, such as those of an outage."""


class Charts:
    """Draws the charts of one page, each with its own ids."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def bars(self, title: str, described: str, bars: Sequence[Bar], *, limit: float | None = None) -> str:
        """Return horizontal bars, each below its label; ``limit`` draws a line at that value."""
        scale = max([max(bar.whole, bar.value) for bar in bars] + ([limit] if limit else []), default=0) or 1
        marks = []
        for row, bar in enumerate(bars):
            top = row * _BAR_PITCH
            long = _along(bar.value / scale)
            marks.append(
                f"<g><title>{escape(bar.label)}: {escape(bar.note)}</title>"
                f'<text x="{_LEFT}" y="{top + 13}">{escape(bar.label)}</text>'
                f'<text x="{_RIGHT}" y="{top + 13}" text-anchor="end">{escape(bar.note)}</text>'
                f'<rect class="track" x="{_LEFT}" y="{top + 18}" width="{_along(bar.whole / scale):.1f}"'
                f' height="{_BAR_THICKNESS}" rx="2"/>'
                f'<rect class="bar{" bad" if bar.bad else ""}" x="{_LEFT}" y="{top + 18}" width="{long:.1f}"'
                f' height="{_BAR_THICKNESS}" rx="2"/></g>'
            )
        if limit:
            place = _LEFT + _along(limit / scale)
            # The line crosses only the bars, so that the words between them stay readable.
            marks += [
                f'<path class="limit" d="M{place:.1f} {row * _BAR_PITCH + 16}v{_BAR_THICKNESS + 4}"/>'
                for row in range(len(bars))
            ]
        return self._figure(title, described, len(bars) * _BAR_PITCH, "".join(marks))

    def columns(
        self, title: str, described: str, values: Sequence[float], notes: Sequence[str], top: str, ticks: Sequence[Tick]
    ) -> str:
        """Return a histogram; ``top`` is the greatest value in words, ``notes`` describe the columns."""
        highest = max(values, default=0) or 1
        wide = (_RIGHT - _LEFT) / max(len(values), 1)
        marks = [self._axis(top, ticks)]
        for place, (value, note) in enumerate(zip(values, notes, strict=True)):
            if value:
                # At least 1 high, so that a small value is visible.
                tall = max(_PLOT_HEIGHT * value / highest, 1)
                marks.append(
                    f'<rect class="bar" x="{_LEFT + place * wide:.1f}" y="{_BOTTOM - tall:.1f}"'
                    f' width="{max(wide - 0.8, 0.5):.1f}" height="{tall:.1f}"><title>{escape(note)}</title></rect>'
                )
        return self._figure(title, described, _HEIGHT, "".join(marks))

    def curve(
        self, title: str, described: str, points: Sequence[tuple[float, float]], top: str, ticks: Sequence[Tick]
    ) -> str:
        """Return a curve through points of the unit square, in the order of their first coordinate, as steps."""
        path, height = "", _BOTTOM
        for place, share in points:
            x, y = _LEFT + _along(place), _BOTTOM - _PLOT_HEIGHT * share
            path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {height:.1f}V{y:.1f}"
        half = _BOTTOM - _PLOT_HEIGHT // 2
        marks = (
            f'<path class="grid" d="M{_LEFT} {half}H{_RIGHT}"/>'
            + self._axis(top, ticks)
            + (f'<path class="curve" d="{path}"/>' if path else "")
            + f'<text class="muted" x="{_LEFT + 4}" y="{half - 4}">50 %</text>'
        )
        return self._figure(title, described, _HEIGHT, marks)

    def lanes(self, title: str, described: str, lanes: Sequence[Lane], ticks: Sequence[Tick]) -> str:
        """Return a timeline: each stretch of a lane is darker the greater its part of its whole is."""
        shares = [[_share(part, whole) for part, whole in zip(lane.parts, lane.wholes, strict=True)] for lane in lanes]
        full = full_share(max((max(told, default=0.0) for told in shares), default=0.0))
        marks = []
        for row, lane in enumerate(lanes):
            top = row * _BAR_PITCH
            wide = (_RIGHT - _LEFT) / max(len(lane.wholes), 1)
            marks.append(
                f'<text x="{_LEFT}" y="{top + 13}">{escape(lane.label)}</text>'
                f'<text x="{_RIGHT}" y="{top + 13}" text-anchor="end">{escape(lane.note)}</text>'
                f'<rect class="track" x="{_LEFT}" y="{top + 18}" width="{_RIGHT - _LEFT}" height="{_BAR_THICKNESS}"/>'
            )
            for place, (part, whole) in enumerate(zip(lane.parts, lane.wholes, strict=True)):
                if part:
                    shade = _FAINTEST + (1 - _FAINTEST) * min(shares[row][place] / full, 1.0)
                    marks.append(
                        f'<rect class="bar{" bad" if place in lane.bad else ""}" x="{_LEFT + place * wide:.1f}"'
                        f' y="{top + 18}" width="{wide:.1f}" height="{_BAR_THICKNESS}"'
                        f' fill-opacity="{shade:.2f}"><title>{escape(lane.label)}: '
                        f"{of(part, whole)}</title></rect>"
                    )
        height = len(lanes) * _BAR_PITCH
        marks += [_tick_label(tick, height + 12) for tick in ticks]
        return self._figure(f"{title} (darkest: {full:.0%})", described, height + 18, "".join(marks))

    def _axis(self, top: str, ticks: Sequence[Tick]) -> str:
        lines = "".join(
            f'<path class="grid" d="M{_LEFT + _along(tick.place):.1f} {_TOP}V{_BOTTOM}"/>' for tick in ticks
        )
        return (
            f'{lines}<path class="grid" d="M{_LEFT} {_TOP}H{_RIGHT}M{_LEFT} {_BOTTOM}H{_RIGHT}"/>'
            f'<text class="muted" x="{_LEFT}" y="{_TOP - 6}">{escape(top)}</text>'
            + "".join(_tick_label(tick, _BOTTOM + 15) for tick in ticks)
        )

    def _figure(self, title: str, described: str, height: float, marks: str) -> str:
        own = f"chart-{next(self._numbers)}"
        return (
            f'<figure><figcaption aria-hidden="true">{escape(title)}</figcaption>'
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{own}-title {own}-desc">'
            f'<title id="{own}-title">{escape(title)}</title><desc id="{own}-desc">{escape(described)}</desc>'
            f"{marks}</svg></figure>"
        )


def full_share(greatest: float) -> float:
    """Return the share of a full bar or of the darkest shade: the least that is enough for all values of a chart."""
    return next((share for share in _FULL_SHARES if greatest <= share), 1.0)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _along(share: float) -> float:
    return (_RIGHT - _LEFT) * min(max(share, 0.0), 1.0)


def _tick_label(tick: Tick, y: float) -> str:
    anchor = "start" if tick.place <= 0.02 else "end" if tick.place >= 0.98 else "middle"
    return (
        f'<text class="muted" x="{_LEFT + _along(tick.place):.1f}" y="{y}" text-anchor="{anchor}">'
        f"{escape(tick.label)}</text>"
    )


_HOUR_NS: Final = 3_600_000_000_000
_DAY_NS: Final = 24 * _HOUR_NS
_TICKS: Final = (0.0, 0.5, 1.0)


def time_ticks(axis: TimeAxis) -> list[Tick]:
    """Return the marks of an axis of time: dates, with the time of day if the axis is short."""
    span = axis.end_ns - axis.begin_ns
    form = "%Y-%m-%d" if span > 4 * _DAY_NS else "%Y-%m-%d %H:%M"
    if span < _HOUR_NS:
        form = "%Y-%m-%d %H:%M:%S"
    begins, *others = (clock(axis.begin_ns + int(span * place), form) for place in _TICKS)
    day = len("2026-01-01")
    # A date that all marks share is shown once.
    labels = [begins, *(told[day + 1 :] if told[:day] == begins[:day] and told[day:] else told for told in others)]
    return [Tick(place=place, label=label) for place, label in zip(_TICKS, labels, strict=True)]


def latency_place(latency_ms: int) -> float:
    """Return the place of a latency, from 0 to 1, on a logarithmic axis from 1 ms to the greatest of `LATENCIES_MS`."""
    return min(math.log10(max(latency_ms, 1)) / math.log10(LATENCIES_MS[-1]), 1.0)


def latency_ticks() -> list[Tick]:
    """Return the marks of the axis of `latency_place`."""
    marks: Sequence[int] = (1, 1_000, 60_000, 3_600_000, LATENCIES_MS[-1])
    return [Tick(place=latency_place(mark), label=duration(mark)) for mark in marks]
