"""What the reassembler says about each segment: frozen dataclasses that a ``match`` takes apart.

One `Outcome` answers each `Reassembler.add`. A `Kept` one says that the content is held, or was used: it may be
acknowledged. A `Refused` one says that it is not, and may not be: whoever sent it sends it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairway.events import Limit, LossReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKey:
    """Identity of one set: the segments of one sending of one payload by one sender.

    SEGMENTATION, "Storage / Persistence", indexes by hash and sender; LIP-243 adds the length. The generation tells
    repeated sendings of the same payload apart.
    """

    sender_id: str
    payload_hash: bytes
    payload_length: int | None
    """None with SEGMENTATION, which does not tell."""
    generation: int
    """0 for the first sending that is remembered, then counted up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLost:
    """An incomplete set was given up: its message will not be delivered unless it is sent anew."""

    set_key: SetKey
    reason: LossReason
    """SEGMENTS_EXPIRED, HASH_MISMATCH, or SEGMENTS_EVICTED for one that `Reassembler.evict` gave up."""
    held: int
    """Segments that were held, data and parity."""
    needed: int | None
    """Segments that would have sufficed; None if no segment told."""
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
    """What seemed to be a further sending of a message was the rest of one that is complete: nothing is lost."""

    set_key: SetKey
    """Of the complete one."""
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
    """Segments that suffice: the number of data segments; None until one of those tells, where parity does not."""
    disputed: bool = False
    """As in `SegmentSetAside`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted:
    """The payload is whole and its Keccak-256 was verified."""

    set_key: SetKey
    payload: bytes
    recovered: bool
    """Whether Reed-Solomon filled in lost data segments."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments taken in, in segment order."""
    segments: Mapping[str, int]
    """Segment order of each of them: the data index, or data_count plus the parity index."""
    missing_orders: frozenset[int]
    """Segment orders that were not taken in; those of parity as far as parity_count is known."""
    data_count: int
    parity_count: int
    """0 for none, or if no parity segment told."""
    forged_ids: tuple[str, ...] = ()
    """SDS ids of segments that had been taken in, and are not the message's."""
    set_aside: frozenset[int] = frozenset()
    """Those of ``missing_orders`` whose segments came and were set aside for a forged one. They come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurplus:
    """The segment belongs to a message that is complete already."""

    set_key: SetKey
    merged_ids: tuple[str, ...] = ()
    """SDS ids of segments that do so, too, as is known now, and that had been stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDuplicate:
    """The segment is held already; the life of its set is not extended."""

    set_key: SetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSetAside:
    """With this segment there would be enough, or its slot is filled, but the hash is not the one promised.

    Some segment is forged or damaged; others may still make the message whole.
    """

    set_key: SetKey
    disputed: bool
    """Whether the set has just become one whose hash is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDiscarded:
    """The content was not kept."""

    reason: str
    """One of "undecodable", "invalid", "oversized", "count-mismatch", "given-up" and "no-room"."""
    detail: str
    full: Limit | None = None
    """Which bound leaves no room."""


Kept = WholeMessage | SegmentStored | MessageCompleted | SegmentSurplus | SegmentDuplicate
"""The content may be acknowledged."""

Refused = SegmentSetAside | SegmentDiscarded
"""The content may not be acknowledged."""

Outcome = Kept | Refused
"""The answer to one `Reassembler.add`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassemblyStatistics:
    """Counts since the reassembler was made, and what it holds now."""

    whole_messages: int
    """Contents that were no segments."""
    segments_stored: int
    """Segments that were new to their set, those that completed it included."""
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
    """Sets that had enough segments, but not those that their hash promised, whatever became of them."""
    sets_rejected: int
    """Those of them that were given up."""
    sets_expired: int
    """Sets given up because nothing came for too long."""
    sets_evicted: int
    """Sets given up by `Reassembler.evict`."""
    open_sets: int
    """Incomplete sets held now."""
    late_sets: int
    """Those of them that may be what came late of a complete message, and then are no message of their own."""
    open_segments: int
    """Segments held now in incomplete sets."""
    buffered_bytes: int
    """Payload bytes held now in incomplete sets."""
    ended_sets: int
    """Completed and given up sets remembered now."""
