"""A set: the segments of one sending of one payload by one sender, until and after it has ended.

An open set keeps payloads, fewer than would rebuild the message: the one that would is only taken in once the hash is
right. Until then it is set aside, as are further contents of a slot that is filled already. A set that has ended, whole
or given up, remembers which SDS id filled which slot, so that what still trickles in is recognised. Slots are kept as
they come: the counts that a segment claims never allocate anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fairway.protocol.segmentation.outcomes import SetKey
    from fairway.wire.segment import Segment


class Slot(NamedTuple):
    """Which segment of its set a segment is; slots sort in segment order."""

    is_parity: bool
    number: int

    @classmethod
    def of(cls, segment: Segment) -> Slot:
        """Return the slot that a segment fills."""
        return cls(segment.is_parity, segment.index)

    def order(self, data_count: int) -> int:
        """Return the segment order: data segments from 0, then parity segments."""
        return self.number + data_count if self.is_parity else self.number


class SetState(Enum):
    """Where a set is in its life."""

    OPEN = "open"
    COMPLETED = "completed"
    GIVEN_UP = "given-up"
    """It expired, or its hash was never right. What still comes of it is refused, so that nobody takes its
    acknowledgement for a delivery."""


class SetAside(NamedTuple):
    """A segment that may be forged, or that shows that another one is: held, but not taken in."""

    slot: Slot
    sds_id: str
    payload: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class SegmentSet:
    """One set.

    A sender makes the segments of a message in one go, so the order key less the segment order is the same for
    all of them, or nearly: the base of the set. Kept is the range of the bases seen.
    """

    key: SetKey
    data_count: int
    """0 until a data segment of SEGMENTATION tells; the bases then count parity segments from 0."""
    parity_count: int
    """0 for none, or until a parity segment of SEGMENTATION tells."""
    first_base: int
    last_base: int
    grown_ms: int
    """When it last gained a segment."""
    turn: int
    """Place in the sequence of all changes to all sets, which a clock need not tell."""
    state: SetState = SetState.OPEN
    disputed: bool = False
    """Whether enough segments came whose hash is not the one that they promise."""
    aside: list[SetAside] = field(default_factory=list)
    """Segments set aside, oldest first. They are not stored: whoever sent them sends them again."""
    ids: dict[Slot, str] = field(default_factory=dict)
    """SDS id of the segment in each slot."""
    data: dict[int, bytes] = field(default_factory=dict)
    """Payloads of the data segments, by index; empty once the set has ended."""
    parity: dict[int, bytes] = field(default_factory=dict)
    """Payloads of the parity segments, by index; empty once the set has ended."""
    late: set[Slot] = field(default_factory=set)
    """Slots that were filled once the set was whole, by what nobody could check any more."""
    name: str = field(init=False)
    """The key as a string, unique among sets."""

    def __post_init__(self) -> None:
        length = "-" if self.key.payload_length is None else self.key.payload_length
        self.name = f"{self.key.payload_hash.hex()}/{length}/{self.key.generation}/{self.key.sender_id}"

    @property
    def is_open(self) -> bool:
        """Whether it still waits for segments."""
        return self.state is SetState.OPEN

    @property
    def byte_count(self) -> int:
        """Payload bytes held."""
        return sum(map(len, self.data.values())) + sum(map(len, self.parity.values()))

    @property
    def sds_ids(self) -> tuple[str, ...]:
        """SDS ids in segment order."""
        return tuple(self.ids[slot] for slot in sorted(self.ids))

    def payload_of(self, slot: Slot) -> bytes | None:
        """Return the payload that fills a slot of an open set."""
        return (self.parity if slot.is_parity else self.data).get(slot.number)

    def end(self, state: SetState) -> None:
        """Let go of the payloads: the set is whole, or given up."""
        self.state = state
        self.disputed = False
        self.data.clear()
        self.parity.clear()
        self.aside.clear()

    def may_be_rest_of(self, complete: SegmentSet, more: Slot | None = None) -> bool:
        """Return whether what is here may be what a complete set of the payload had not got.

        With one more slot it would be whole: then it is a message of its own if any slot was filled before. Without, it
        is not, and what came late may be forged, and this be what it stands for.
        """
        slots = self.ids.keys() if more is None else self.ids.keys() | {more}
        filled = complete.ids.keys() if more is not None else complete.ids.keys() - complete.late
        return (
            complete.state is SetState.COMPLETED
            and self.data_count in {0, complete.data_count}
            and filled.isdisjoint(slots)
        )

    def agrees_with(self, segment: Segment, *, self_describing: bool) -> bool:
        """Whether a segment claims the same counts as those before it, as far as it claims any."""
        if self_describing:
            return (self.data_count, self.parity_count) == (segment.data_count, segment.parity_count)
        return _agree(self.data_count, segment.data_count) and _agree(self.parity_count, segment.parity_count)

    def distance(self, segment: Segment, order_key: int) -> int:
        """Return how far a segment's base lies from those seen in the set."""
        base, shift = self._base(segment, order_key)
        return max(self.first_base - shift - base, base - (self.last_base - shift), 0)

    def reach(self, segment: Segment) -> int:
        """Return the distance from which a segment can not be one that the set still misses.

        Two sendings are at least as many order keys apart as one has segments. A sender that stamps its segments
        at intervals spreads its bases, and its missing segments lie as much further off.
        """
        return self.total_with(segment) + self.last_base - self.first_base

    def counts_with(self, segment: Segment) -> tuple[int, int]:
        """Return how many data and parity segments the message has, by what the set and the segment tell."""
        return self.data_count or segment.data_count, self.parity_count or segment.parity_count

    def total_with(self, segment: Segment) -> int:
        """Return how many segments the message has, by what the set and the segment tell."""
        return sum(self.counts_with(segment))

    def learn_data_count(self, data_count: int) -> None:
        """Take a number of data segments that no segment told."""
        self.first_base -= data_count
        self.last_base -= data_count
        self.data_count = data_count

    def put(self, segment: Segment, sds_id: str, order_key: int) -> None:
        """Fill the segment's slot, and learn the counts that it tells."""
        base, shift = self._base(segment, order_key)
        self.first_base = min(self.first_base - shift, base)
        self.last_base = max(self.last_base - shift, base)
        self.data_count, self.parity_count = self.counts_with(segment)
        self.ids[Slot.of(segment)] = sds_id
        if self.is_open:
            (self.parity if segment.is_parity else self.data)[segment.index] = segment.payload

    def _base(self, segment: Segment, order_key: int) -> tuple[int, int]:
        """Return the segment's base, and what the set's bases shift by when it tells data_count first."""
        data_count = self.data_count or segment.data_count
        return order_key - Slot.of(segment).order(data_count), data_count - self.data_count


def open_set(key: SetKey, segment: Segment, order_key: int, *, now_ms: int, turn: int) -> SegmentSet:
    """Return an empty set for a segment that is to be put into it."""
    base = order_key - Slot.of(segment).order(segment.data_count)
    return SegmentSet(
        key=key,
        data_count=segment.data_count,
        parity_count=segment.parity_count,
        first_base=base,
        last_base=base,
        grown_ms=now_ms,
        turn=turn,
    )


def _agree(known: int, told: int) -> bool:
    return 0 in {known, told} or known == told
