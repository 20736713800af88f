"""How often a store may be asked (RELIABLE-CHANNEL-API, "Security/Privacy Considerations").

The budget is a sliding minute: within any 60 seconds no more queries are made than allowed, and while there are fewer
none waits.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from fairway.errors import ConfigurationError

_MINUTE_MS: Final = 60_000


class QueryBudget:
    """The store queries of the last minute."""

    def __init__(self, per_minute: int) -> None:
        """Begin with nothing spent; ``per_minute`` is at least 1."""
        if per_minute < 1:
            raise ConfigurationError(f"per_minute must be at least 1, not {per_minute}")
        self.per_minute = per_minute
        self._spent: deque[int] = deque(maxlen=per_minute)

    def next_at(self, now_ms: int) -> int:
        """Return when the next query may be made, in milliseconds since the Unix epoch; ``now_ms`` if at once."""
        if len(self._spent) < self.per_minute:
            return now_ms
        # Of a clock that was set back nobody waits for more than a minute.
        return max(now_ms, min(self._spent[0], now_ms) + _MINUTE_MS)

    def spend(self, now_ms: int) -> None:
        """Note that a query is made now."""
        self._spent.append(now_ms)
