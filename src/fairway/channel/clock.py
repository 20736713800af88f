"""The time that a live channel gives to the protocol: Unix milliseconds, as right as the wall clock is.

Epochs, Lamport timestamps and the timestamps of messages are wall-clock time, and nodes refuse messages whose
timestamp is far off. So a clock that was set right is followed: at once if it was ahead, for what it stamps then is
refused. A jump ahead is believed only once it has lasted by the monotonic clock, for a wrong reading of a moment must
neither end waiting times nor stamp a message. Nor is one followed longer than it lasts: a clock that goes back and is
soon where it was before is believed at once.

This time may therefore go back. The protocol then brings forward what it had planned by the wrong time
(`fairway.protocol.stack`), so that no reading of a clock stops a channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.environment import environment

Clock = Callable[[], int]
"""Returns milliseconds since the Unix epoch."""

_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
_UNNOTICED_NS: Final = 1_000_000_000
"""Corrections up to this are made without going back."""
_LASTING_NS: Final = 5_000_000_000
"""How long the wall clock must have been ahead before it is believed; what it showed for less was a wrong reading."""


def steady_clock() -> Clock:
    """Return a clock that starts at the wall clock's present time."""
    machine = environment()
    offset_ns = machine.time_ns() - machine.monotonic_ns()
    ahead_since: int | None = None
    before_ns, back_since = offset_ns, 0

    def now_ms() -> int:
        nonlocal offset_ns, ahead_since, before_ns, back_since
        monotonic = machine.monotonic_ns()
        by_the_wall = machine.time_ns() - monotonic
        if by_the_wall <= offset_ns + _UNNOTICED_NS:
            ahead_since = None
            if by_the_wall < offset_ns - _UNNOTICED_NS:
                before_ns, back_since, offset_ns = offset_ns, monotonic, by_the_wall
            elif by_the_wall > offset_ns:
                offset_ns = by_the_wall
        elif abs(by_the_wall - before_ns) <= _UNNOTICED_NS and monotonic - back_since < _LASTING_NS:
            offset_ns, ahead_since = by_the_wall, None
        elif ahead_since is None:
            ahead_since = monotonic
        elif monotonic - ahead_since >= _LASTING_NS:
            offset_ns, ahead_since = by_the_wall, None
        return (monotonic + offset_ns) // _NANOSECONDS_PER_MILLISECOND

    return now_ms
