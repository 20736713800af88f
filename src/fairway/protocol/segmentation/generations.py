"""Which set a segment belongs to, when a sender has sent the same payload more than once.

The hash cannot tell, for equal payloads have equal hashes; yet each sending must be delivered, also when the
segments of several are under way at once and some are lost. Two things can tell. An SDS id belongs to one
segment of one sending, so a slot that holds another id is not for this segment. And the order keys of one
sending are a run, so a segment's base (see `SegmentSet`) is near those of its own set.

A sender whose order keys mean nothing is still served: a segment goes to the nearest open set, however far.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from fairway.protocol.segmentation.segment_set import SegmentSet, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.wire.segment import Segment


class Place(Enum):
    """What to do with a segment."""

    DUPLICATE = "an open set holds it already"
    STORE = "it is new to an open set"
    SURPLUS = "its set is complete"
    MISMATCH = "it contradicts the counts of the sets that are open"
    OPEN = "it begins a new set"


def place(
    generations: Sequence[SegmentSet], segment: Segment, sds_id: str, order_key: int, *, self_describing: bool
) -> tuple[Place, SegmentSet | None]:
    """Find a segment's place among the sets of one sender and one payload, which come oldest first.

    Return what to do, and with which set; None only with OPEN.
    """
    slot = Slot.of(segment)
    for known in generations:
        if known.ids.get(slot) == sds_id:
            return Place.SURPLUS if known.completed else Place.DUPLICATE, known
    agreeing = [known for known in generations if known.agrees_with(segment, self_describing=self_describing)]
    candidates = [
        known
        for known in agreeing
        if slot not in known.ids and (not known.completed or known.distance(segment, order_key) < known.reach(segment))
    ]
    if candidates:
        # Of those that are equally near min returns the first, hence the oldest.
        nearest = min(candidates, key=lambda known: known.distance(segment, order_key))
        return Place.SURPLUS if nearest.completed else Place.STORE, nearest
    still_open = [known for known in generations if not known.completed]
    if still_open and not any(known in agreeing for known in still_open):
        # LIP-243 calls this a different set. But to open one for every pair of counts would let a sender have any
        # number of sets under one hash.
        return Place.MISMATCH, still_open[0]
    return Place.OPEN, None
