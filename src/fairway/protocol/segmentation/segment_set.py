"""A segment set: the segments of one sending of one payload by one sender.

An open set keeps the payloads of its segments. It always has fewer than suffice to rebuild the message: the segment
that would suffice is taken in only if the hash of the rebuilt message is right, and otherwise set aside. A second
content for an index that is taken is set aside, too. A set that has ended, complete or given up, keeps no payloads, but
remembers which SDS message id had which index, so that late segments are recognised. Memory is used for segments that
came only, never for the counts that a segment claims.

A segment that comes once the message is complete can no longer be checked by its hash. So it is remembered apart: it
takes no index from another one, moves no base, and tells no number of segments that would count against another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from fairway.protocol.segmentation.outcomes import SetKey
    from fairway.wire.segment import Segment


class SegmentIndex(NamedTuple):
    """Which segment of its message a segment is; they sort in segment order."""

    is_parity: bool
    number: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentIndex:
        """Return the index of a segment."""
        return cls(segment.is_parity, segment.index)

    def order(self, data_count: int) -> int:
        """Return the segment order: data segments from 0, then parity segments."""
        return self.number + data_count if self.is_parity else self.number


MAX_LATE_PER_SEGMENT: Final = 4
"""Late segments that are remembered for one index of a message that is complete: all but one of them are forged."""

FIRST_INDEX: Final = SegmentIndex(is_parity=False, number=0)
"""Index of the segment that a sender makes, and stamps, first."""


class SetState(Enum):
    """Whether a set still waits for segments, and if not, how it ended."""

    OPEN = "open"
    DOUBTFUL = "doubtful"
    """It is open, but other segments of the same sending may have been acknowledged and given up before. Together with
    those, its segments might seem to the sender to be enough, so none may be acknowledged until the message is
    complete."""
    COMPLETED = "completed"
    GIVEN_UP = "given-up"
    """It expired, or its hash was never right. Its further segments are refused: to acknowledge them would tell the
    sender that the message was delivered."""


class SetAside(NamedTuple):
    """A segment that is held, but not taken in: either it is forged, or another one of its set is."""

    segment_index: SegmentIndex
    sds_id: str
    payload: bytes
    order_key: int


@dataclass(slots=True, kw_only=True, eq=False)
class SegmentSet:
    """The segments of one sending.

    The base of a segment is its order key less its segment order. A sender makes the segments of a message one after
    the other, so that all of them have the same base, or nearly. The set keeps the range of the bases seen.
    """

    key: SetKey
    data_count: int
    """0 while it is unknown, because no data segment came, and parity segments of SEGMENTATION do not tell it. Until
    it is known, the segment order of parity is counted from 0."""
    parity_count: int
    """0 for none, and while no parity segment came, since data segments of SEGMENTATION do not tell it."""
    first_base: int
    last_base: int
    grown_ms: int
    """When it gained its newest segment, in milliseconds since the Unix epoch."""
    turn: int
    """Number of its newest change, counted over all sets: it orders sets that changed in the same millisecond."""
    state: SetState = SetState.OPEN
    disputed: bool = False
    """Whether segments that suffice came, and the hash of what they give is not the one that they name."""
    aside: list[SetAside] = field(default_factory=list)
    """Segments set aside, oldest first. They are not stored: their sender sends them again."""
    ids: dict[SegmentIndex, str] = field(default_factory=dict)
    """SDS message ids of the segments that were taken in, by their index."""
    data: dict[int, bytes] = field(default_factory=dict)
    """Payloads of the data segments, by index; empty once the set has ended."""
    parity: dict[int, bytes] = field(default_factory=dict)
    """Payloads of the parity segments, by index; empty once the set has ended."""
    late: dict[str, SegmentIndex] = field(default_factory=dict)
    """Indexes of the segments that came once the message was complete, by their SDS message ids."""
    name: str = field(init=False)
    """The key as a string."""

    def __post_init__(self) -> None:
        length = "-" if self.key.payload_length is None else self.key.payload_length
        self.name = f"{self.key.payload_hash.hex()}/{length}/{self.key.generation}/{self.key.sender_id}"

    @property
    def is_open(self) -> bool:
        """Whether it still waits for segments."""
        return self.state in {SetState.OPEN, SetState.DOUBTFUL}

    @property
    def is_whole(self) -> bool:
        """Whether it is completed and every segment came, parity too; no while the count of parity is unknown."""
        count = self.data_count + self.parity_count
        return self.state is SetState.COMPLETED and bool(self.parity_count) and len(self.indexes) == count

    @property
    def indexes(self) -> set[SegmentIndex]:
        """Indexes of all segments that came, the late ones included."""
        return {*self.ids, *self.late.values()}

    @property
    def id_count(self) -> int:
        """How many SDS message ids it remembers."""
        return len(self.ids) + len(self.late)

    @property
    def byte_count(self) -> int:
        """Payload bytes held."""
        return sum(map(len, self.data.values())) + sum(map(len, self.parity.values()))

    @property
    def last_order_key(self) -> int:
        """Return the order key that no segment which is here exceeds."""
        return self.last_base + max((index.order(self.data_count) for index in self.indexes), default=0)

    @property
    def sds_ids(self) -> tuple[str, ...]:
        """SDS ids of all segments that came, in segment order."""
        return tuple(sds_id for _, sds_id in self.came())

    def came(self) -> list[tuple[SegmentIndex, str]]:
        """Return index and SDS id of all segments that came, in segment order."""
        return sorted([*self.ids.items(), *((index, sds_id) for sds_id, index in self.late.items())])

    def has(self, index: SegmentIndex, sds_id: str) -> bool:
        """Return whether the segment of an index came under an SDS id."""
        return self.ids.get(index) == sds_id or self.late.get(sds_id) == index

    def payload_of(self, index: SegmentIndex) -> bytes | None:
        """Return the payload at an index of an open set; None if it has none."""
        return (self.parity if index.is_parity else self.data).get(index.number)

    def end(self, state: SetState) -> None:
        """Forget the payloads: the message is complete, or given up."""
        self.state = state
        self.disputed = False
        self.data.clear()
        self.parity.clear()
        self.aside.clear()

    def may_be_rest_of(self, complete: SegmentSet, more: SegmentIndex | None = None) -> bool:
        """Return whether this set may hold the segments that a completed set of the same payload lacked.

        It does not if both have a segment at some index. With ``more``, the index of a segment that completes this set,
        all indexes of the completed set count. Without, those that came late do not, because their segments may be
        forged, and the true ones may be here.
        """
        own = self.ids.keys() if more is None else self.ids.keys() | {more}
        others = complete.ids.keys() if more is None else complete.indexes
        return (
            complete.state is SetState.COMPLETED
            and self.data_count in {0, complete.data_count}
            and others.isdisjoint(own)
        )

    def agrees_with(self, segment: Segment, *, self_describing: bool) -> bool:
        """Return whether a segment claims the same numbers of segments as those before it, as far as it claims any."""
        if self_describing:
            return (self.data_count, self.parity_count) == (segment.data_count, segment.parity_count)
        return _agree(self.data_count, segment.data_count) and _agree(self._sure_parity_count, segment.parity_count)

    def distance(self, segment: Segment, order_key: int) -> int:
        """Return how far a segment's base lies from those seen in the set."""
        base, shift = self._base(segment, order_key)
        return max(self.first_base - shift - base, base - (self.last_base - shift), 0)

    def reach(self, segment: Segment) -> int:
        """Return the distance from which on a segment is of another sending than this set.

        The order keys of two sendings differ by at least the number of segments of one. A sender that leaves gaps
        between its order keys spreads the bases, and those of its missing segments may lie as much further away. Where
        a segment came late already, a second one is of this sending, and one of them is forged, only if all bases with
        its own are nearer to each other than those of two sendings can be.
        """
        spread = self.last_base - self.first_base
        is_second = SegmentIndex.of(segment) in self.late.values()
        return self.total_with(segment) + (-spread if is_second else spread)

    def counts_with(self, segment: Segment) -> tuple[int, int]:
        """Return how many data and parity segments the message has, by this set and a segment; 0 if neither tells."""
        return self.data_count or segment.data_count, self._sure_parity_count or segment.parity_count

    def total_with(self, segment: Segment) -> int:
        """Return how many segments the message has, by this set and a segment."""
        return sum(self.counts_with(segment))

    def learn_data_count(self, data_count: int) -> None:
        """Note the number of data segments, which no segment named."""
        self.first_base -= data_count
        self.last_base -= data_count
        self.data_count = data_count

    def put(self, segment: Segment, sds_id: str, order_key: int) -> None:
        """Take a segment into an open set, and note the numbers of segments that it names."""
        base, shift = self._base(segment, order_key)
        self.first_base = min(self.first_base - shift, base)
        self.last_base = max(self.last_base - shift, base)
        self.data_count, self.parity_count = self.counts_with(segment)
        self.ids[SegmentIndex.of(segment)] = sds_id
        (self.parity if segment.is_parity else self.data)[segment.index] = segment.payload

    def put_late(self, index: SegmentIndex, sds_id: str) -> bool:
        """Remember a segment that came once the set had ended; return whether that is new.

        Not if so many came for its index already that somebody makes them up.
        """
        is_known = sds_id in self.late or self.ids.get(index) == sds_id
        if is_known or list(self.late.values()).count(index) >= MAX_LATE_PER_SEGMENT:
            return False
        self.late[sds_id] = index
        return True

    @property
    def _sure_parity_count(self) -> int:
        """The number of parity segments, 0 if only late ones tell it, which may be forged."""
        return self.parity_count if self.is_open or any(index.is_parity for index in self.ids) else 0

    def _base(self, segment: Segment, order_key: int) -> tuple[int, int]:
        """Return the base of a segment, and by how much the bases of the set shift.

        They shift if the segment is the first that names ``data_count``.
        """
        data_count = self.data_count or segment.data_count
        return order_key - SegmentIndex.of(segment).order(data_count), data_count - self.data_count


def open_set(
    key: SetKey, segment: Segment, order_key: int, *, now_ms: int, turn: int, state: SetState = SetState.OPEN
) -> SegmentSet:
    """Return an empty set for a segment that is to be put into it."""
    base = order_key - SegmentIndex.of(segment).order(segment.data_count)
    return SegmentSet(
        key=key,
        data_count=segment.data_count,
        parity_count=segment.parity_count,
        first_base=base,
        last_base=base,
        grown_ms=now_ms,
        turn=turn,
        state=state,
    )


def _agree(known: int, claimed: int) -> bool:
    return 0 in {known, claimed} or known == claimed
