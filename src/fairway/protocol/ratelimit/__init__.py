"""Rate limiting: the last step before dispatch.

RELIABLE-CHANNEL-API, "Rate Limit Management"; LIP-173, "Rate Limit Manager".

- `manager` selects the next transmission and its time.
- `queue` holds the transmissions that may not leave yet.
- `membership` joins the channels of one node: they share a count against the rate limit, and the `pace` of the node.
- `quota` holds every limit, and counts transmissions against each.
- `epoch` counts by epoch, even if the clock jumps.
- `rln` is the interface to a prover of transmissions.
"""

from __future__ import annotations

from fairway.protocol.ratelimit.epoch import EpochClock, EpochCounter
from fairway.protocol.ratelimit.manager import Admission, RateLimitManager, Upstream
from fairway.protocol.ratelimit.membership import Membership
from fairway.protocol.ratelimit.pace import Pace
from fairway.protocol.ratelimit.queue import Priority
from fairway.protocol.ratelimit.quota import EpochQuota, Quota, QuotaSource, QuotaState, Share, Verdict
from fairway.protocol.ratelimit.rln import RlnProofProvider, rln_signal

__all__ = [
    "Admission",
    "EpochClock",
    "EpochCounter",
    "EpochQuota",
    "Membership",
    "Pace",
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
