"""`OpenSets`: the incomplete sets, with the quotas of their senders and their timeout.

SEGMENTATION, "Storage / Persistence": per-sender quotas for stored bytes and concurrent reconstructions, and
timeout-based cleanup; "Denial of Service": limit concurrent reconstructions and per-sender storage.

A kept segment has been acknowledged, so a quota refuses new segments and never evicts. New sets are opened only while
half of the bytes are free, which reserves the rest for open sets. A segment is next if its message waits for no other
message: the message is delivered, and frees its bytes, as soon as it is complete. Such segments may exceed the quotas
of bytes. Many messages may be next at once. The last part of that room is for open sets whose missing segments fit in.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairway.events import Limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairway.protocol.segmentation.segment_set import SegmentSet

SEGMENT_OVERHEAD_BYTES: Final = 1_024
"""Bytes charged for a segment in addition to its payload, to bound empty segments too."""

_NEW_SETS_SHARE: Final = 2
"""Divisor of the quotas of bytes for segments that open a set."""

_NEXT_FACTOR: Final = 3
"""Factor by which a segment that is next may exceed the quotas of bytes."""

BECOMING_WHOLE_FACTOR: Final = 4
"""Factor by which a message that is next may exceed the quotas of bytes if all its missing segments fit in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Bounds of the memory of a reassembler."""

    sets_per_sender: int = 1_000
    """Incomplete messages of a sender. Segments that are next may begin more: only the quotas of bytes bound those."""
    bytes_per_sender: int
    """Payload of the incomplete messages of a sender, plus `SEGMENT_OVERHEAD_BYTES` for each segment."""
    all_bytes: int
    """The same for all senders together."""
    ended_sets: int = 10_000
    """Completed and given up messages whose late segments are recognised."""


@dataclass(slots=True)
class _Holding:
    """The incomplete sets of one sender."""

    opened: dict[str, SegmentSet] = field(default_factory=dict)
    """By name, in the order in which they were opened."""
    charged: int = 0
    """Bytes of their payloads, and `SEGMENT_OVERHEAD_BYTES` for each segment."""


class OpenSets:
    """All incomplete sets."""

    def __init__(self, quotas: Quotas, timeout_ms: int) -> None:
        """Begin empty; a set is overdue ``timeout_ms`` after its newest segment."""
        self._quotas = quotas
        self._timeout_ms = timeout_ms
        self._senders: dict[str, _Holding] = {}
        self._sets: OrderedDict[str, SegmentSet] = OrderedDict()
        """By name; the set with the newest segment is last."""
        self._charged = 0
        self.segment_count = 0
        """Segments held."""
        self.byte_count = 0
        """Payload bytes held."""

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[SegmentSet]:
        return iter(self._sets.values())

    def __contains__(self, name: str) -> bool:
        return name in self._sets

    def get(self, name: str) -> SegmentSet | None:
        """Return the open set with this name, or None."""
        return self._sets.get(name)

    def full(self, target: SegmentSet, payload_bytes: int, *, is_next: bool, waiting_bytes: int) -> Limit | None:
        """Return the limit that one more segment of a set would exceed, or None; the set may be new.

        ``waiting_bytes`` has the meaning that it has in `Reassembler.accept`.
        """
        cost = payload_bytes + SEGMENT_OVERHEAD_BYTES
        own = self._senders.get(target.key.sender_id, _Holding())
        is_new = target.name not in self._sets
        if not is_next:
            if is_new and len(own.opened) >= self._quotas.sets_per_sender:
                return Limit.SEGMENT_SETS_OF_SENDER
            return self._exceeded(own, cost, 1, _NEW_SETS_SHARE if is_new else 1, waiting_bytes)
        full = self._exceeded(own, cost, _NEXT_FACTOR, 1, waiting_bytes)
        if full is None or is_new or not target.data_count:
            return full
        return self._exceeded(
            own, cost * (target.data_count - len(target.ids)), BECOMING_WHOLE_FACTOR, 1, waiting_bytes
        )

    def _exceeded(self, own: _Holding, cost: int, factor: int, share: int, waiting_bytes: int) -> Limit | None:
        if own.charged + cost > factor * self._quotas.bytes_per_sender // share:
            return Limit.SEGMENT_BYTES_OF_SENDER
        if self._charged + waiting_bytes + cost > factor * self._quotas.all_bytes // share:
            return Limit.SEGMENT_BYTES
        return None

    def grow(self, grown: SegmentSet, segment_count: int, byte_count: int) -> None:
        """Count new segments of a set, and open the set if it is new."""
        holding = self._senders.setdefault(grown.key.sender_id, _Holding())
        holding.opened[grown.name] = self._sets[grown.name] = grown
        self._sets.move_to_end(grown.name)
        self._account(holding, segment_count, byte_count)

    def remove(self, gone: SegmentSet) -> None:
        """Remove a set that has ended."""
        holding = self._senders[gone.key.sender_id]
        del holding.opened[gone.name], self._sets[gone.name]
        self._account(holding, -len(gone.payloads), -gone.byte_count)
        if not holding.opened:
            del self._senders[gone.key.sender_id]

    def next_deadline(self) -> int | None:
        """Return when the first set becomes overdue; None without sets."""
        if not self._sets:
            return None
        return next(iter(self._sets.values())).grown_ms + self._timeout_ms

    def overdue(self, now_ms: int) -> SegmentSet | None:
        """Return the set that has been overdue longest, or None."""
        deadline_ms = self.next_deadline()
        return None if deadline_ms is None or deadline_ms > now_ms else next(iter(self._sets.values()))

    def oldest_of(self, sender_id: str) -> SegmentSet | None:
        """Return a sender's oldest set, else the oldest set of the sender that holds most bytes; None without sets."""
        holding = self._senders.get(sender_id)
        if holding is None:
            holding = max(self._senders.values(), key=lambda each: each.charged, default=None)
        return None if holding is None else next(iter(holding.opened.values()))

    def _account(self, holding: _Holding, segment_count: int, byte_count: int) -> None:
        charged = byte_count + SEGMENT_OVERHEAD_BYTES * segment_count
        holding.charged += charged
        self._charged += charged
        self.segment_count += segment_count
        self.byte_count += byte_count
