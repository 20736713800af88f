"""Orders channels and senders from the worst to the best, by the lost share that is certain.

Of few messages less is certain, so that they weigh less.
"""

from __future__ import annotations

import math
from typing import Any, Final

from fairway.pipeline.report.headline import Headline

_Z: Final = 1.96
"""Of 95 % certainty."""


def least_share(part: int, whole: int) -> float:
    """Return the lower bound of a share (Wilson score interval, 95 %), so that 1 of 1 is not worse than 90 of 100."""
    if not whole:
        return 0.0
    share, slack = part / whole, _Z * _Z / whole
    spread = _Z * math.sqrt(max(share * (1 - share) + slack / 4, 0.0) / whole)
    return max((share + slack / 2 - spread) / (1 + slack), 0.0)


def lost_share(told: Headline) -> float:
    """Return the share of the messages known that is lost or incomplete, as far as it is certain."""
    return least_share(told.lost + told.incomplete, told.known)


def worst_first(told: Headline, *names: object) -> tuple[Any, ...]:
    """Return what orders channels or senders from the worst to the best, the busiest first of equals."""
    return (-lost_share(told), -told.known, *map(str, names))
