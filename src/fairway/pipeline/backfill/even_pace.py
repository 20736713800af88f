"""`EvenPace`: spaces messages evenly, so that no epoch, wherever it begins, has more of them than the rate limit.

Evenly, and not an epoch's messages at once, because nobody knows where a node's epoch begins, and because a process
that is started again must not know what an earlier one sent: the first message, too, waits for its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fairway.errors import ConfigurationError

_LONGEST_STEP_S: Final = 0.5
"""Longest sleep, so that progress goes on being shown."""


@dataclass(slots=True)
class EvenPace:
    """The turns of messages at one target."""

    interval_s: float = 0.0
    """Time between two messages; 0: no limit."""
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free_s: float | None = field(default=None, init=False)
    """When the next message may go; None before the first."""

    @classmethod
    def of(cls, rate_limit: int | None, epoch_ms: int) -> EvenPace:
        """Return the pace of ``rate_limit`` messages in ``epoch_ms``; None is no limit."""
        if rate_limit is not None and rate_limit < 1:
            raise ConfigurationError(f"a rate limit is at least 1 message in an epoch, not {rate_limit}")
        if epoch_ms < 1:
            raise ConfigurationError(f"an epoch has at least 1 ms, not {epoch_ms}")
        return cls(0.0 if rate_limit is None else epoch_ms / 1_000 / rate_limit)

    def wait(self, messages: int, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait for the turn of some messages that go together; calls ``waiting`` now and then meanwhile."""
        if not self.interval_s:
            return
        if self._free_s is None:
            self._free_s = self.now_s() + self.interval_s * messages
        while (left_s := self._free_s - self.now_s()) > 0:
            waiting()
            self.sleep(min(left_s, _LONGEST_STEP_S))
        self._free_s = max(self.now_s(), self._free_s) + self.interval_s * messages
