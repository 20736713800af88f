"""One send and its segments: what was asked for, what is known, and when that is enough.

A request is one call of ``send``. It is delivered when as many participants as the sender asked for, and those that he
named, hold the whole message: all its data segments, or any as many of its segments as suffice to rebuild it. Segments
that different participants hold do not count together, because none of these has the message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from fairway.errors import ConfigurationError
from fairway.events import ChunkInfo, DeliveryError, FailureReason, MessageDelivered
from fairway.protocol.names import checked_name
from fairway.protocol.outgoing.request_life import FAILED, RequestState
from fairway.type_checks import check_type

_IN_THIS_RUN: Final = {"stored": False}
"""Metadata of a field that no row holds."""


@dataclass(slots=True, kw_only=True)
class SentSegment:
    """One segment of a request; its SDS message has the same id."""

    sds_id: str
    request_id: str
    order: int
    """Its segment order: data segments from 0, then parity segments."""
    is_parity: bool
    sequence: int
    """Number of its SDS message among the own messages of the channel."""
    made_ms: int
    """When its SDS message was made, in Unix milliseconds."""
    attempts: int = 0
    """Attempts that count: those that the node took, and those at which the encryption hook failed."""
    retry_at: int | None = None
    """When it is sent again unless acknowledged; None if no time is set: it waits to leave, is parity, or its send
    failed."""
    accepted: bool = False
    """Whether the network took it at least once."""
    acknowledged_by: set[str] = field(default_factory=set)
    entered_at_count: int = field(default=0, metadata=_IN_THIS_RUN)
    """How many transmissions the node had answered for good when its SDS message entered the history, in this run."""
    refusals: int = field(default=0, metadata=_IN_THIS_RUN)
    """How often the node refused it since it took it last, not counting answers that ask for less; in this run."""
    possibly: bool = False
    """Whether somebody's bloom filter holds it."""

    @property
    def has_left(self) -> bool:
        """Whether it left before, or was to; otherwise no participant can know of it."""
        return self.accepted or self.attempts > 0


@dataclass(slots=True, kw_only=True)
class SendRequest:
    """One call of ``send``."""

    request_id: str
    message_id: str
    size_bytes: int
    """Size of the payload."""
    data_count: int
    segment_count: int
    required_count: int
    required_from: frozenset[str]
    accepted_ms: int
    """When it was sent, or last sent again with its request id."""
    deadline_ms: int | None
    """For how long after that the message is of use; None: without end."""
    state: RequestState = RequestState.OPEN
    ended_ms: int = 0
    """When it last failed or was delivered."""
    tried_ms: int = field(default=0, metadata=_IN_THIS_RUN)
    """When it was last sent again after it failed, in this run."""
    segments: list[str] = field(default_factory=list)
    """SDS ids in the order of the segments; shorter than complete while segments still wait for their turn."""
    was_sent: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it has neither failed nor been delivered."""
        return self.state is RequestState.OPEN

    @property
    def expires_ms(self) -> int | None:
        """When its deadline passes; None if it has none, or that happened."""
        if self.deadline_ms is None or self.state not in (RequestState.OPEN, RequestState.OVERDUE):
            return None
        return self.accepted_ms + self.deadline_ms

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

    def awaits(self, name: str, holders: set[str]) -> bool:
        """Return whether the acknowledgement of a participant matters, if these have the whole message."""
        if name in holders:
            return False
        # A participant that is named counts as well, once it has the message.
        return name in self.required_from or len(holders | self.required_from) < self.required_count

    def is_delivered(self, segments: Collection[SentSegment]) -> bool:
        """Return whether its segments are acknowledged as its sender asked for."""
        return self.reaches(self.required_count, self.required_from, segments)

    def reaches(self, required_count: int, names: frozenset[str], segments: Collection[SentSegment]) -> bool:
        """Return whether its segments are acknowledged by so many participants and all of these."""
        if len(segments) < self.data_count:
            return False
        found = self.holders(segments)
        return len(found) >= required_count and names <= found

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
            late=self.state in FAILED,
        )

    def failed_event(
        self, segments: Collection[SentSegment], reason: FailureReason, detail: str, refusal: str
    ) -> DeliveryError:
        """Return the event that tells of its failure."""
        holders = self.holders(segments)
        missing = self.required_from - holders
        by_order = {segment.order: segment.acknowledged_by for segment in segments}
        # Of participants that are not named, those that acknowledged a part are the ones to get the rest.
        partial = set().union(*by_order.values()) - holders if len(holders) < self.required_count else set()
        awaited = missing | partial
        return DeliveryError(
            request_id=self.request_id,
            message_id=self.message_id,
            reason=reason,
            detail=detail,
            acknowledged_by=tuple(sorted(set().union(*by_order.values()))),
            delivered_to=tuple(sorted(holders)),
            missing=tuple(sorted(missing)),
            missing_count=max(len(missing), self.required_count - len(holders)),
            chunks_missing=tuple(
                order for order in range(self.data_count) if not awaited or not awaited <= by_order.get(order, set())
            ),
            total_chunks=self.data_count,
            refusal=refusal,
        )


def wanted_names(required_count: int, required_from: Iterable[str], own_name: str | None = None) -> frozenset[str]:
    """Return the participants by name whose acknowledgement a sender wants.

    Raises `ConfigurationError` for what can never be met.
    """
    # The texts name no argument, because those of a channel's `send` have other names than those of the stack.
    check_type("the number of participants to acknowledge", required_count, int)
    if required_count < 1:
        raise ConfigurationError(f"at least 1 participant must be asked to acknowledge, not {required_count}")
    if isinstance(required_from, str | bytes) or not isinstance(required_from, Iterable):
        raise ConfigurationError(
            f"participants to acknowledge are given as a collection of names, such as ['bob'], not as {required_from!r}"
        )
    names = frozenset(
        checked_name("the name of a participant to acknowledge", name, "give its sender id") for name in required_from
    )
    if own_name in names:
        raise ConfigurationError(f"{own_name!r}, the sender, does not acknowledge itself: leave it out of the names")
    return names


def wanted_id(request_id: str) -> str:
    """Return a request id that a caller chose, or raise `ConfigurationError`."""
    return checked_name("request_id", request_id, "leave it out to have one made")
