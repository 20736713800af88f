"""One send and its segments: what was asked for, what is known, and when that is enough.

A request is one call of ``send``. It is delivered when as many participants as the sender asked for, and those that he
named, hold the whole message: all its data segments, or any as many of its segments as suffice to rebuild it. Segments
that different participants hold do not count together, because none of these has the message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fairway.errors import ConfigurationError
from fairway.events import ChunkInfo, MessageDelivered
from fairway.protocol.names import checked_name
from fairway.protocol.outgoing.segment_life import LIFE, UNDER_WAY, SegmentState, SegmentStep


@dataclass(slots=True, kw_only=True)
class SentSegment:
    """One segment of a request; its SDS message has the same id."""

    sds_id: str
    request_id: str
    order: int
    """Its segment order: data segments from 0, then parity segments."""
    is_parity: bool
    attempts: int = 0
    """Attempts that count: those that the node took, and those at which the encryption hook failed."""
    retry_at: int | None = None
    """When it is sent again unless acknowledged; None if that is not planned: it waits to leave, or is parity."""
    accepted: bool = False
    """Whether the network took it at least once."""
    acknowledged_by: set[str] = field(default_factory=set)
    possibly: bool = False
    """Whether somebody's bloom filter holds it."""
    state: SegmentState = LIFE[SegmentState.OUTBOX][SegmentStep.TAKEN_OUT]
    """Where it is on its way out; it begins where the outbox is left, and `Requests.move` takes each step."""

    @property
    def is_repeated(self) -> bool:
        """Whether it is on its way again."""
        return self.attempts > 0 and self.state in UNDER_WAY


@dataclass(slots=True, kw_only=True)
class SendRequest:
    """One call of ``send`` that has not ended."""

    request_id: str
    message_id: str
    data_count: int
    required_count: int
    required_from: frozenset[str]
    segments: list[str] = field(default_factory=list)
    """SDS ids in the order of the segments; shorter than complete while segments still wait for their turn."""
    segment_count: int
    was_sent: bool = False

    def chunk_info(self, index: int, *, is_parity: bool) -> ChunkInfo:
        """Return how events name a segment; ``index`` counts data segments first and goes on with parity."""
        return ChunkInfo(
            chunk_index=index - self.data_count if is_parity else index,
            total_chunks=self.segment_count - self.data_count if is_parity else self.data_count,
            is_parity=is_parity,
        )

    @property
    def anybody_will_do(self) -> bool:
        """Whether the acknowledgement of any one participant is enough."""
        return self.required_count == 1 and not self.required_from

    def want_more(self, required_count: int, names: frozenset[str]) -> None:
        """Let it end only when this is met, too."""
        self.required_count = max(self.required_count, required_count)
        self.required_from |= names

    def is_delivered(self, segments: Collection[SentSegment]) -> bool:
        """Return whether its segments are acknowledged as its sender asked for."""
        if len(segments) < self.data_count:
            return False
        found = self.holders(segments)
        return len(found) >= self.required_count and self.required_from <= found

    def holders(self, segments: Iterable[SentSegment]) -> set[str]:
        """Return the participants that acknowledged enough segments to have the whole message."""
        counts: dict[str, int] = {}
        for segment in segments:
            for participant in segment.acknowledged_by:
                counts[participant] = counts.get(participant, 0) + 1
        return {participant for participant, count in counts.items() if count >= self.data_count}

    def delivered_event(self, segments: Iterable[SentSegment], now_ms: int) -> MessageDelivered:
        """Return the event that tells of its delivery."""
        return MessageDelivered(
            request_id=self.request_id,
            message_id=self.message_id,
            delivered_to=tuple(sorted(self.holders(segments))),
            at_ms=now_ms,
        )


def wanted_names(required_count: int, required_from: Iterable[str], own_name: str) -> frozenset[str]:
    """Return the participants by name whose acknowledgement a sender wants.

    Raises `ConfigurationError` for what can never be met.
    """
    # The texts name no argument, because those of a channel's `send` have other names than those of the stack.
    if required_count < 1:
        raise ConfigurationError(f"at least 1 participant must be asked to acknowledge, not {required_count}")
    if isinstance(required_from, str) or not hasattr(required_from, "__iter__"):
        raise ConfigurationError(
            f"participants to acknowledge are given as a collection of names, such as ['bob'], not as {required_from!r}"
        )
    names = frozenset(required_from)
    if own_name in names:
        raise ConfigurationError(f"{own_name!r}, the sender, does not acknowledge itself: leave it out of the names")
    return names


def wanted_id(request_id: str) -> str:
    """Return a request id that a caller chose, or raise `ConfigurationError`."""
    return checked_name("request_id", request_id, "leave it out to have one made")
