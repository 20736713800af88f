"""What js-waku does otherwise than the SDS specification means, one name and one sentence each.

The model of js-waku notices a fault where it takes effect, or may take effect later. A step of a record in which
fairway itself answers otherwise is explained by them; a difference that none of them explains is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final


class Fault(Enum):
    """A departure of js-waku; the value says it and what fairway does instead."""

    DELIVERED_AGAIN = (
        "js-waku does not remember what it delivered at once, so that a copy is weighed and delivered again; "
        "fairway delivers once"
    )
    COPY_TEACHES_NOTHING = (
        "js-waku drops a copy unread; fairway learns from it a missing hint, that nobody needs to ask or answer, "
        "and that its sender waits for a citation"
    )
    OWN_FORGOTTEN = "js-waku ignores every own message; fairway takes back one that it had forgotten"
    UNCONFIRMED_SEND = (
        "js-waku leaves out of history and filter what its send callback did not confirm; "
        "fairway has it in both from the start"
    )
    LAST_HINT_COUNTS = "js-waku keeps the hint of the latest send of a message; fairway the first one"
    OLDER_COPY_COUNTS = (
        "js-waku replaces a message in its history by an older one of the same id; fairway keeps the first"
    )
    EPHEMERAL_UNANNOUNCED = "js-waku has no event for an ephemeral message; fairway hands it over"
    PARKED_COUNTS_AS_MET = "js-waku takes a parked dependency for met; fairway waits until it is delivered"
    WAITS_IN_VAIN = (
        "js-waku waits for a sync message, or for a message that cites itself; fairway does not, for none can come"
    )
    NAMED_REPEATEDLY = "js-waku names a missing or requested message as often as it is cited; fairway once"
    TOLD_AS_CITED = "js-waku tells of a missing message as each citation has it; fairway merges their hints and authors"
    RELEASED_IN_SWEEPS = "js-waku delivers parked messages only in sweeps; fairway as soon as they lack nothing"
    SYNC_PARKED = "js-waku parks sync messages, and every copy again; fairway only notes what they tell is missing"
    DEPENDANTS_DROPPED = "js-waku drops dependants of lost messages, and their copies for ever; fairway delivers them"
    WAIT_COUNTED = (
        "js-waku counts the lost timeout from when it last took in the message that waits; "
        "fairway from when the missing one was first cited"
    )
    EMPTY_REPORT = "js-waku reports missing messages after every sweep, also when there are none"
    SHORT_FILTER_ABORTS = "js-waku gives up a message over a bloom filter that is too short; fairway ignores the filter"
    HITS_COUNTED = "js-waku counts every filter that holds a message; fairway every participant once"
    OVERFULL_FILTER_COUNTS = "js-waku believes a filter that is overfull; fairway nothing that it says"
    DESCENDANTS_IGNORED = (
        "js-waku takes only direct citation for an acknowledgement; "
        "fairway also that of a descendant by one whose filter holds the message"
    )
    COUNTER_OUTLIVES = "js-waku keeps counting from before an acknowledgement by citation; fairway begins anew"
    FILTER_NEVER_ROLLED = "js-waku never rolls its filter over; fairway keeps it within its capacity"
    FUTURE_BELIEVED = "js-waku's clock follows any timestamp; fairway's stays within a tolerance of the wall clock"
    LEFT_UNCITED = (
        "js-waku cites the newest messages only, so that nobody notices who misses an older one that was never cited; "
        "fairway cites such a message once"
    )
    ASKED_ONCE = "js-waku asks once for a repair; fairway asks again, after ever longer waits"
    PARKED_UNANSWERED = "js-waku answers only with what it delivered; fairway also with what is parked"
    LEFT_TO_ONE_GROUP = "js-waku leaves a request to one group for ever; fairway to everybody if it was made in vain"
    SYNC_ENDS_REPAIR = "js-waku takes a sync message for the missing one whose id it bears; fairway does not"
    HEARD_MEANS_DONE = "js-waku never asks for what somebody else asked for; fairway only waits longer"
    NEWEST_STAYS = "js-waku's full repair buffer evicts its last entry for any new one; fairway keeps the earliest"
    TIES_BY_ARRIVAL = "js-waku orders repairs of the same time as they came; fairway by message id"
    VOUCHES_UNCHECKED = (
        "js-waku puts every id into its filter; fairway none that looks like a digest and is not that of its message"
    )
    UNBOUNDED = "js-waku reads all entries of a message; fairway only so many"
    COLLATED = "js-waku orders equal timestamps by the collation of its locale; fairway by code point"
    WHOLE_HISTORY = "js-waku cites its whole history where none of it was asked for; fairway nothing"

    @property
    def label(self) -> str:
        """The name in plain words."""
        return self.name.lower().replace("_", " ")


PASSING: Final = frozenset({Fault.EPHEMERAL_UNANNOUNCED, Fault.EMPTY_REPORT, Fault.TOLD_AS_CITED})
"""Faults that leave nothing behind by which a later step could differ."""

Notice = Callable[[Fault], None]
"""Called by the parts of the model where a fault takes effect."""
