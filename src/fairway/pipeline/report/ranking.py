"""Orders channels from the worst to the best: by the lost share that is certain, so that few messages weigh less."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

_Z: Final = 1.96
"""Of 95 % certainty."""


def least_share(part: int, whole: int) -> float:
    """Return the lower bound of a share (Wilson score interval, 95 %), so that 1 of 1 is not worse than 90 of 100."""
    if not whole:
        return 0.0
    share, slack = part / whole, _Z * _Z / whole
    spread = _Z * math.sqrt(max(share * (1 - share) + slack / 4, 0.0) / whole)
    return max((share + slack / 2 - spread) / (1 + slack), 0.0)


def worst_first(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what orders rows of ``channel_stats`` from the worst channel to the best, the busiest first of equals."""
    lost = least_share(row["missing"], row["content"] + row["missing"])
    unreadable = least_share(row["incomplete"], row["delivered"] + row["incomplete"])
    return (-max(lost, unreadable), -row["content"], -row["sync"], str(row["channel_id"]))
