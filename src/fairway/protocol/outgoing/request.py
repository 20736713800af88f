"""One send and its segments: the required acknowledgements, the received ones, and the test for delivery.

A request is one call of ``send``. It is delivered when enough participants hold the whole message: ``required_count``
in number, and each name in ``required_from``. A participant holds the whole message when it acknowledged as many
segments as the message has data segments. Segments of different participants do not count together, because neither
participant has the message.
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
"""Metadata of a field that is not persisted."""


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
    """Transmissions that the node took, failures of the encryption hook, and intervals in which the rate limit held
    back a retry."""
    retry_at: int | None = None
    """Time of its next transmission unless it is acknowledged; None while it waits to leave, for parity, and after its
    send failed."""
    accepted: bool = False
    """Whether the node took it at least once."""
    acknowledged_by: set[str] = field(default_factory=set)
    entered_at_count: int = field(default=0, metadata=_IN_THIS_RUN)
    """Final answers of the node (`TransmissionQueue.done`) when its SDS message entered the history, in this run."""
    refusals: int = field(default=0, metadata=_IN_THIS_RUN)
    """Refusals by the node since it last took the segment, without those for too many requests; in this run."""
    possibly: bool = False
    """Whether the bloom filter of another participant holds it."""

    @property
    def has_left(self) -> bool:
        """Whether the node took it, or an attempt was counted; otherwise no participant can know it."""
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
    """Time of the call of ``send``, or of the latest call that repeated it."""
    deadline_ms: int | None
    """Time after ``accepted_ms`` at which the message expires; None if it never expires."""
    state: RequestState = RequestState.OPEN
    ended_ms: int = 0
    """When it last failed or was delivered."""
    tried_ms: int = field(default=0, metadata=_IN_THIS_RUN)
    """When it was last retransmitted after it failed, in this run."""
    segments: list[str] = field(default_factory=list)
    """SDS ids in segment order; segments in the outbox have none yet."""
    was_sent: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it has neither failed nor been delivered."""
        return self.state is RequestState.OPEN

    @property
    def expires_ms(self) -> int | None:
        """When its deadline passes; None if it has no deadline, or is neither open nor overdue."""
        if self.deadline_ms is None or self.state not in (RequestState.OPEN, RequestState.OVERDUE):
            return None
        return self.accepted_ms + self.deadline_ms

    def chunk_info(self, index: int, *, is_parity: bool) -> ChunkInfo:
        """Return the name of a segment in events; ``index`` counts data segments first, then parity segments."""
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
        """Return whether the acknowledgement of a participant matters; ``holders`` have the whole message."""
        if name in holders:
            return False
        # A named participant counts towards the required count, too.
        return name in self.required_from or len(holders | self.required_from) < self.required_count

    def is_delivered(self, segments: Collection[SentSegment]) -> bool:
        """Return whether its segments have the acknowledgements that its sender requires."""
        return self.reaches(self.required_count, self.required_from, segments)

    def reaches(self, required_count: int, names: frozenset[str], segments: Collection[SentSegment]) -> bool:
        """Return whether ``required_count`` participants, and all in ``names``, hold the whole message."""
        if len(segments) < self.data_count:
            return False
        found = self.holders(segments)
        return len(found) >= required_count and names <= found

    def holders(self, segments: Iterable[SentSegment]) -> set[str]:
        """Return the participants that acknowledged enough segments to hold the whole message."""
        counts: dict[str, int] = {}
        for segment in segments:
            for participant in segment.acknowledged_by:
                counts[participant] = counts.get(participant, 0) + 1
        return {participant for participant, count in counts.items() if count >= self.data_count}

    def delivered_event(self, segments: Iterable[SentSegment], now_ms: int) -> MessageDelivered:
        """Return the event of its delivery."""
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
        """Return the event of its failure."""
        holders = self.holders(segments)
        missing = self.required_from - holders
        by_order = {segment.order: segment.acknowledged_by for segment in segments}
        # Unnamed participants that acknowledged a part of the message are awaited for the rest.
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
    """Return the names of the participants whose acknowledgement a sender requires.

    Raises `ConfigurationError` if the requirement can never be met.
    """
    # The error texts name no argument, because the arguments of a channel's `send` and of the stack differ in name.
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
