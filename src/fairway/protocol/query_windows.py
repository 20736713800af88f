"""`WindowLength`: how long a time one store query covers.

Newer versions of nwaku refuse a query for more than 24 hours ("time range exceeds 24h"), because long ranges keep a
store busy. So a longer time is read in windows. A store that refuses a window, or repeatedly fails to answer for one,
is asked for half of it. After a window that was read the next one is twice as long, up to 24 hours. If a longer window
is refused, the next attempt at it comes after twice as many windows as before.
"""

from __future__ import annotations

from typing import Final

MAX_WINDOW_NS: Final = 86_400_000_000_000
"""24 hours."""
SHORTEST_FOR_FAILURES_NS: Final = 3_600_000_000_000
"""One hour. A window is not made shorter than this because answers did not come: the store may be away."""
SHORTEST_NS: Final = 1_000_000_000
"""One second. A store that refuses a window as short as this refuses the time itself."""
_LONGEST_WAIT: Final = 64
"""Windows at most before a longer one is tried again."""


class WindowLength:
    """The length of the windows of one reading."""

    def __init__(self) -> None:
        self.ns = MAX_WINDOW_NS
        self._wait = 1
        """Windows to read before a longer one."""
        self._read = 0
        """Windows read since the length changed last."""
        self._is_attempt = False
        """Whether the length was just raised."""

    def refused(self, length_ns: int, shortest_ns: int = SHORTEST_NS) -> bool:
        """Note that a store refused a window; return whether there is a shorter one to ask for."""
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
