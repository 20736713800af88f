"""The waiting clock: it measures how long missing messages could have come.

A missing message is given up after ``SdsConfig.lost_timeout_ms`` in which it could have come. It cannot come while this
participant is not connected, nor before a store that may have it was read. So the timeout counts by a clock that runs
only while messages can come, and not by the wall clock, which may also jump. The clock is stored, and goes on after a
restart where it was: a participant that is always connected for a short time only gives up in the end, too.
"""

from __future__ import annotations

from typing import Final

LONGEST_STEP_MS: Final = 60_000
"""At most this counts between two readings: if more time passed, the machine slept or its clock was set."""
STORED_STEP_MS: Final = 10_000
"""The clock is stored in steps of this; a restart loses less than one step."""


class WaitClock:
    """Counts the milliseconds in which messages could come."""

    def __init__(self) -> None:
        self.waited_ms = 0
        self.runs = True
        self._seen_ms: int | None = None
        self.stored_ms = 0
        """The value that is stored: what the clock had reached when messages waited last, in steps."""

    def advance(self, now_ms: int, *, waits: bool) -> bool:
        """Add the time since the last reading; return whether to store the clock, which only what ``waits`` needs."""
        if self.runs and self._seen_ms is not None:
            self.waited_ms += min(max(0, now_ms - self._seen_ms), LONGEST_STEP_MS)
        self._seen_ms = now_ms
        reached_ms = self.waited_ms - self.waited_ms % STORED_STEP_MS
        if not waits or self.stored_ms == reached_ms:
            return False
        self.stored_ms = reached_ms
        return True

    def reaches_at(self, waited_ms: int) -> int | None:
        """Return when to look whether the clock has reached a value; None while no message can come."""
        if not self.runs or self._seen_ms is None:
            return None
        return self._seen_ms + min(max(0, waited_ms - self.waited_ms), LONGEST_STEP_MS)
