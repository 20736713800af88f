"""How long this participant has been waiting for what it misses, over all its lives.

A message is given up after it could have come for so long (SdsConfig.lost_timeout_ms), and it cannot come while nobody
is connected, nor before a store was read that may have it. So what is missing is not timed by the wall clock, which
also jumps, but by one that runs only while things can come. It goes on after a restart where it was, so that whoever
is never connected for long still gives up in the end.
"""

from __future__ import annotations

from typing import Final

LONGEST_STEP_MS: Final = 60_000
"""What passes between two readings counts up to this: more of it was sleep, or a clock that was set."""
STORED_STEP_MS: Final = 10_000
"""A restart may lose up to this of the time waited."""


class WaitingClock:
    """Milliseconds in which something could come."""

    def __init__(self) -> None:
        self.waited_ms = 0
        self.runs = True
        self._seen_ms: int | None = None

    @property
    def stored_ms(self) -> int:
        """What of it is made durable."""
        return self.waited_ms - self.waited_ms % STORED_STEP_MS

    def advance(self, now_ms: int, *, counts: bool) -> bool:
        """Count what has passed since the last reading if it counts; return whether what is made durable changes."""
        before = self.stored_ms
        if counts and self.runs and self._seen_ms is not None:
            self.waited_ms += min(max(0, now_ms - self._seen_ms), LONGEST_STEP_MS)
        self._seen_ms = now_ms
        return self.stored_ms != before

    def reaches_at(self, waited_ms: int) -> int | None:
        """Return when to look whether so much has been waited; None while nothing can come."""
        if not self.runs or self._seen_ms is None:
            return None
        return self._seen_ms + min(max(0, waited_ms - self.waited_ms), LONGEST_STEP_MS)
