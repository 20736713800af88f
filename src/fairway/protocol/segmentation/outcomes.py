"""What the reassembler says about each segment: frozen dataclasses that a ``match`` takes apart.

One `Outcome` answers each `Reassembler.add`. To take one segment in may cost other sets their place (a quota,
a timeout); these losses ride on the same answer as ``lost``, so that none is overlooked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairway.events import LossReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKey:
    """Identity of one set: the segments of one sending of one payload by one sender.

    Seed 003, "Storage / Persistence", indexes by hash and sender; LIP-243 adds the length. The generation tells
    repeated sendings of the same payload apart.
    """

    sender_id: str
    payload_hash: bytes
    payload_length: int | None
    """None in seed 003, which does not tell."""
    generation: int
    """0 for the first sending that is remembered, then counted up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLost:
    """An incomplete set was given up: its message will not be delivered unless it is sent again."""

    set_key: SetKey
    reason: LossReason
    """SEGMENTS_EXPIRED or SEGMENTS_EVICTED."""
    held: int
    """Segments that were held, data and parity."""
    needed: int | None
    """Segments that would have sufficed; None if no segment told."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments that were held, in chunk order."""

    @property
    def sender_id(self) -> str:
        """Who sent it."""
        return self.set_key.sender_id

    @property
    def payload_hash(self) -> bytes:
        """Keccak-256 of the message."""
        return self.set_key.payload_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    lost: tuple[SetLost, ...] = ()
    """Incomplete sets that had to go when this content came: expired, or evicted by a quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMessage(_Answer):
    """The content is no segment but a message of its own (seed 003: sent unmodified)."""

    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStored(_Answer):
    """A new segment was kept; its set is not complete yet."""

    set_key: SetKey
    held: int
    """Segments held of the set, data and parity."""
    needed: int | None
    """Segments that suffice: the number of data segments; None until a data segment of seed 003 tells."""
    mismatch: bool = False
    """Whether this segment sufficed, but what Reed-Solomon made of the set is not what the hash promised.

    That was discarded, to be logged as invalid; the set now waits for its data segments.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted(_Answer):
    """The payload is whole and its Keccak-256 was verified."""

    set_key: SetKey
    payload: bytes
    recovered: bool
    """Whether Reed-Solomon filled in lost data segments."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments received, in chunk order."""
    segments: Mapping[str, int]
    """Chunk order of each of them: the data index, or data_count plus the parity index."""
    missing_orders: frozenset[int]
    """Chunk orders that were not received; those of parity as far as parity_count is known."""
    data_count: int
    parity_count: int
    """0 for none, or if no parity segment of seed 003 told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurplus(_Answer):
    """The segment belongs to a message that is complete already."""

    set_key: SetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDuplicate(_Answer):
    """The segment is held already; the life of its set is not extended."""

    set_key: SetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDiscarded(_Answer):
    """The content was not kept."""

    reason: str
    """One of "undecodable", "invalid", "oversized", "count-mismatch" and "no-room"."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRejected(_Answer):
    """All data segments came, but they are not what their hash promised; the set was dropped."""

    set_key: SetKey
    reason: LossReason
    """HASH_MISMATCH."""
    sds_ids: tuple[str, ...]
    """SDS ids of the segments received, in chunk order."""


Outcome = (
    WholeMessage | SegmentStored | MessageCompleted | SegmentSurplus | SegmentDuplicate | SegmentDiscarded | SetRejected
)
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
    recoveries_failed: int
    """Results of Reed-Solomon that were not what the hash promised."""
    sets_rejected: int
    """Sets whose data were not what the hash promised."""
    sets_expired: int
    """Sets given up because nothing came for too long."""
    sets_evicted: int
    """Sets given up because a quota was full."""
    open_sets: int
    """Incomplete sets held now."""
    open_segments: int
    """Segments held now in incomplete sets."""
    buffered_bytes: int
    """Payload bytes held now in incomplete sets."""
    completed_sets: int
    """Completed sets remembered now."""
