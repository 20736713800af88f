"""The incomplete sets: how much each sender has here, whether there is room for a segment, and which sets are overdue.

SEGMENTATION, "Storage / Persistence": per-sender quotas for stored bytes and concurrent reconstructions, and
timeout-based cleanup; "Denial of Service": limit concurrent reconstructions and per-sender storage.

A segment that was taken in was acknowledged, so it is kept: a quota turns new segments away, and never evicts. New sets
are opened only while half of the bytes are free, so that the open ones can be completed. Segments on which other
messages wait may exceed the quotas, and those that wait for nothing themselves may exceed them most (`Urgency`). So
room is left for what is next, also of a sender whose other messages fill its quota. Many messages may be next at once,
as where gaps have timed out. The last room is for those of them that have begun and whose rest fits in: with each
segment that comes it fits fewer of them, and in the end one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.events import Limit
from fairway.protocol.segmentation.priorities import Priorities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.segmentation.segment_set import SegmentSet

SEGMENT_OVERHEAD_BYTES: Final = 1_024
"""What a segment counts beside its payload, so that the quotas bound segments without payload, too."""

_NEW_SETS_SHARE: Final = 2
"""New sets are opened while the bytes held are at most the quota divided by this."""

BECOMING_WHOLE_FACTOR: Final = 4
"""The factor by which quotas of bytes may be used by a message that is next, if all that it lacks fits in."""


class Urgency(Enum):
    """How urgent it is to take a segment in; the value is the factor by which quotas of bytes may be used."""

    LATER = 1
    """It waits for messages that are not here, or it cites nothing and nobody cites it: anybody can begin any number of
    messages with such segments."""
    AWAITED = 2
    """It waits for messages that are not here, and messages that are here wait for it."""
    NEXT = 3
    """It waits for no message, and cites one or is cited: its own is delivered as soon as it is complete. With full
    quotas only such segments can free bytes again."""


@dataclass(slots=True)
class _Holding:
    """The incomplete sets of one sender."""

    opened: dict[str, SegmentSet] = field(default_factory=dict)
    """By name, in the order in which they were opened."""
    byte_count: int = 0
    """Bytes of their payloads, and `SEGMENT_OVERHEAD_BYTES` for each segment."""


class OpenSets:
    """All incomplete sets."""

    def __init__(self, config: SegmentationConfig) -> None:
        self._config = config
        self._senders: dict[str, _Holding] = {}
        self._heaviest = Priorities()
        self._deadlines = Priorities()
        self._sets: dict[str, SegmentSet] = {}
        self._charged = 0
        self.segment_count = 0
        """Segments held."""
        self.byte_count = 0
        """Payload bytes held."""

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[SegmentSet]:
        return iter(self._sets.values())

    def get(self, name: str) -> SegmentSet | None:
        """Return the set of this name, if it is here."""
        return self._sets.get(name)

    def full(self, target: SegmentSet, payload_bytes: int, urgency: Urgency, waiting_bytes: int = 0) -> Limit | None:
        """Return the bound that leaves no room for one more segment of a set, or None if there is room.

        The set may be new. ``waiting_bytes`` are those of `Reassembler.add`.
        """
        cost = payload_bytes + SEGMENT_OVERHEAD_BYTES
        own = self._senders.get(target.key.sender_id)
        is_new = own is None or target.name not in own.opened
        full = self._exceeded(own, cost, urgency.value, waiting_bytes, begins=is_new and urgency is Urgency.LATER)
        if full is None or is_new or urgency is not Urgency.NEXT or not target.data_count:
            return full
        rest = cost * (target.data_count - len(target.ids))
        return self._exceeded(own, rest, BECOMING_WHOLE_FACTOR, waiting_bytes)

    def _exceeded(
        self, own: _Holding | None, cost: int, factor: int, waiting_bytes: int, *, begins: bool = False
    ) -> Limit | None:
        """Return the bound that a sender would exceed with so many bytes more, each bound so many times as high."""
        config, share = self._config, _NEW_SETS_SHARE if begins else 1
        if own is not None:
            if begins and len(own.opened) >= config.max_sets_per_sender:
                return Limit.SEGMENT_SETS_OF_SENDER
            if own.byte_count + cost > factor * config.max_buffered_bytes_per_sender // share:
                return Limit.SEGMENT_BYTES_OF_SENDER
        held = self._charged + waiting_bytes + cost
        return Limit.SEGMENT_BYTES if held > factor * config.max_buffered_bytes // share else None

    def has_room_to_begin(self, sender_id: str | None, waiting_bytes: int = 0) -> bool:
        """Return whether a sender's set may be opened with a segment that waits for others (`Urgency.LATER`)."""
        own = None if sender_id is None else self._senders.get(sender_id)
        return self._exceeded(own, SEGMENT_OVERHEAD_BYTES, 1, waiting_bytes, begins=True) is None

    def grow(self, grown: SegmentSet, segment_count: int, byte_count: int) -> None:
        """Count the segments that a set has gained; the set may be new."""
        holding = self._senders.setdefault(grown.key.sender_id, _Holding())
        holding.opened.setdefault(grown.name, grown)
        self._sets[grown.name] = grown
        self._account(grown.key.sender_id, holding, segment_count, byte_count)
        self._deadlines.put(grown.name, (grown.grown_ms + self._config.reassembly_timeout_ms, grown.turn))

    def remove(self, gone: SegmentSet) -> None:
        """Take out a set that is complete or given up."""
        holding = self._senders[gone.key.sender_id]
        del holding.opened[gone.name]
        del self._sets[gone.name]
        self._deadlines.remove(gone.name)
        self._account(gone.key.sender_id, holding, -len(gone.ids), -gone.byte_count)
        if not holding.opened:
            del self._senders[gone.key.sender_id]
            self._heaviest.remove(gone.key.sender_id)

    def next_deadline(self) -> int | None:
        """Return when the first set will have waited too long; None if there is none."""
        first = self._deadlines.least()
        return None if first is None else first[0][0]

    def overdue(self, now_ms: int) -> SegmentSet | None:
        """Return a set that has waited too long, the longest waiting first."""
        first = self._deadlines.least()
        return None if first is None or first[0][0] > now_ms else self._sets[first[1]]

    def oldest_of(self, sender_id: str) -> SegmentSet | None:
        """Return the set of a sender that was opened first; of the sender that holds most, if this one has none."""
        holding = self._senders.get(sender_id)
        if holding is None:
            heaviest = self._heaviest.least()
            if heaviest is None:
                return None
            holding = self._senders[heaviest[1]]
        return next(iter(holding.opened.values()))

    def _account(self, sender_id: str, holding: _Holding, segment_count: int, byte_count: int) -> None:
        charged = byte_count + SEGMENT_OVERHEAD_BYTES * segment_count
        holding.byte_count += charged
        self._charged += charged
        self.segment_count += segment_count
        self.byte_count += byte_count
        self._heaviest.put(sender_id, (-holding.byte_count, 0))
