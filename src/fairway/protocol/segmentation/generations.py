"""Which set a segment belongs to, when a sender has sent the same payload more than once.

The hash cannot tell, for equal payloads have equal hashes; yet each sending must be delivered, also when the
segments of several are under way at once and some are lost. Two things can tell. An SDS id belongs to one
segment of one sending, so a slot that holds another id is not for this segment. And the order keys of one
sending are a run, so a segment's base (see `SegmentSet`) is near those of its own set.

A sender who is held up between two segments, by a rate limit or a slow uplink, leaves a gap in the run. What comes
after it opens a set, as a further sending would; but as long as that set holds nothing that the complete one held
already, it may be its rest, and is no message of its own. Two such sets may differ in what they hold in a place, for
one of them may be forged; what proves which is no longer here, so that neither keeps the other out.

A sender whose order keys mean nothing is still served: a segment goes to the nearest open set, however far.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.protocol.segmentation.segment_set import SegmentSet, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.wire.segment import Segment


MAX_COUNTS: Final = 16
"""Open sets of one payload of one sender whose segments contradict each other, about their number or as rests of one.

LIP-243 calls each of the former a different set. A forger must not keep the honest segments out, nor may he open any
number of sets under one hash.
"""


class Place(Enum):
    """What to do with a segment."""

    DUPLICATE = "an open set holds it already"
    STORE = "it is new to an open set"
    DISPUTE = "it is not what fills its slot in an open set"
    SURPLUS = "its set has ended"
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
            if not known.is_open:
                return Place.SURPLUS, known
            same = known.payload_of(slot) == segment.payload
            return (Place.DUPLICATE if same else Place.DISPUTE), known
    agreeing = [known for known in generations if known.agrees_with(segment, self_describing=self_describing)]
    candidates = [
        known
        for known in agreeing
        if slot not in known.ids and (known.is_open or known.distance(segment, order_key) < known.reach(segment))
    ]
    if candidates:
        # Of those that are equally near min returns the first, hence the oldest.
        nearest = min(candidates, key=lambda known: known.distance(segment, order_key))
        return Place.STORE if nearest.is_open else Place.SURPLUS, nearest
    still_open = [known for known in generations if known.is_open]
    # Each sending of a payload has the same bytes in the same slot, so that other bytes are no other sending.
    disputed = [known for known in still_open if known in agreeing and known.payload_of(slot) != segment.payload]
    whole = [known for known in agreeing if slot not in known.ids]
    are_rests = any(all(known.may_be_rest_of(complete) for known in disputed) for complete in whole)
    if disputed and not (are_rests and len(still_open) < MAX_COUNTS):
        return Place.DISPUTE, min(disputed, key=lambda known: known.distance(segment, order_key))
    if len(still_open) >= MAX_COUNTS and not any(known in agreeing for known in still_open):
        return Place.MISMATCH, still_open[0]
    return Place.OPEN, None
