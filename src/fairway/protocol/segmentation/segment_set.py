"""A segment set: the segments of one sending of one payload by one sender.

An open set holds the payloads of its segments, always too few to rebuild the message. An ended set, complete or given
up, holds no payloads. It has the SDS id of each segment, to recognise copies and late segments. Memory is used only for
segments that arrived, never for the counts that a segment claims.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.protocol.segmentation.leopard import SHARD_ALIGNMENT

if TYPE_CHECKING:
    from fairway.wire.segment import Segment


class SetKey(NamedTuple):
    """Identity of one set.

    SEGMENTATION, "Storage / Persistence", indexes by hash and sender; LIP-243 adds the length.
    """

    sender_id: str
    payload_hash: bytes
    payload_length: int | None
    """None with SEGMENTATION, whose segments do not name the length."""
    generation: int
    """One more than that of the newest remembered sending of the same payload; 0 without one."""


class SegmentIndex(NamedTuple):
    """The position of a segment in its message; indices sort in segment order."""

    is_parity: bool
    number: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentIndex:
        """Return the index of a segment."""
        return cls(segment.is_parity, segment.index)

    def order(self, data_count: int) -> int:
        """Return the segment order: data segments from 0, then parity segments."""
        return self.number + data_count if self.is_parity else self.number


FIRST_INDEX: Final = SegmentIndex(is_parity=False, number=0)
"""Index of the first segment of a message, which has the lowest Lamport timestamp."""


class SetState(Enum):
    """Whether a set is open, completed or given up."""

    OPEN = "open"
    COMPLETED = "completed"
    GIVEN_UP = "given-up"
    """Its further segments are refused, so the sender does not consider the message delivered."""


@dataclass(slots=True, kw_only=True, eq=False)
class SegmentSet:
    """The segments of one sending.

    The base of a segment is its Lamport timestamp minus its segment order. A sender stamps the segments of a message
    one after the other, so their bases are close to each other. The set has the range of the bases seen.
    """

    key: SetKey
    data_count: int
    """0 if it is unknown, because only parity segments of SEGMENTATION arrived."""
    parity_count: int
    """0 for none, or if it is unknown, because only data segments of SEGMENTATION arrived."""
    first_base: int
    last_base: int
    grown_ms: int = 0
    """Arrival of its newest segment, by the clock of `Reassembler.accept`."""
    turn: int = 0
    """Number of its newest change, counted over all sets."""
    state: SetState = SetState.OPEN
    ids: dict[SegmentIndex, str] = field(default_factory=dict)
    """SDS ids of the segments that arrived, by index."""
    payloads: dict[SegmentIndex, bytes] = field(default_factory=dict)
    """Payloads of the segments, by index; empty once the set has ended."""
    name: str = field(init=False)
    """The key as a string."""

    def __post_init__(self) -> None:
        length = "-" if self.key.payload_length is None else self.key.payload_length
        self.name = f"{self.key.payload_hash.hex()}/{length}/{self.key.generation}/{self.key.sender_id}"

    @classmethod
    def begun_by(cls, segment: Segment, lamport: int, sender_id: str, generation: int) -> SegmentSet:
        """Return an empty set for a segment."""
        base = lamport - SegmentIndex.of(segment).order(segment.data_count)
        return cls(
            key=SetKey(sender_id, segment.payload_hash, segment.payload_length, generation),
            data_count=segment.data_count,
            parity_count=segment.parity_count,
            first_base=base,
            last_base=base,
        )

    @property
    def is_open(self) -> bool:
        """Whether it waits for segments."""
        return self.state is SetState.OPEN

    @property
    def byte_count(self) -> int:
        """Payload bytes held."""
        return sum(map(len, self.payloads.values()))

    @property
    def sds_ids(self) -> tuple[str, ...]:
        """SDS ids of the segments that arrived, in segment order."""
        return tuple(self.ids[index] for index in sorted(self.ids))

    @property
    def orders(self) -> dict[int, str]:
        """SDS ids of the segments that arrived, by segment order, ascending."""
        return {index.order(self.data_count): self.ids[index] for index in sorted(self.ids)}

    def order_of(self, sds_id: str) -> int:
        """Return the segment order of a segment that arrived."""
        return next(index.order(self.data_count) for index, known in self.ids.items() if known == sds_id)

    @property
    def is_whole(self) -> bool:
        """Whether every segment arrived; False while the number of parity segments is unknown."""
        counts_are_known = bool(self.parity_count) or self.key.payload_length is not None
        return counts_are_known and len(self.ids) == self.total

    @property
    def total(self) -> int:
        """Number of data and parity segments, as far as they are known."""
        return self.data_count + self.parity_count

    def counts_with(self, segment: Segment) -> tuple[int, int]:
        """Return the numbers of data and parity segments, from this set or from a segment; 0 if unknown."""
        return self.data_count or segment.data_count, self.parity_count or segment.parity_count

    def counts_agree(self, segment: Segment, *, self_describing: bool) -> bool:
        """Return whether the numbers of segments that a segment claims agree with this set."""
        if self_describing:
            return (self.data_count, self.parity_count) == (segment.data_count, segment.parity_count)
        return _agree(self.data_count, segment.data_count) and _agree(self.parity_count, segment.parity_count)

    def contradicts(self, segment: Segment, *, self_describing: bool) -> bool:
        """Return whether the set is open, and a segment differs in the counts or in the content at its index."""
        if not self.is_open:
            return False
        agrees = self.counts_agree(segment, self_describing=self_describing)
        return not agrees or self.payloads.get(SegmentIndex.of(segment)) != segment.payload

    def may_hold(self, segment: Segment, lamport: int) -> bool:
        """Return whether a segment, whose index is free, may belong to this sending.

        The Lamport timestamps of two sendings differ by at least the number of segments of one. If a sender is slow,
        the bases spread, and missing segments may be as far away. The first segment has the lowest timestamp.
        """
        if self.state is SetState.OPEN:
            return True
        if self.state is SetState.GIVEN_UP:
            return SegmentIndex.of(segment) != FIRST_INDEX or self._base(segment, lamport) <= self.last_base
        reach = sum(self.counts_with(segment)) + self.last_base - self.first_base
        return self.distance(segment, lamport) < reach

    def distance(self, segment: Segment, lamport: int) -> int:
        """Return the distance of a segment's base from the bases of the set; 0 within their range."""
        base, shift = self._base(segment, lamport), self._shift(segment)
        return max(self.first_base - shift - base, base - (self.last_base - shift), 0)

    def fits_shards(self, segment: Segment) -> bool:
        """Return whether the lengths of a segment and of the present ones fit Reed-Solomon.

        "Implementations that apply parity SHALL use fixed-size shards", but the last data segment is sent unpadded.
        """
        data_count, parity_count = self.counts_with(segment)
        index = SegmentIndex.of(segment)
        payloads = {**self.payloads, index: segment.payload}
        size = next((len(payload) for (is_parity, _), payload in payloads.items() if is_parity), None)
        if size is None:
            return True
        if not size or size % SHARD_ALIGNMENT or 0 < data_count < parity_count:
            return False
        last = SegmentIndex(is_parity=False, number=data_count - 1)
        return all(
            len(payload) == size or (index == last and len(payload) < size) for index, payload in payloads.items()
        )

    def put(self, segment: Segment, sds_id: str, lamport: int) -> None:
        """Add a segment to an open set, and note the numbers of segments that it names."""
        base, shift = self._base(segment, lamport), self._shift(segment)
        self.first_base = min(self.first_base - shift, base)
        self.last_base = max(self.last_base - shift, base)
        self.data_count, self.parity_count = self.counts_with(segment)
        self.ids[SegmentIndex.of(segment)] = sds_id
        self.payloads[SegmentIndex.of(segment)] = segment.payload

    def learn_data_count(self, data_count: int) -> None:
        """Note the number of data segments, which no segment named."""
        self.first_base -= data_count
        self.last_base -= data_count
        self.data_count = data_count

    def may_be_rest_of(self, completed: SegmentSet, more: SegmentIndex | None = None) -> bool:
        """Return whether this set may hold late segments of a completed set of the same payload.

        ``more`` is the index of a segment that completes this set.
        """
        own = self.ids.keys() | ({more} if more is not None else set())
        return (
            completed.state is SetState.COMPLETED
            and self.data_count in {0, completed.data_count}
            and completed.ids.keys().isdisjoint(own)
        )

    def _base(self, segment: Segment, lamport: int) -> int:
        return lamport - SegmentIndex.of(segment).order(self.data_count or segment.data_count)

    def _shift(self, segment: Segment) -> int:
        """Return the shift of the bases if the segment is the first to name ``data_count``; else 0."""
        return (self.data_count or segment.data_count) - self.data_count


def _agree(known: int, claimed: int) -> bool:
    return 0 in {known, claimed} or known == claimed
