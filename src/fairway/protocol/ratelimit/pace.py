"""The pace: transmissions a second that a node takes, learned from its refusals, for all channels of the node.

A service node takes a limited number of requests a second from each client, and refuses the others (WAKU-LIGHTPUSH,
status code 429). A refused transmission is sent again before later ones, and the pace changes for all channels:

============================ ==========================================================================
answer of the node           effect on the pace
============================ ==========================================================================
taken                        grows by 5 % a second; by 0.5 % near the last refused pace
too many requests            falls to 85 %; to 50 % if the node took nothing since the last fall
refused for another reason   one transmission leaves at a time, after 250 ms, then after doubling pauses of
                             at most 5 s; after one is taken, half as many as before may leave at once, at
                             least two; each further one that is taken adds one; from 64 on any number
============================ ==========================================================================

An overloaded node may refuse for any reason, so one transmission that it takes does not prove that it takes any number.
If all transmissions left at once, the node would refuse nearly all of them, always the same ones, and delay these.

The first pace is the number of transmissions that the node took in one second, of those that left before its first
refusal. Later answers to these transmissions count, too. A refusal of a transmission that left before the last fall or
pause does not count again. Before its first refusal only the node's answers limit the channels. Pure: the time is an
argument.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_FIRST_PAUSE_MS: Final = 250
_LAST_PAUSE_MS: Final = 5_000
_WIDE_OPEN: Final = 64
"""Window from which on any number of transmissions may leave at once."""
_FALL: Final = 0.85
_STEEP_FALL: Final = 0.5
_GROWTH_PER_S: Final = 0.05
_GROWTH_NEAR_CEILING_PER_S: Final = 0.005
_NEAR: Final = 0.07
_SLOWEST_PER_S: Final = 0.1
_MEASURED_MS: Final = 1_000
"""Period in which the taken transmissions are counted for the first pace."""
_FORGOTTEN_AFTER_MS: Final = 600_000
"""Time without a refusal for too many requests after which the pace no longer limits."""


class Pace:
    """The pace of one node. Times are milliseconds of any clock; if the clock steps back, a wait restarts."""

    def __init__(self) -> None:
        self.per_second: float | None = None
        """Transmissions a second; None without a recent refusal for too many requests."""
        self.refusals = 0
        """Transmissions that the node refused, for any reason."""
        self._ceiling = 0.0
        self._episode = 0
        """Number of falls and pauses so far; each transmission is marked with it when it leaves."""
        self._has_taken = True
        self._taken: deque[int] = deque()
        """Times in the last second at which the node took transmissions that left before the first fall."""
        self._measured = -1
        """The mark of these transmissions; -1 before the first fall."""
        self._tokens = 0.0
        self._counted_ms = 0
        self._grown_ms = 0
        self._refused_ms = 0
        self._pause_ms = 0
        self._not_before_ms = 0
        self._window = 1
        """Transmissions that may leave at once, after the node refused one for another reason."""
        self._granted: int | None = None
        """Transmissions of this window that may still leave before another is taken; None if any number may."""

    @property
    def limiting(self) -> bool:
        """Whether the pace limits transmissions, now or soon."""
        return self.per_second is not None or self._granted is not None

    def opens_at(self, now_ms: int) -> int:
        """Return when the next transmission may leave; ``now_ms`` if at once."""
        self._observe(now_ms)
        opens = now_ms if self._granted else max(now_ms, self._not_before_ms)
        if self.per_second is not None and self._tokens < 1:
            opens = max(opens, now_ms + 1 + int((1 - self._tokens) * 1_000 / self.per_second))
        return opens

    def spend(self, now_ms: int) -> int:
        """Note that one transmission leaves; return its mark for `taken` or `refused`."""
        self._observe(now_ms)
        if self.per_second is not None:
            self._tokens -= 1
        if self._granted is not None:
            self._granted = max(0, self._granted - 1)
            # Without an answer another transmission may leave after this time.
            self._not_before_ms = now_ms + max(_FIRST_PAUSE_MS, self._pause_ms)
        return self._episode

    def taken(self, mark: int, now_ms: int) -> None:
        """Note that the node took the transmission that left with ``mark``."""
        self._observe(now_ms)
        self._has_taken = True
        if self._granted is not None:
            self._window += 1
            # The first transmission taken after a pause opens the whole window; each later one adds two.
            self._granted = self._window if self._pause_ms else self._granted + 2
            if self._window >= _WIDE_OPEN:
                self._granted, self._not_before_ms = None, 0
        self._pause_ms = 0
        if self.per_second is None:
            self._measure(now_ms)
            return
        if mark == self._measured and self._episode == mark + 1:
            # An answer to the burst whose first refusal set the pace arrives late: it raises the count and the pace.
            self._ceiling = max(self._ceiling, self._measure(now_ms))
            self.per_second = max(self.per_second, _FALL * self._ceiling)
        if now_ms - self._refused_ms > _FORGOTTEN_AFTER_MS:
            self.per_second = None
            self._taken.clear()
            return
        is_near = abs(self.per_second - self._ceiling) <= _NEAR * self._ceiling
        growth = _GROWTH_NEAR_CEILING_PER_S if is_near else _GROWTH_PER_S
        # The pace grows for at most the time between two transmissions, or one second, not for hours without one.
        longest_s = max(1.0, 1 / self.per_second)
        self.per_second *= (1 + growth) ** min(longest_s, max(0, now_ms - self._grown_ms) / 1_000)
        self._grown_ms = now_ms

    def refused(self, mark: int, now_ms: int, *, too_many: bool) -> None:
        """Note that the node refused the transmission that left with ``mark``.

        ``too_many`` is true if the node refused it for too many requests.
        """
        self._observe(now_ms)
        self.refusals += 1
        if mark != self._episode:
            return
        self._episode += 1
        if too_many:
            self._slow_down(now_ms)
        else:
            self._pause_ms = min(_LAST_PAUSE_MS, 2 * self._pause_ms) if self._pause_ms else _FIRST_PAUSE_MS
            self._not_before_ms = now_ms + self._pause_ms
            self._window = 1 if self._granted is None else max(1, self._window // 2)
            self._granted = 0

    def _measure(self, now_ms: int) -> float:
        """Note that the node took one more transmission; return the number that it took in the last second."""
        self._taken.append(now_ms)
        while self._taken[0] <= now_ms - _MEASURED_MS:
            self._taken.popleft()
        return float(len(self._taken))

    def _slow_down(self, now_ms: int) -> None:
        if self.per_second is None:
            self.per_second = max(1.0, float(len(self._taken)))
            self._measured = self._episode - 1
        self._ceiling = self.per_second
        self.per_second = max(_SLOWEST_PER_S, self.per_second * (_FALL if self._has_taken else _STEEP_FALL))
        self._has_taken = False
        self._tokens = 0.0
        self._grown_ms = self._refused_ms = self._counted_ms = now_ms

    def _observe(self, now_ms: int) -> None:
        """Add the tokens for the time since the last call; the tokens of one second are the maximum."""
        passed_ms, self._counted_ms = now_ms - self._counted_ms, now_ms
        if passed_ms < 0:
            self._not_before_ms = min(self._not_before_ms, now_ms + max(_FIRST_PAUSE_MS, self._pause_ms))
            self._grown_ms = self._refused_ms = now_ms
        elif self.per_second is not None:
            self._tokens = min(max(1.0, self.per_second), self._tokens + passed_ms * self.per_second / 1_000)
