"""The waiting clock: it measures the time in which missing messages could arrive.

A missing message is given up after ``SdsConfig.lost_timeout_ms`` in which it could arrive. It cannot arrive while this
participant is disconnected, or before a store that may have it was read. So the timeout uses a clock that runs only
while messages can arrive, instead of the wall clock, which may also jump. The clock is stored, and continues after a
restart: a participant that always connects for a short time only also gives up in the end.
"""

from __future__ import annotations

from typing import Final

LONGEST_STEP_MS: Final = 60_000
"""Longest time counted between two readings; after a longer one the machine slept or its clock was set."""
STORED_STEP_MS: Final = 10_000
"""Step in which the clock is stored; a restart loses less than one step."""


class WaitClock:
    """Counts the milliseconds in which messages could arrive."""

    def __init__(self) -> None:
        self.waited_ms = 0
        self.runs = True
        self._seen_ms: int | None = None
        self.stored_ms = 0
        """The stored value: the last reading while messages waited, rounded down to a step."""

    def advance(self, now_ms: int, *, waits: bool) -> bool:
        """Add the time since the last reading; return whether to store the clock, only if a message ``waits``."""
        if self.runs and self._seen_ms is not None:
            self.waited_ms += min(max(0, now_ms - self._seen_ms), LONGEST_STEP_MS)
        self._seen_ms = now_ms
        reached_ms = self.waited_ms - self.waited_ms % STORED_STEP_MS
        if not waits or self.stored_ms == reached_ms:
            return False
        self.stored_ms = reached_ms
        return True

    def reaches_at(self, waited_ms: int) -> int | None:
        """Return when to check whether the clock has reached a value, in Unix ms; None while no message can arrive."""
        if not self.runs or self._seen_ms is None:
            return None
        return self._seen_ms + min(max(0, waited_ms - self.waited_ms), LONGEST_STEP_MS)
