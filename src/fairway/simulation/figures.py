"""How soon messages came in worlds, and what that cost: figures that add up over worlds, and go to a record and back.

The FURPS of SDS (waku-org/pm, ``FURPS/application/sds.md``, "Performance") say of a group in which somebody speaks at
least every S seconds: a publisher knows within S that at least one recipient has its message; a receiver detects 90 %
of what it missed within 3 S; and it reaches eventual consistency within 6 S. Here S = 5 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from fairway.errors import ConfigurationError
from fairway.protocol.effects import Purpose
from fairway.simulation.histogram import Histogram
from fairway.simulation.report import SimulationReport
from fairway.units import HOUR_MS

S_MS: Final = 5_000
"""S of the FURPS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one world, or of several together."""

    worlds: int = 0
    broken: int = 0
    """Worlds in which something was violated."""
    virtual_ms: int = 0
    messages: int = 0
    """Messages that applications sent."""
    deliveries: int = 0
    """Deliveries that were owed and happened."""
    losses: int = 0
    """First transmissions that the network lost on their way to a participant that listened."""
    transmitted_bytes: Mapping[str, int] = field(default_factory=dict)
    """By purpose."""
    part_bytes: Mapping[str, int] = field(default_factory=dict)
    """The same bytes by part: content, citations, bloom filters, and the rest."""
    idle_bytes: int = 0
    """Bytes transmitted while nothing was said."""
    idle_ms: int = 0
    """How long that was, times the participants that were there."""
    first: Histogram = field(default_factory=Histogram)
    """From a send to the first recipient."""
    known: Histogram = field(default_factory=Histogram)
    """From a send to its first acknowledgement: its sender knows a recipient."""
    known_of_all: Histogram = field(default_factory=Histogram)
    """From a send that asked all present participants until its sender knows that they have it."""
    noticed: Histogram = field(default_factory=Histogram)
    """From a loss to the moment when its receiver knows that it lacks something, or has it by other means."""
    mended: Histogram = field(default_factory=Histogram)
    """From a loss to the moment when its receiver has the message."""
    each: Histogram = field(default_factory=Histogram)
    """From a send to each recipient."""
    last: Histogram = field(default_factory=Histogram)
    """From a send to the last recipient."""

    @classmethod
    def of(cls, report: SimulationReport) -> Self:
        """Return the figures of a world."""
        return cls(
            worlds=1,
            broken=int(not report.ok),
            virtual_ms=report.virtual_ms,
            messages=report.sent,
            deliveries=report.delivered,
            losses=report.noticed.count + report.unnoticed,
            transmitted_bytes={traffic.purpose.value: traffic.total_bytes for traffic in report.traffic},
            part_bytes={
                name: sum(getattr(traffic, f"{name}_bytes") for traffic in report.traffic)
                for name in ("content", "history", "bloom", "rest")
            },
            idle_bytes=report.idle_bytes,
            idle_ms=round(report.idle_hours * HOUR_MS),
            first=report.first_recipients,
            known=report.first_acknowledgements,
            known_of_all=report.full_acknowledgements,
            noticed=report.noticed,
            mended=report.mended,
            each=report.recipients,
            last=report.last_recipients,
        )

    def __add__(self, other: Figures) -> Figures:
        sums = {each.name: _sum(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        return Figures(**sums)

    @property
    def bytes_per_delivery(self) -> int | None:
        """Bytes transmitted, of all kinds, for each delivery that happened; None where none did."""
        return sum(self.transmitted_bytes.values()) // self.deliveries if self.deliveries else None

    @property
    def idle_bytes_per_hour(self) -> int | None:
        """Bytes that an idle channel costs in an hour for each participant; None where it was never idle."""
        return self.idle_bytes * HOUR_MS // self.idle_ms if self.idle_ms else None

    @property
    def known_within_s(self) -> float | None:
        """Share of acknowledged messages of which their sender knew a recipient within S."""
        return _share(self.known.within(S_MS), self.known.count)

    @property
    def noticed_within_3s(self) -> float | None:
        """Share of losses that were noticed within 3 S."""
        return _share(self.noticed.within(3 * S_MS), self.losses)

    @property
    def consistent_within_6s(self) -> float | None:
        """Share of messages that all participants had within 6 S."""
        return _share(self.last.within(6 * S_MS), self.last.count)

    def as_json(self) -> dict[str, Any]:
        """Return the figures as what JSON can hold."""
        told: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Histogram):
                told[f"{each.name}_ms"] = dict(value.counts)
            else:
                told[each.name] = dict(value) if isinstance(value, Mapping) else value
        return told | {
            "virtual_hours": round(self.virtual_ms / HOUR_MS, 3),
            "bytes_per_delivery": self.bytes_per_delivery,
            "idle_bytes_per_hour": self.idle_bytes_per_hour,
            "known_within_s": self.known_within_s,
            "noticed_within_3s": self.noticed_within_3s,
            "consistent_within_6s": self.consistent_within_6s,
        }

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self:
        """Return what `as_json` told. Raises `ConfigurationError` where that cannot be figures."""
        try:
            values: dict[str, Any] = {name: _count(told[name]) for name in _COUNTS}
            for name in _HISTOGRAMS:
                given = told.get(f"{name}_ms", {}) if name in _LATER else told[f"{name}_ms"]
                counts = ((int(edge), _count(count)) for edge, count in given.items())
                values[name] = Histogram(dict(sorted(counts)))
            # Records of earlier versions have less.
            values |= {name: _count(told.get(name, 0)) for name in _LATER_COUNTS}
            values["part_bytes"] = {str(name): _count(of) for name, of in told.get("part_bytes", {}).items()}
            told_bytes = told["transmitted_bytes"].items()
            return cls(**values, transmitted_bytes={Purpose(name).value: _count(of) for name, of in told_bytes})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"these are no figures of worlds: {error!r}") from error


_COUNTS: Final = ("worlds", "broken", "virtual_ms", "messages", "deliveries", "losses")
_LATER_COUNTS: Final = ("idle_bytes", "idle_ms")
_LATER: Final = ("known_of_all", "mended")
_HISTOGRAMS: Final = ("first", "known", "noticed", "each", "last", *_LATER)


def loss_class(loss: float) -> int:
    """Return in which class of loss a world is, in percent: none at all, or the nearest ten above none."""
    return max(10, 10 * round(loss * 10)) if loss else 0


def add_up(each: Iterable[tuple[int, Figures]]) -> dict[int, Figures]:
    """Add figures up by class of loss."""
    sums: dict[int, Figures] = {}
    for loss, figures in each:
        sums[loss] = sums.get(loss, Figures()) + figures
    return dict(sorted(sums.items()))


def _sum(one: Any, other: Any) -> Any:
    return Counter(one) + Counter(other) if isinstance(one, Mapping) else one + other


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
