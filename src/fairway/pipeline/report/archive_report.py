"""`ArchiveReport`: the findings of `fairway.pipeline.report` about an archive, as plain values.

Counts are over the whole archive. Lists are shortened; counts beside them have their full length.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport:
    """One channel of the archive."""

    channel_id: str
    content: int
    """SDS messages with content, each counted once however often it was sent; a segment is one."""
    sync: int
    ephemeral: int
    repeats: int
    """Further copies of the same SDS messages: retries, repairs, or replays."""
    senders: int
    acknowledged: int
    """Content messages that at least one other participant cites. A lower bound of what was acknowledged: a bloom
    filter together with a cited descendant is evidence too, and is not looked at here."""
    latency_p50_ms: int | None
    """From a message's timestamp to that of the first citation; None if nothing was acknowledged."""
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
class SenderReport:
    """One participant of one channel."""

    channel_id: str
    sender_id: str | None
    """The sender id; None for missing messages whose author no citation names."""
    content: int
    sync: int
    acknowledged: int
    """Content messages of this sender that another participant cites."""
    delivered: int
    incomplete: int
    missing: int
    """Messages of this sender that are cited and not in the archive, as far as citations tell their author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredMessage:
    """A logical message that can be read from the archive."""

    channel_id: str
    sender_id: str
    message_id: str
    """SHA-256 of the payload, lower-case hex."""
    size_bytes: int
    segments: int
    """Data segments; 1 for a message that was not segmented."""
    recovered: bool
    """Whether Reed-Solomon filled in lost segments."""
    timestamp_ns: int
    """Of the last message that was needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteMessage:
    """A set of segments that gives no message."""

    channel_id: str
    sender_id: str
    payload_hash: bytes
    """Keccak-256 that its segments promise."""
    outcome: str
    held: int
    """Segments in the archive."""
    needed: int | None
    """Segments that would do; None when only parity is there, which does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingMessage:
    """An SDS message that others cite and the archive does not hold."""

    channel_id: str
    message_id: str
    sender_id: str | None
    """Its author, if a citation names it."""
    retrieval_hint: bytes | None
    """Its message hash for a query of another store, if a citation has it."""
    cited_by: int
    """Messages that cite it."""
    first_cited_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """Messages that could not be decoded, for one reason."""

    status: str
    """See `fairway.pipeline.stages.Status`."""
    count: int
    example: str
    """The error of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """What one archive holds."""

    archive: str
    messages: int
    """WakuMessages, each hash once."""
    payload_bytes: int
    first_ns: int | None
    """Earliest timestamp; None for an empty archive."""
    last_ns: int | None
    channels: tuple[ChannelReport, ...]
    """The worst first, by the share that was lost; all of them."""
    senders: tuple[SenderReport, ...]
    """Those of whom most was lost first, at most the limit."""
    senders_in_all: int
    """How many there would be without it."""
    delivered: tuple[DeliveredMessage, ...]
    """The largest first, at most the limit."""
    incomplete: tuple[IncompleteMessage, ...]
    """The nearest to complete first, at most the limit."""
    missing: tuple[MissingMessage, ...]
    """The most cited first, at most the limit."""
    quarantined: tuple[Quarantined, ...]
    """The most frequent reason first; all of them."""

    def total(self, figure: str) -> int:
        """Return the sum of a figure over all channels, by the name of the field of `ChannelReport`."""
        return sum(getattr(channel, figure) for channel in self.channels)
