"""The incomplete sets: who holds how much, what must go when a quota is full, and what has waited too long.

Seed 003, "Storage / Persistence": per-sender quotas for stored bytes and concurrent reconstructions, and
timeout-based cleanup; "Denial of Service": limit concurrent reconstructions and per-sender storage.

Invariant: a sender within its share never pays for another. What exceeds a sender's own quota costs that sender its
least recently grown set; what exceeds the total costs the sender that holds most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairway.protocol.segmentation.priorities import Priorities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.segmentation.segment_set import SegmentSet

SEGMENT_OVERHEAD_BYTES: Final = 1_024
"""What a segment costs beside its payload, to bound how many empty ones all senders together may leave here."""

MIN_SEGMENTS: Final = 4_096
"""Segments of all senders that are always allowed, however small max_buffered_bytes is."""


@dataclass(slots=True)
class _Holding:
    """What one sender has here."""

    sets: dict[str, SegmentSet] = field(default_factory=dict)
    """By name, the least recently grown first."""
    segment_count: int = 0
    byte_count: int = 0


class OpenSets:
    """All incomplete sets."""

    def __init__(self, config: SegmentationConfig) -> None:
        self._config = config
        self._max_segments = max(MIN_SEGMENTS, config.max_buffered_bytes // SEGMENT_OVERHEAD_BYTES)
        self._senders: dict[str, _Holding] = {}
        self._heaviest = Priorities()
        self._deadlines = Priorities()
        self._sets: dict[str, SegmentSet] = {}
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

    def grow(self, grown: SegmentSet, segment_count: int, byte_count: int) -> None:
        """Account for segments that a set has gained; the set may be new."""
        holding = self._senders.setdefault(grown.key.sender_id, _Holding())
        holding.sets.pop(grown.name, None)
        holding.sets[grown.name] = grown
        self._sets[grown.name] = grown
        self._account(grown.key.sender_id, holding, segment_count, byte_count)
        self._deadlines.put(grown.name, (grown.grown_ms + self._config.reassembly_timeout_ms, grown.turn))

    def remove(self, gone: SegmentSet) -> None:
        """Account for a set that is complete or given up."""
        holding = self._senders[gone.key.sender_id]
        del holding.sets[gone.name]
        del self._sets[gone.name]
        self._deadlines.remove(gone.name)
        self._account(gone.key.sender_id, holding, -len(gone.ids), -gone.byte_count)
        if not holding.sets:
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

    def excess(self, spared: SegmentSet) -> SegmentSet | None:
        """Return a set that must go because a quota is exceeded; the spared one only if no other helps."""
        config = self._config
        own = self._senders[spared.key.sender_id]
        if len(own.sets) > config.max_sets_per_sender or own.byte_count > config.max_buffered_bytes_per_sender:
            return _least_recently_grown(own, spared)
        if self.byte_count > config.max_buffered_bytes or self.segment_count > self._max_segments:
            heaviest = self._heaviest.least()
            assert heaviest is not None, "what exceeds a quota is held by someone"
            return _least_recently_grown(self._senders[heaviest[1]], spared)
        return None

    def _account(self, sender_id: str, holding: _Holding, segment_count: int, byte_count: int) -> None:
        holding.segment_count += segment_count
        holding.byte_count += byte_count
        self.segment_count += segment_count
        self.byte_count += byte_count
        weight = holding.byte_count + SEGMENT_OVERHEAD_BYTES * holding.segment_count
        self._heaviest.put(sender_id, (-weight, 0))


def _least_recently_grown(holding: _Holding, spared: SegmentSet) -> SegmentSet:
    return next((kept for kept in holding.sets.values() if kept is not spared), spared)
