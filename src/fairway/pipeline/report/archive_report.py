"""`ArchiveReport`: the findings of `fairway.pipeline.report` about an archive, as plain values.

Counts are over the whole archive. `fairway.pipeline.report.tables` has its single messages, senders and topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairway.pipeline.report.evidence import AcknowledgementBasis
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.oddities import Oddity
from fairway.pipeline.report.outages import Outage
from fairway.pipeline.report.rates import DoubleSignals, OverLimit
from fairway.pipeline.report.to_do import ToDo


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport:
    """One channel of the archive."""

    channel_id: str
    messages: Headline
    content: int
    """SDS messages with content, each counted once however often it was sent; a segment is one."""
    sync: int
    ephemeral: int
    repeats: int
    """Further copies of the same SDS messages: retries, repairs, or replays."""
    senders: int
    acknowledged: int
    """Content messages that at least one other participant has: a lower bound (`AcknowledgementBasis`)."""
    latency_p50_ms: int | None
    """From a message's timestamp to that of the first acknowledgement; None if nothing was acknowledged."""
    latency_p95_ms: int | None
    delivered: int
    """Logical messages that can be read."""
    delivered_bytes: int
    reassembled: int
    """Those of delivered that came in segments."""
    recovered: int
    """Those of reassembled that needed Reed-Solomon."""
    incomplete: int
    """Sets of segments that give no message."""
    missing: int
    """Messages that are cited and not in the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """How many messages are lost for one cause."""

    cause: str
    """A value of `LossCause`."""
    meaning: str
    status: str | None
    """For messages in quarantine their state there."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """One store."""

    source: str
    had: int
    lacked: int
    """Of the messages that any store had intact; those of which it has a damaged copy are not among them."""
    damaged: int
    """Messages of which its copy has another hash than it says."""
    repairable: int
    """Those of them that another store has intact."""
    of: int
    alone: int
    """Messages that no other store had: a participant that did not ask this one did not get them from a store."""
    outages: tuple[Outage, ...]
    """In the order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """What one archive holds."""

    headline: Headline
    oddities: tuple[Oddity, ...]
    """Rows that are neither a loss nor an outage, and that an operator should know of; all kinds that there are."""
    to_do: tuple[ToDo, ...]
    """What should be done, the most urgent first."""
    causes: tuple[CauseCount, ...]
    """Why messages are lost, the most frequent cause first; all of them."""
    circumstances: dict[str, int]
    """What was wrong when lost messages were first cited, and how many messages these are."""
    stores: tuple[StoreReport, ...]
    """The least complete first."""
    over_limit: tuple[OverLimit, ...]
    """Senders above the rate limit, the furthest first; all of them."""
    double_signals: tuple[DoubleSignals, ...]
    """Senders that used RLN message ids twice, those with the most first; all of them."""
    acknowledgement: AcknowledgementBasis
    archive: str
    selection: dict[str, Any] | None
    """What was wanted of it, as `Selection.as_json` has it; None for everything."""
    messages: int
    """WakuMessages, each hash once."""
    payload_bytes: int
    first_ns: int | None
    """Earliest timestamp; None for an empty archive."""
    last_ns: int | None
    channels: tuple[ChannelReport, ...]
    """The worst first, by the share that was lost; all of them."""
    senders: int
    """Pairs of a channel and a sender."""
    quarantined: dict[str, int]
    """Messages that could not be decoded by their status (`fairway.pipeline.stages.Status`), the most first."""

    def total(self, figure: str) -> int:
        """Return the sum of a figure over all channels, by the name of the field of `ChannelReport`."""
        return sum(getattr(channel, figure) for channel in self.channels)
