"""Rate limiting: the last step before dispatch.

RELIABLE-CHANNEL-API, "Rate Limit Management"; LIP-173, "Rate Limit Manager".

- `manager` decides which transmission leaves when.
- `waiting` holds the others in order.
- `membership` is what the channels of one node share, its `pace` among it.
- `quota` keeps every limit, and the count against each.
- `epoch` keeps the count right under clocks that jump.
- `rln` is the interface to whoever proves transmissions.
"""

from __future__ import annotations

from fairway.protocol.ratelimit.epoch import EpochClock, EpochCounter
from fairway.protocol.ratelimit.manager import (
    NOTHING_WAITS,
    Admission,
    Placement,
    RateLimitManager,
    Upstream,
)
from fairway.protocol.ratelimit.membership import Membership
from fairway.protocol.ratelimit.pace import Pace
from fairway.protocol.ratelimit.quota import EpochQuota, Quota, QuotaSource, QuotaState, Share, Verdict
from fairway.protocol.ratelimit.rln import NodeProves, NoProof, RlnProofProvider, rln_signal
from fairway.protocol.ratelimit.waiting import Priority

__all__ = [
    "NOTHING_WAITS",
    "Admission",
    "EpochClock",
    "EpochCounter",
    "EpochQuota",
    "Membership",
    "NoProof",
    "NodeProves",
    "Pace",
    "Placement",
    "Priority",
    "Quota",
    "QuotaSource",
    "QuotaState",
    "RateLimitManager",
    "RlnProofProvider",
    "Share",
    "Upstream",
    "Verdict",
    "rln_signal",
]
