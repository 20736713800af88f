"""`ArchiveReport`: the findings of `fairway.pipeline.report` about an archive, as plain values.

Counts are over the whole archive. `fairway.pipeline.report.tables` has its single messages, senders and topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairway.pipeline.report.evidence import AcknowledgementBasis
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.oddities import Oddity
from fairway.pipeline.report.rates import DoubleSignals, OverLimit
from fairway.pipeline.report.stores import StoreReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport:
    """One channel of the archive."""

    channel_id: str
    messages: Headline
    content: int
    """SDS messages with content, each counted once for all its transmissions; a segment counts as one message."""
    sync: int
    ephemeral: int
    repeats: int
    """Further copies of the same SDS messages: retries, repairs, or replays."""
    senders: int
    acknowledged: int
    """Content messages that at least one other participant has: a lower bound (`AcknowledgementBasis`)."""
    latency_p50_ms: int | None
    """Time from a message's timestamp to that of its first acknowledgement; None without any acknowledgement."""
    latency_p95_ms: int | None
    delivered: int
    """Logical messages that can be read."""
    delivered_bytes: int
    reassembled: int
    """Delivered messages that were sent in segments."""
    recovered: int
    """Reassembled messages that needed Reed-Solomon."""
    incomplete: int
    """Segment sets that cannot be reassembled."""
    missing: int
    """Cited messages that are not in the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """The number of messages that are lost for one cause."""

    cause: str
    """A value of `LossCause`."""
    meaning: str
    status: str | None
    """Status in quarantine; None for messages that are not there."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToDo:
    """An action for the operator."""

    what: str
    """The reason; names are made visible, but not escaped for HTML."""
    action: str
    commands: tuple[str, ...] = ()
    """Commands that carry out the action."""
    section: str
    """Id of the page's section with details."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The report of one archive."""

    headline: Headline
    oddities: tuple[Oddity, ...]
    """Rows of interest to an operator that are neither a loss nor an outage; one item for each kind with rows."""
    to_do: tuple[ToDo, ...]
    """Actions for the operator, the most urgent first."""
    causes: tuple[CauseCount, ...]
    """All causes of losses, the most frequent first."""
    circumstances: dict[str, int]
    """Circumstances at the first citation of lost messages, with the number of these messages."""
    stores: tuple[StoreReport, ...]
    """The least complete first."""
    over_limit: tuple[OverLimit, ...]
    """Senders above the rate limit, the furthest first; at most 1,000, as in each list of channels or senders."""
    over_limit_senders: int
    """Number of all senders above the rate limit."""
    double_signals: tuple[DoubleSignals, ...]
    """Senders that used RLN message ids twice, those with the most first."""
    double_signal_senders: int
    """Number of all senders that used RLN message ids twice."""
    acknowledgement: AcknowledgementBasis
    archive: str
    selection: dict[str, Any] | None
    """The selection of the run (`Selection.as_json`); None for everything."""
    messages: int
    """WakuMessages, each hash counted once."""
    payload_bytes: int
    first_ns: int | None
    """Earliest timestamp; None for an empty archive."""
    last_ns: int | None
    channels: tuple[ChannelReport, ...]
    """The worst channels, by the share that was lost."""
    channel_count: int
    """Number of all channels."""
    totals: dict[str, int]
    """The sums of the figures of all channels, by the names of the columns of ``channel_stats``."""
    senders: int
    """Pairs of a channel and a sender."""
    quarantined: dict[str, int]
    """Messages that could not be decoded, by their status (`fairway.pipeline.stages.Status`), the most first."""
