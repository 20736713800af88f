"""The results of `Reassembler.accept`: `MessageComplete`, `SegmentKept` or `Refused`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairway.events import Limit, LossReason
    from fairway.protocol.segmentation.segment_set import SegmentSet, SetKey

GIVEN_UP: Final = "given-up"
"""`Refused.reason` of a segment whose message was given up."""

HASH_MISMATCH: Final = "hash-mismatch"
"""`Refused.reason` of the segment that would have completed a message, if the hash of the payload is wrong."""


class SetLost(Struct, frozen=True, kw_only=True):
    """An incomplete set was discarded."""

    key: SetKey
    reason: LossReason | None
    """SEGMENTS_EXPIRED, HASH_MISMATCH, or SEGMENTS_EVICTED after `Reassembler.evict`. None if nothing is lost: the set
    held late segments of a completed message."""
    sds_ids: tuple[str, ...]
    """SDS ids of its segments, in segment order."""


class MessageComplete(Struct, frozen=True, kw_only=True):
    """A complete message. Its content may be acknowledged."""

    payload: bytes
    segments: SegmentSet | None = None
    """The segments that arrived; None if the content is a whole message (SEGMENTATION, "Sending": unmodified)."""
    recovered: bool = False
    """Whether Reed-Solomon computed lost data segments."""


class SegmentKept(Struct, frozen=True, kw_only=True):
    """The segment was kept, or its message was complete before. Its content may be acknowledged."""

    segments: SegmentSet
    """The set of the segment."""
    is_late: bool = False
    """Whether the message was complete before."""
    is_duplicate: bool = False
    """Whether an open set already held the segment."""
    merged_ids: tuple[str, ...] = ()
    """SDS ids of another set's segments, now known to be late segments of this message."""


class Refused(Struct, frozen=True, kw_only=True):
    """The content was not kept and must not be acknowledged: its sender retransmits it."""

    reason: str
    """One of "undecodable", "invalid", "oversized", "contradicting", "no-room", "given-up" and "hash-mismatch"."""
    detail: str
    full: Limit | None = None
    """The limit that is reached; None for other reasons."""
    key: SetKey | None = None
    """The set of the segment, if its message was given up."""
    lost: SetLost | None = None
    """The set that was discarded because the hash of its payload is wrong."""


Outcome = MessageComplete | SegmentKept | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassemblyStatistics:
    """Counts since the reassembler was created, and its present size."""

    whole_messages: int
    """Contents that are whole messages, not segments."""
    segments_stored: int
    """Segments that were kept, including those that completed their set."""
    segments_duplicate: int
    """Copies of segments of open sets."""
    segments_surplus: int
    """Segments that arrived after their message was complete."""
    segments_discarded: Mapping[str, int]
    """Refused contents, by `Refused.reason`."""
    messages_completed: int
    """Messages reassembled from segments."""
    messages_recovered: int
    """Those of these messages that needed Reed-Solomon."""
    sets_rejected: int
    """Sets discarded because the hash of their payload was wrong."""
    sets_expired: int
    """Sets that expired without a new segment."""
    sets_evicted: int
    """Sets evicted by `Reassembler.evict`."""
    open_sets: int
    """Incomplete sets held now."""
    late_sets: int
    """Those of these sets that may hold late segments of a completed message."""
    open_segments: int
    """Segments held now in incomplete sets."""
    buffered_bytes: int
    """Payload bytes held now in incomplete sets."""
    ended_sets: int
    """Completed and given up sets remembered now."""
