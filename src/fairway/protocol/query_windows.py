"""`WindowLength`: the length of time that one store query covers.

Newer versions of nwaku refuse a query for more than 24 hours ("time range exceeds 24h"), because long ranges keep a
store busy. So a longer time is read in windows. If a store refuses a window, or repeatedly fails to answer, the next
query covers half of the window. After a read window the next one is twice as long, up to 24 hours. If the store refuses
the longer window, the next attempt follows after twice as many windows as before.
"""

from __future__ import annotations

from typing import Final

MAX_WINDOW_NS: Final = 86_400_000_000_000
"""24 hours."""
SHORTEST_FOR_FAILURES_NS: Final = 3_600_000_000_000
"""One hour: shortest window after missing answers, because the store may be offline."""
SHORTEST_NS: Final = 1_000_000_000
"""One second: shortest window after refusals. A store that refuses this window refuses the time itself."""
_LONGEST_WAIT: Final = 64
"""Largest number of windows before the next attempt at a longer one."""


class WindowLength:
    """The length of the windows of one reading."""

    def __init__(self) -> None:
        self.ns = MAX_WINDOW_NS
        self._wait = 1
        """Windows to read before an attempt at a longer one."""
        self._read = 0
        """Windows read since the last change of the length."""
        self._is_attempt = False
        """Whether the length was just raised."""

    def refused(self, length_ns: int, shortest_ns: int = SHORTEST_NS) -> bool:
        """Note that a store refused a window; return whether a shorter window is allowed."""
        if self._is_attempt:
            self._wait, self._is_attempt = min(2 * self._wait, _LONGEST_WAIT), False
        self._read = 0
        if length_ns <= shortest_ns:
            return False
        self.ns = max(shortest_ns, length_ns // 2)
        return True

    def was_read(self) -> None:
        """Note that a window was read to its end."""
        self._is_attempt = False
        self._read += 1
        if self._read >= self._wait and self.ns < MAX_WINDOW_NS:
            self.ns, self._read, self._is_attempt = min(2 * self.ns, MAX_WINDOW_NS), 0, True
