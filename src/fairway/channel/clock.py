"""The time that a live channel gives to the protocol: Unix milliseconds that never go back.

The protocol plans in wall-clock time, because epochs and timestamps are. A wall clock may be set back; then timers
would stand still until it has caught up. So time goes on from where it was with the monotonic clock, and only jumps
forward, after a suspension or when the wall clock is corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns milliseconds since the Unix epoch, and never less than before."""

_NANOSECONDS_PER_MILLISECOND = 1_000_000


def steady_clock() -> Clock:
    """Return a clock that starts at the wall clock's present time."""
    offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms() -> int:
        nonlocal offset_ns
        monotonic = time.monotonic_ns()
        offset_ns = max(offset_ns, time.time_ns() - monotonic)
        return (monotonic + offset_ns) // _NANOSECONDS_PER_MILLISECOND

    return now_ms
