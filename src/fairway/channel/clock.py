"""The clock of a live channel: Unix milliseconds that follow the wall clock.

Epochs, Lamport timestamps and message timestamps are wall-clock time, and nodes refuse messages whose timestamp is far
off. If the wall clock jumps back, this clock follows at once. If it jumps ahead, this clock follows after 5 s by the
monotonic clock. So a single wrong reading ends no waiting time and stamps no message. If the wall clock jumps back and
returns within 5 s, this clock follows at once.

This clock can go back. The protocol then moves its deadlines forward (`fairway.protocol.stack`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.environment import environment
from fairway.units import NS_PER_MS

Clock = Callable[[], int]
"""Returns milliseconds since the Unix epoch."""

_UNNOTICED_NS: Final = 1_000_000_000
"""Largest jump back that is ignored."""
_LASTING_NS: Final = 5_000_000_000
"""Time that the wall clock stays ahead before this clock follows."""


def steady_clock() -> Clock:
    """Return a clock that starts at the present time of the wall clock."""
    machine = environment()
    offset_ns = machine.time_ns() - machine.monotonic_ns()
    ahead_since: int | None = None
    before_ns, back_since, seen = offset_ns, 0, 0

    def now_ms() -> int:
        nonlocal offset_ns, ahead_since, before_ns, back_since, seen
        monotonic = machine.monotonic_ns()
        by_the_wall = machine.time_ns() - monotonic
        if by_the_wall <= offset_ns + _UNNOTICED_NS:
            ahead_since, seen = None, monotonic
            if by_the_wall < offset_ns - _UNNOTICED_NS:
                before_ns, back_since, offset_ns = offset_ns, monotonic, by_the_wall
            elif by_the_wall > offset_ns:
                offset_ns = by_the_wall
        elif abs(by_the_wall - before_ns) <= _UNNOTICED_NS and seen - back_since < _LASTING_NS:
            offset_ns, ahead_since = by_the_wall, None
        elif ahead_since is None:
            ahead_since = monotonic
        elif monotonic - ahead_since >= _LASTING_NS:
            offset_ns, ahead_since = by_the_wall, None
        return (monotonic + offset_ns) // NS_PER_MS

    return now_ms
