"""What the reassembler answers to each segment: frozen dataclasses that a ``match`` takes apart.

`Reassembler.add` returns an `Outcome`. With a `Kept` one the content is held, or was used, and may be acknowledged.
With a `Refused` one it may not be acknowledged, so that its sender sends it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairway.events import Limit, LossReason


GIVEN_UP: Final = "given-up"
"""Why a segment is discarded whose message was given up (`SegmentDiscarded.reason`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKey:
    """Identity of one set: the segments of one sending of one payload by one sender.

    SEGMENTATION, "Storage / Persistence", indexes by hash and sender; LIP-243 adds the length. The generation is ours:
    it tells repeated sendings of the same payload apart.
    """

    sender_id: str
    payload_hash: bytes
    payload_length: int | None
    """None with SEGMENTATION, whose segments do not name it."""
    generation: int
    """0 for the oldest sending that is remembered; each new one counts up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLost:
    """An incomplete set was given up: its message will not be delivered unless it is sent anew."""

    set_key: SetKey
    reason: LossReason
    """SEGMENTS_EXPIRED, HASH_MISMATCH, or SEGMENTS_EVICTED for one that `Reassembler.evict` gave up."""
    held: int
    """Segments that were held, data and parity."""
    needed: int | None
    """How many segments would have sufficed; None if that is unknown."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments that were held, in segment order."""

    @property
    def sender_id(self) -> str:
        """Who sent it."""
        return self.set_key.sender_id

    @property
    def payload_hash(self) -> bytes:
        """Keccak-256 of the message."""
        return self.set_key.payload_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMerged:
    """A set that seemed to be a further sending of a message held the rest of a completed one: nothing is lost."""

    set_key: SetKey
    """The set of the completed message."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments that were held, in segment order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMessage:
    """The content is no segment but a message of its own (SEGMENTATION, "Sending": transmitted unmodified)."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStored:
    """A new segment was kept; its set is not complete yet."""

    set_key: SetKey
    held: int
    """Segments held of the set, data and parity."""
    needed: int | None
    """How many segments suffice, which is the number of data segments; None while that is unknown."""
    disputed: bool = False
    """As in `SegmentSetAside`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted:
    """The message is complete, and its Keccak-256 is the one that its segments name."""

    set_key: SetKey
    payload: bytes
    recovered: bool
    """Whether Reed-Solomon filled in lost data segments."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments taken in, in segment order."""
    segments: Mapping[str, int]
    """Segment order of each of them, by SDS message id."""
    missing_orders: frozenset[int]
    """Segment orders of those that were not taken in; parity is among them if parity_count is known."""
    data_count: int
    parity_count: int
    """0 for none, and if it is unknown."""
    forged_ids: tuple[str, ...] = ()
    """SDS ids of segments that had been taken in and turned out to be forged."""
    set_aside: frozenset[int] = frozenset()
    """Those of ``missing_orders`` whose segments came, and were set aside. Their sender sends them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurplus:
    """The segment belongs to a message that was complete before."""

    set_key: SetKey
    sds_ids: tuple[str, ...]
    """SDS ids of all segments of that message that came, this one included."""
    merged_ids: tuple[str, ...] = ()
    """SDS ids of segments that were held in another set, and belong to that message, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDuplicate:
    """The segment is held already. The timeout of its set does not begin anew."""

    set_key: SetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSetAside:
    """A segment is held and may not be acknowledged; others may still complete the message.

    Mostly a segment of the set is forged or damaged, perhaps this one: with it there would be enough, and the hash
    would be wrong; or there is another content for its index. Or else the segment is doubtful.
    """

    set_key: SetKey
    disputed: bool
    """Whether this segment is the first with which the hash of the set is wrong."""
    is_useless: bool = False
    """Whether it is a message of one segment with the wrong hash, so that no other segment can make use of it. It is
    not held."""
    is_doubtful: bool = False
    """Whether nothing is wrong with the segment, but it may be of a message whose other segments were acknowledged and
    given up (`fairway.protocol.segmentation.segment_set.SetState.DOUBTFUL`). It is held, and may be taken in once
    another segment shows that it is of a new sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDiscarded:
    """The content was not kept."""

    reason: str
    """One of "undecodable", "invalid", "oversized", "count-mismatch", "given-up" and "no-room"."""
    detail: str
    full: Limit | None = None
    """The bound that leaves no room; None for other reasons."""


Kept = WholeMessage | SegmentStored | MessageCompleted | SegmentSurplus | SegmentDuplicate
"""The content may be acknowledged."""

Refused = SegmentSetAside | SegmentDiscarded
"""The content may not be acknowledged."""

Outcome = Kept | Refused
"""The answer of `Reassembler.add`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassemblyStatistics:
    """Counts since the reassembler was made, and what it holds now."""

    whole_messages: int
    """Contents that are messages of their own, and no segments."""
    segments_stored: int
    """Segments that were taken in, also those that completed their set."""
    segments_duplicate: int
    """Segments that were held already."""
    segments_surplus: int
    """Segments of messages that were complete already."""
    segments_discarded: Mapping[str, int]
    """Contents that were not kept, by `SegmentDiscarded.reason`."""
    messages_completed: int
    """Messages handed out from segments."""
    messages_recovered: int
    """Those of them that needed Reed-Solomon."""
    segments_set_aside: int
    """Segments that were set aside because some segment of their set is forged or damaged."""
    sets_disputed: int
    """Sets that once had enough segments, and the wrong hash; some may have been completed since."""
    sets_rejected: int
    """Those of them that were given up."""
    sets_expired: int
    """Sets given up because no new segment came for too long."""
    sets_evicted: int
    """Sets given up by `Reassembler.evict`."""
    open_sets: int
    """Incomplete sets held now."""
    late_sets: int
    """Those of them that may hold late segments of a completed message, instead of a message of their own."""
    open_segments: int
    """Segments held now in incomplete sets."""
    buffered_bytes: int
    """Payload bytes held now in incomplete sets."""
    ended_sets: int
    """Completed and given up sets remembered now."""
