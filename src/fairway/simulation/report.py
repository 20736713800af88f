"""`Report`: the figures of a world; `Furps`: the figures of several worlds together.

The FURPS of SDS (waku-org/pm, ``FURPS/application/sds.md``, "Performance") assume a group with at least one message
every S seconds. A sender knows within S that a participant has its message, and all have it within 6 S. Here S is 5 s.
Figures are of the time before the network is healed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Final

from fairway.events import DeliveryError, MessageDelivered
from fairway.simulation.history import History, Violation
from fairway.simulation.plan import Plan, replay_command

S_MS: Final = 5_000
"""S of the FURPS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One world."""

    plan: Plan
    violations: tuple[Violation, ...]
    trace_hash: str
    """Hash of all events in order."""
    virtual_ms: int
    """Duration in virtual time."""
    sent: int
    delivered: int
    """Sends whose first end was `MessageDelivered`."""
    failed: int
    """Sends whose first end was `DeliveryError`."""
    received: int
    """Messages handed to applications."""
    bytes: dict[str, int]
    """Encoded bytes accepted by the network, by purpose."""
    known_ms: tuple[int, ...]
    """Time from each send until its sender knew that a participant has it."""
    everywhere_ms: tuple[int, ...]
    """Time from each send until all owed participants had it."""
    happened: dict[str, int]
    """Number of each event and each action."""

    @classmethod
    def of(cls, plan: Plan, history: History) -> Report:
        """Return the figures so far."""
        ends = [send.ends[0] for send in history.sends if send.ends]
        everywhere = []
        for send in history.sends:
            owed = history.owed_to(send)
            if owed and owed <= send.received_ms.keys():
                everywhere.append(max(send.received_ms[name] for name in owed) - send.at_ms)
        return cls(
            plan=plan,
            violations=(),
            trace_hash="",
            virtual_ms=history.now_ms(),
            sent=len(history.sends),
            delivered=sum(isinstance(end, MessageDelivered) for end in ends),
            failed=sum(isinstance(end, DeliveryError) for end in ends),
            received=sum(len(send.received_ms) for send in history.sends),
            bytes={
                purpose.value: size for purpose, size in sorted(history.bytes.items(), key=lambda each: each[0].value)
            },
            known_ms=tuple(
                send.acknowledged_ms - send.at_ms for send in history.sends if send.acknowledged_ms is not None
            ),
            everywhere_ms=tuple(everywhere),
            happened=dict(sorted(history.happened.items())),
        )

    def judged(self, history: History) -> Report:
        """Return the same figures with the violations and times at the end."""
        return replace(
            self,
            violations=tuple(history.violations),
            trace_hash=history.trace_hash(),
            virtual_ms=history.now_ms(),
            happened=dict(sorted(history.happened.items())),
        )

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {
            "replay": replay_command(self.plan),
            "ok": self.ok,
            "violations": [
                {"invariant": each.invariant.name.lower(), "at_ms": each.at_ms, "text": each.text}
                for each in self.violations
            ],
            "trace_hash": self.trace_hash,
            "virtual_ms": self.virtual_ms,
            "sent": self.sent,
            "delivered": self.delivered,
            "failed": self.failed,
            "received": self.received,
            "bytes": self.bytes,
            "happened": self.happened,
            "furps": Furps.of([self]).as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Furps:
    """The times and the bytes of worlds together. Times are in milliseconds, by nearest rank."""

    messages: int
    known_p50_ms: int | None
    """Time until a sender knew that at least one participant has its message."""
    known_p90_ms: int | None
    known_within_s: float | None
    """Share of all messages whose sender knew it within S."""
    everywhere_p50_ms: int | None
    """Time until all participants had a message."""
    everywhere_p90_ms: int | None
    everywhere_within_6s: float | None
    """Share of all messages that all participants had within 6 S."""
    bytes_per_message: int | None
    """Transmitted bytes for each message, each counted once for all receivers."""

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Furps:
        """Return the figures of some worlds."""
        reports = list(reports)
        messages = sum(report.sent for report in reports)
        known = sorted(ms for report in reports for ms in report.known_ms)
        everywhere = sorted(ms for report in reports for ms in report.everywhere_ms)
        size = sum(sum(report.bytes.values()) for report in reports)
        return cls(
            messages=messages,
            known_p50_ms=_rank(known, 0.5),
            known_p90_ms=_rank(known, 0.9),
            known_within_s=_within(known, S_MS, messages),
            everywhere_p50_ms=_rank(everywhere, 0.5),
            everywhere_p90_ms=_rank(everywhere, 0.9),
            everywhere_within_6s=_within(everywhere, 6 * S_MS, messages),
            bytes_per_message=size // messages if messages else None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return asdict(self)


def _rank(ordered: Sequence[int], share: float) -> int | None:
    return ordered[ceil(len(ordered) * share) - 1] if ordered else None


def _within(ordered: Sequence[int], most_ms: int, count: int) -> float | None:
    return round(sum(ms <= most_ms for ms in ordered) / count, 4) if count else None
