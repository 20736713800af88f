"""What happened in a simulated world, as figures.

Figures are of the conversation, which ends when the channel comes to rest for the first time. Promises are checked up
to the end of the scenes that a world plays after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from math import ceil
from typing import Any, Final

from fairway.events import DeliveryError, MessageDelivered
from fairway.protocol.effects import Purpose
from fairway.simulation.histogram import Histogram
from fairway.simulation.invariants import Checks, Invariant, Violation
from fairway.simulation.ledger import Ledger
from fairway.simulation.looks import Peaks
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.units import HOUR_MS
from fairway.waku.local import NetworkStatistics

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationFigures:
    """Durations in milliseconds, by nearest rank; None where there are none."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None

    @classmethod
    def of(cls, durations_ms: Iterable[int]) -> DurationFigures:
        """Sum up durations."""
        ordered = sorted(durations_ms)
        return cls(
            count=len(ordered),
            p50_ms=_rank(ordered, 50),
            p95_ms=_rank(ordered, 95),
            p99_ms=_rank(ordered, 99),
            max_ms=_rank(ordered, _PERCENT),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What was transmitted for one purpose."""

    purpose: Purpose
    transmissions: int
    content_bytes: int
    """Content of SDS messages: payloads, with the framing of segments."""
    history_bytes: int
    """Causal history and repair requests."""
    bloom_bytes: int
    """Bloom filters."""
    rest_bytes: int
    """Ids, timestamps, and the WakuMessage around it all."""

    @property
    def total_bytes(self) -> int:
        """Encoded WakuMessages, each counted once however many receive it."""
        return self.content_bytes + self.history_bytes + self.bloom_bytes + self.rest_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """Everything that a run showed. The same plan gives an equal report.

    `trace_hash`, `violations`, `quiet`, `lost`, `duplicates`, `order_violations` and most `costs` are of the whole run,
    scenes included; all else is of the conversation.
    """

    plan: SimulationPlan
    trace_hash: str
    """SHA-256 over every deed, event and publication, in order."""
    violations: tuple[Violation, ...]
    quiet: bool
    """Whether the channel came to rest, each time."""
    settled_ms: int
    """How long that took after the last word."""
    sent: int
    payload_bytes: int
    """Bytes of all accepted payloads, each once."""
    ephemeral_sent: int
    ephemeral_received: int
    """Deliveries of ephemeral messages, which are not owed."""
    deliveries_owed: int
    delivered: int
    """Deliveries that are owed and happened."""
    lost: int
    """Deliveries that are owed and did not happen."""
    duplicates: int
    order_violations: int
    first_acknowledgement: DurationFigures
    """Time from a send to its first acknowledgement."""
    delivery: DurationFigures
    """From a send to its delivery to one participant that was owed it, absences included."""
    reached_all: DurationFigures
    """From a send to its delivery to the last participant that was owed it."""
    full_acknowledgement: DurationFigures
    """From a send that asked all present participants to acknowledge until its sender knows that they all have it."""
    mending: DurationFigures
    """From a loss (see ``noticed``) until the participant had the message, or its content otherwise."""
    full_acknowledgements: Histogram
    """The durations behind `full_acknowledgement`."""
    mended: Histogram
    """The durations behind `mending`."""
    idle_bytes: int
    """Bytes transmitted from ten minutes after the last new content until the next, or the end."""
    idle_hours: float
    """How long that was in all, times the participants that were there."""
    noticed: Histogram
    """From a transmission that the network lost on its way to a participant that listened, the first transmission of a
    message or segment, to the moment when that participant wrote down that it lacks it, or had it by other means."""
    unnoticed: int
    """Of these losses those that were never noticed, though the participant stayed."""
    first_acknowledgements: Histogram
    """From a send to its first acknowledgement: its sender knows a recipient."""
    first_recipients: Histogram
    """From a send to its delivery to the first participant that was owed it."""
    recipients: Histogram
    """From a send to its delivery to each participant that was owed it, absences included."""
    last_recipients: Histogram
    """From a send to its delivery to the last participant that was owed it, of those that all of them got."""
    reported_delivered: int
    """Sends that ended in MessageDelivered."""
    reported_failed: int
    """Sends that ended in DeliveryError."""
    claims: int
    """How often a sender was first told that a participant has a segment, or a whole message."""
    false_claims: int
    """How often that was not so at that time."""
    traffic: tuple[Traffic, ...]
    network_deliveries: int
    """Deliveries that the network made, copies included."""
    network_lost: int
    """Deliveries that it lost."""
    deeds: dict[str, int]
    events: dict[str, int]
    peaks: Peaks
    costs: Mapping[str, int]
    """Figures of the whole run, by name; see `fairway.simulation.costs`."""

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.violations

    @property
    def virtual_ms(self) -> int:
        """How long participants talked, and the channel then took to come to rest."""
        return self.plan.duration_ms + self.settled_ms

    @property
    def bytes_per_delivery(self) -> int | None:
        """Bytes transmitted, of all kinds, for each delivery that happened; None where none did."""
        return self.transmitted_bytes // self.delivered if self.delivered else None

    @property
    def idle_bytes_per_hour(self) -> int | None:
        """Bytes that an idle channel costs in an hour for each participant; None where it was never idle."""
        return round(self.idle_bytes / self.idle_hours) if self.idle_hours else None

    @property
    def transmitted_bytes(self) -> int:
        """Bytes of everything transmitted."""
        return sum(traffic.total_bytes for traffic in self.traffic)

    @property
    def transmissions(self) -> int:
        """WakuMessages handed to the network."""
        return sum(traffic.transmissions for traffic in self.traffic)

    @property
    def false_claim_rate(self) -> float:
        """Share of acknowledgements that were not so."""
        return self.false_claims / self.claims if self.claims else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report as what JSON can hold."""
        told = dict(plain(asdict(self)))
        told["replay"] = replay_command(self.plan)
        told["false_claim_rate"] = self.false_claim_rate
        told["bytes_per_delivery"] = self.bytes_per_delivery
        told["idle_bytes_per_hour"] = self.idle_bytes_per_hour
        told["ok"] = self.ok
        return told

    def judged(
        self, ledger: Ledger, checks: Checks, violations: Sequence[Violation], costs: Mapping[str, int], *, quiet: bool
    ) -> SimulationReport:
        """Return the report with what is known at the end of the run."""
        return replace(
            self,
            trace_hash=ledger.trace_hash(),
            costs=costs,
            violations=tuple(violations),
            quiet=quiet,
            lost=checks.lacking(),
            duplicates=sum(violation.invariant is Invariant.ONCE for violation in violations),
            order_violations=sum(violation.invariant is Invariant.ORDER for violation in violations),
        )


def report_conversation(
    plan: SimulationPlan,
    ledger: Ledger,
    network: NetworkStatistics,
    checks: Checks,
    peaks: Peaks,
    *,
    over_ms: int,
    settled_ms: int,
) -> SimulationReport:
    """Count what a ledger holds at ``over_ms``, when the conversation ends; whether promises were kept is not in it."""
    owed = [(sent, names) for sent, names in zip(ledger.sent, checks.owed, strict=True) if names]
    waits = [
        sorted(sent.deliveries[name][0] - sent.at_ms for name in names & sent.deliveries.keys()) for sent, names in owed
    ]
    to_all = [each[-1] for each, (_, names) in zip(waits, owed, strict=True) if len(each) == len(names)]
    acknowledged = [
        sent.first_acknowledged_ms - sent.at_ms for sent in ledger.sent if sent.first_acknowledged_ms is not None
    ]
    to_everybody = [
        at_ms - sent.at_ms
        for sent in ledger.sent
        if sent.present and sent.asked >= sent.present
        for at_ms, event in sent.ends[:1]
        if isinstance(event, MessageDelivered)
    ]
    ends = [event for sent in ledger.sent for _, event in sent.ends]
    return SimulationReport(
        plan=plan,
        trace_hash=ledger.trace_hash(),
        violations=(),
        quiet=True,
        settled_ms=settled_ms,
        sent=len(ledger.sent),
        payload_bytes=sum(sent.size_bytes for sent in ledger.sent),
        ephemeral_sent=ledger.ephemeral_sent,
        ephemeral_received=sum(ledger.ephemeral_deliveries.values()),
        deliveries_owed=sum(len(names) for _, names in owed),
        delivered=sum(len(names & sent.deliveries.keys()) for sent, names in owed),
        lost=0,
        duplicates=0,
        order_violations=0,
        first_acknowledgement=DurationFigures.of(acknowledged),
        delivery=DurationFigures.of(wait for each in waits for wait in each),
        reached_all=DurationFigures.of(to_all),
        full_acknowledgement=DurationFigures.of(to_everybody),
        mending=DurationFigures.of(ledger.mended_ms),
        full_acknowledgements=Histogram.of(to_everybody),
        mended=Histogram.of(ledger.mended_ms),
        idle_bytes=ledger.idle_bytes,
        idle_hours=round((ledger.idle_ms + ledger.idle_until(over_ms)) / HOUR_MS, 3),
        noticed=Histogram.of(ledger.noticed_ms),
        unnoticed=len(ledger.unnoticed()),
        first_acknowledgements=Histogram.of(acknowledged),
        first_recipients=Histogram.of(each[0] for each in waits if each),
        recipients=Histogram.of(wait for each in waits for wait in each),
        last_recipients=Histogram.of(to_all),
        reported_delivered=sum(isinstance(event, MessageDelivered) for event in ends),
        reported_failed=sum(isinstance(event, DeliveryError) for event in ends),
        claims=len(ledger.claims),
        false_claims=sum(not claim.true for claim in ledger.claims),
        traffic=tuple(
            Traffic(
                purpose=purpose,
                transmissions=ledger.transmissions[purpose],
                content_bytes=ledger.bytes[purpose]["content"],
                history_bytes=ledger.bytes[purpose]["history"],
                bloom_bytes=ledger.bytes[purpose]["bloom"],
                rest_bytes=ledger.bytes[purpose]["rest"],
            )
            for purpose in Purpose
        ),
        network_deliveries=network.delivered,
        network_lost=network.lost,
        deeds=dict(sorted(ledger.deeds.items())),
        events=dict(sorted(ledger.events.items())),
        peaks=replace(peaks),
        costs={},
    )


def _rank(ordered: Sequence[int], percent: int) -> int | None:
    """Return the smallest value that at least so many percent do not exceed."""
    return ordered[ceil(len(ordered) * percent / _PERCENT) - 1] if ordered else None


def plain(value: Any) -> Any:
    """Return a value as what JSON can hold."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
