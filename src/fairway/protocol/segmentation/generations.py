"""Which set a segment belongs to, when a sender has sent the same payload more than once.

Equal payloads have equal hashes, so the hash does not tell two sendings apart. Yet each sending must be delivered, also
when segments of several sendings arrive in between each other and some are lost. Two things tell sendings apart:

* The SDS message id belongs to one segment of one sending. A set that has another id at the index of a segment is not
  the set of that segment.
* A sender makes the segments of one sending one after the other, so that their order keys follow on each other and
  their bases (see `SegmentSet`) are near each other.

A rate limit or a slow uplink may hold a sender up between two segments of one sending. The segments after the pause
have bases far from those before it, and so open a second set. As long as that set holds no segment that the completed
set has, it may be the rest of the completed message, and it is not delivered as another message. There may be several
such rests with different contents at one index, since some may be forged. The payload of the completed message, which
would prove which, is no longer held; so each content has a set.

A sender whose order keys mean nothing is served, too: a segment goes to the nearest open set, however far that is.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.wire.segment import Segment


MAX_COUNTS: Final = 16
"""How many sets may be open of one payload of one sender, if they contradict each other.

They contradict each other in the number of segments, which for LIP-243 makes them different sets, or in their contents
as rests of one message. One set would let a forger keep the honest segments out; without a bound he could open any
number of sets under one hash.
"""


class Fit(Enum):
    """How a segment fits the sets that there are, which decides what is done with it."""

    DUPLICATE = "an open set holds it already"
    STORE = "it is new to an open set"
    DISPUTE = "an open set has another content at its index"
    SURPLUS = "its set has ended"
    MISMATCH = "it contradicts the counts of the sets that are open"
    OPEN = "it begins a new set"


def fit(
    generations: Sequence[SegmentSet], segment: Segment, sds_id: str, order_key: int, *, self_describing: bool
) -> tuple[Fit, SegmentSet | None]:
    """Find the set of a segment among those of its sender and payload, which are given oldest first.

    Return how the segment fits, and the set; None only with OPEN.
    """
    index = SegmentIndex.of(segment)
    for known in generations:
        if known.has(index, sds_id):
            if not known.is_open:
                return Fit.SURPLUS, known
            same = known.payload_of(index) == segment.payload
            return (Fit.DUPLICATE if same else Fit.DISPUTE), known
    agreeing = [known for known in generations if known.agrees_with(segment, self_describing=self_describing)]
    candidates = [
        known
        for known in agreeing
        if index not in known.ids and (known.is_open or known.distance(segment, order_key) < known.reach(segment))
    ]
    if candidates:
        # Of those that are equally near min returns the first, hence the oldest.
        nearest = min(candidates, key=lambda known: known.distance(segment, order_key))
        return Fit.STORE if nearest.is_open else Fit.SURPLUS, nearest
    still_open = [known for known in generations if known.is_open]
    # All sendings of a payload have the same bytes at one index: other bytes do not make it another sending.
    disputed = [known for known in still_open if known in agreeing and known.payload_of(index) != segment.payload]
    whole = [known for known in agreeing if index not in known.ids]
    are_rests = any(all(known.may_be_rest_of(complete) for known in disputed) for complete in whole)
    if disputed and not (are_rests and len(still_open) < MAX_COUNTS):
        return Fit.DISPUTE, min(disputed, key=lambda known: known.distance(segment, order_key))
    if len(still_open) >= MAX_COUNTS and not any(known in agreeing for known in still_open):
        return Fit.MISMATCH, still_open[0]
    return Fit.OPEN, None
