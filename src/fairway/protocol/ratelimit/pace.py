"""How fast a node takes transmissions: one pace for all channels of the node, learned from its refusals.

A service node takes so many requests a second from each client and refuses the others (WAKU-LIGHTPUSH, status code
429). A transmission that it refused is sent again before later ones, and the pace falls for all:

============================ ==========================================================================
the node says                the pace
============================ ==========================================================================
taken                        grows: by 5 % a second, near the pace that was refused last by 0.5 %
too many requests            falls to 85 % of itself; to half of it when nothing was taken since it fell last
no, for another reason       one transmission at a time is tried, after 250 ms and then ever later, up to 5 s;
                             when one is taken, half as many may leave at once as before, at least
                             two, and with each that is taken one more; from 64 on any number
============================ ==========================================================================

A node that is overloaded may refuse for any reason, so that one transmission that is taken does not show that it takes
any number. If all left at once it would refuse nearly all of them, ever the same ones, and these would come late.

The first pace is what the node took in a second of what left before it refused, also of what it answers later. A
refusal of a transmission that left before the pace fell last does not count again. As long as a node has refused
nothing, its answers alone set the pace. Pure: the time is an argument.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_FIRST_PAUSE_MS: Final = 250
_LAST_PAUSE_MS: Final = 5_000
_WIDE_OPEN: Final = 64
"""From so many at once on, how many leave is left to the node."""
_FALL: Final = 0.85
_STEEP_FALL: Final = 0.5
_GROWTH_PER_S: Final = 0.05
_GROWTH_NEAR_CEILING_PER_S: Final = 0.005
_NEAR: Final = 0.07
_SLOWEST_PER_S: Final = 0.1
_MEASURED_MS: Final = 1_000
"""The first pace is what the node took in this time of what left before it refused."""
_FORGOTTEN_AFTER_MS: Final = 600_000
"""A node that has refused nothing for so long is not known to be slow any more."""


class Pace:
    """The pace of one node. Times are milliseconds of any clock; if that goes back, a wait begins anew."""

    def __init__(self) -> None:
        self.per_second: float | None = None
        """Transmissions a second; None while the node is not known to refuse any."""
        self.refusals = 0
        """How many transmissions the node has refused, for any reason."""
        self._ceiling = 0.0
        self._episode = 0
        """Counts how often the pace fell or paused; what leaves is marked with it."""
        self._has_taken = True
        self._taken: deque[int] = deque()
        """When the node took what left before the pace fell first, of the last second."""
        self._measured = -1
        """The mark of that; -1 if nothing has left."""
        self._tokens = 0.0
        self._counted_ms = 0
        self._grown_ms = 0
        self._refused_ms = 0
        self._pause_ms = 0
        self._not_before_ms = 0
        self._window = 1
        """How many may leave at once after the node refused one for another reason."""
        self._granted: int | None = None
        """How many of them may still leave before another one is taken; None if any number may."""

    @property
    def limiting(self) -> bool:
        """Whether anything waits for the pace, now or soon."""
        return self.per_second is not None or self._granted is not None

    def opens_at(self, now_ms: int) -> int:
        """Return from when on one transmission may leave; ``now_ms`` if at once."""
        self._observe(now_ms)
        opens = now_ms if self._granted else max(now_ms, self._not_before_ms)
        if self.per_second is not None and self._tokens < 1:
            opens = max(opens, now_ms + 1 + int((1 - self._tokens) * 1_000 / self.per_second))
        return opens

    def spend(self, now_ms: int) -> int:
        """Note that one transmission leaves; return the mark to give with its answer."""
        self._observe(now_ms)
        if self.per_second is not None:
            self._tokens -= 1
        if self._granted is not None:
            self._granted = max(0, self._granted - 1)
            # If no answer comes, another transmission is tried.
            self._not_before_ms = now_ms + max(_FIRST_PAUSE_MS, self._pause_ms)
        return self._episode

    def taken(self, mark: int, now_ms: int) -> None:
        """Note that the node took the transmission that left with ``mark``."""
        self._observe(now_ms)
        self._has_taken = True
        if self._granted is not None:
            self._window += 1
            # As many may leave as before, and one more.
            self._granted = self._window if self._pause_ms else self._granted + 2
            if self._window >= _WIDE_OPEN:
                self._granted, self._not_before_ms = None, 0
        self._pause_ms = 0
        if self.per_second is None:
            self._measure(now_ms)
            return
        if mark == self._measured and self._episode == mark + 1:
            # The first refusal of a burst came before the answers to what the node took of it.
            self._ceiling = max(self._ceiling, self._measure(now_ms))
            self.per_second = max(self.per_second, _FALL * self._ceiling)
        if now_ms - self._refused_ms > _FORGOTTEN_AFTER_MS:
            self.per_second = None
            self._taken.clear()
            return
        is_near = abs(self.per_second - self._ceiling) <= _NEAR * self._ceiling
        growth = _GROWTH_NEAR_CEILING_PER_S if is_near else _GROWTH_PER_S
        # The pace grows for the time between two transmissions at most, and not for hours in which nothing left.
        longest_s = max(1.0, 1 / self.per_second)
        self.per_second *= (1 + growth) ** min(longest_s, max(0, now_ms - self._grown_ms) / 1_000)
        self._grown_ms = now_ms

    def refused(self, mark: int, now_ms: int, *, too_many: bool) -> None:
        """Note that the node did not take the transmission that left with ``mark``; ``too_many``: it asks for less."""
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
        """Note that the node took one more; return how many it took within a second."""
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
        """Allow as many transmissions as the pace gives for the time since the last call, at most those of a second."""
        passed_ms, self._counted_ms = now_ms - self._counted_ms, now_ms
        if passed_ms < 0:
            self._not_before_ms = min(self._not_before_ms, now_ms + max(_FIRST_PAUSE_MS, self._pause_ms))
            self._grown_ms = self._refused_ms = now_ms
        elif self.per_second is not None:
            self._tokens = min(max(1.0, self.per_second), self._tokens + passed_ms * self.per_second / 1_000)
