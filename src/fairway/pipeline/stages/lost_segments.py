"""The SDS message ids of the lost segments of a complete message, whose content was computed from parity.

The ids follow from the sender's rule for ids. A rule that gives the ids of the segments in the archive also gives those
of the lost ones, parity included. For a sender with an unknown rule the citations are used: a segment cites the
segments before it, newest last. That is a guess, which a forger can influence. The live core uses the same rules
(`fairway.protocol.incoming.lost_segments`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fairway.errors import FairwayError
from fairway.options import IdRule, SdsConfig, SegmentationConfig
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.segmentation.leopard import SHARD_ALIGNMENT
from fairway.protocol.segmentation.segmenter import LIP_243_HEADROOM_BYTES, OutgoingSegment, Segmenter
from fairway.wire.segment import SegmentFormat

SIBLINGS_CITED: Final = SdsConfig().causal_history_size
"""Entries at the end of a segment's causal history that are assumed to be segments of the same message."""

_KNOWN_RULES: Final = (IdRule.UNIQUE, IdRule.PAYLOAD)
"""Rules with all inputs in an archive."""
_LAMPORT_END: Final = 2**64
_HALF: Final = 0.5


class Cited(NamedTuple):
    """An entry of a causal history."""

    message_id: str
    sender_id: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A segment in the archive."""

    sds_id: str
    lamport: int
    timestamp: int
    is_parity: bool
    index: int
    content: bytes
    cited: tuple[Cited, ...]

    def order(self, data_count: int) -> int:
        """Return the index of the segment: data segments from 0, then parity segments."""
        return self.index + (data_count if self.is_parity else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A complete message, with the segments that are in the archive."""

    sender_id: str
    payload: bytes
    data_count: int
    parity_count: int | None
    """Number of parity segments; None if no segment states it, as in data segments of SEGMENTATION."""
    seen: Sequence[Seen]
    segment_format: SegmentFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingSegments:
    """The lost segments of a complete message."""

    rebuilt: tuple[str, ...] = ()
    """Their known ids, in the order of sending."""
    guessed: tuple[str, ...] = ()
    """Probable ids of lost segments."""


def lost_segments(whole: Whole, config: SegmentationConfig) -> LackingSegments:
    """Return the lost segments of a message; ``config.parity_rate`` gives the parity count if no segment does."""
    by_order = {seen.order(whole.data_count): seen for seen in whole.seen}
    segmenter = _segmenter(whole, by_order, config)
    count = max(_segment_count(segmenter, whole.payload), whole.data_count + (whole.parity_count or 0))
    if by_order.keys() >= set(range(count)):
        return LackingSegments()  # skips making all segments, hashes and parity
    segments = _all_segments(segmenter, whole.payload)
    first, last = min(by_order), max(by_order)
    base = by_order[first].lamport - first
    if last < len(segments) and 0 <= base <= base + len(segments) < _LAMPORT_END:
        # All segments of a message are made together, so that their Lamport timestamps are consecutive.
        for rule in _KNOWN_RULES:
            if all(_made(rule, whole, base, segments[order]) == by_order[order].sds_id for order in (first, last)):
                lost = (segment for segment in segments if segment.order not in by_order)
                return LackingSegments(rebuilt=tuple(_made(rule, whole, base, segment) for segment in lost))
    return LackingSegments(guessed=tuple(_guessed(whole, by_order)))


def _segmenter(whole: Whole, by_order: dict[int, Seen], config: SegmentationConfig) -> Segmenter | None:
    """Return the segmenter that cuts a payload as its sender did; None if the segments do not determine it."""
    last = whole.data_count - 1  # the one segment that may be shorter than the others
    piece = next((seen for order, seen in by_order.items() if order != last), None)
    if piece is None:
        return None  # the only segment is not lost
    size = len(whole.segment_format.decode(piece.content).payload)
    describes_itself = whole.segment_format.self_describing
    # Parity needs segments of a multiple of 64 bytes; other sizes have no parity.
    rate = 0.0 if size % SHARD_ALIGNMENT else config.parity_rate
    if whole.parity_count is not None:
        # Half a segment more or less, so that rounding gives the exact number.
        rest = -_HALF if describes_itself else _HALF
        rate = min(1.0, max(0.0, (whole.parity_count + rest) / whole.data_count))
    made = replace(
        config,
        segment_size_bytes=size + (LIP_243_HEADROOM_BYTES if describes_itself else 0),
        parity_rate=rate,
    )
    try:
        return Segmenter(made, whole.segment_format, single_segment_parity=bool(whole.parity_count))
    except FairwayError:
        return None


def _segment_count(segmenter: Segmenter | None, payload: bytes) -> int:
    """Return the number of segments of a payload; 0 if unknown."""
    try:
        return 0 if segmenter is None else segmenter.segment_count(payload)
    except FairwayError:
        return 0


def _all_segments(segmenter: Segmenter | None, payload: bytes) -> tuple[OutgoingSegment, ...]:
    """Return all segments as they were sent; empty if they are unknown."""
    try:
        return () if segmenter is None else segmenter.split(payload).segments
    except FairwayError:
        return ()


def _made(rule: IdRule, whole: Whole, base: int, segment: OutgoingSegment) -> str:
    lamport = base + segment.order
    return make_message_id(
        rule, sender_id=whole.sender_id, lamport=lamport, content=segment.content, now_ms=0, sequence=0
    )


def _guessed(whole: Whole, by_order: dict[int, Seen]) -> Iterator[str]:
    """Yield the cited ids at the positions of lost segments of the same message."""
    total = whole.data_count + (whole.parity_count or 0)
    senders = {None, "", whole.sender_id}
    found: dict[str, set[int]] = {}
    for own_order, seen in by_order.items():
        siblings = reversed(seen.cited[-SIBLINGS_CITED:])
        for order, entry in zip(range(own_order - 1, -1, -1), siblings, strict=False):
            sibling = by_order.get(order)
            if entry.sender_id not in senders or (sibling is not None and sibling.sds_id != entry.message_id):
                break
            if sibling is None and order < total:
                found.setdefault(entry.message_id, set()).add(order)
    # An id that is found in two positions is not used.
    yield from (message_id for message_id, at in found.items() if len(at) == 1)
