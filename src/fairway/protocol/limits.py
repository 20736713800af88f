"""Bounds against exhaustion: an event names each of them when it is reached.

RELIABLE-CHANNEL-API, "Security/Privacy Considerations": limits on missing messages tracked, active retries and store
queries. While a bound stays reached there is one event; the next one comes when it is reached anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairway.events import Limit, LimitReached


class LimitWatch:
    """Which bounds bite now."""

    def __init__(self) -> None:
        self._biting: set[Limit] = set()

    def note(self, limit: Limit, bound: int, *, bites: bool) -> tuple[LimitReached, ...]:
        """Note whether a bound bites, and return the event to tell if it just began to."""
        if not bites:
            self._biting.discard(limit)
        elif limit not in self._biting:
            self._biting.add(limit)
            return (LimitReached(limit=limit, bound=bound),)
        return ()

    def relieved(self, limits: Iterable[Limit]) -> None:
        """Note that none of these bounds bites."""
        if self._biting:
            self._biting.difference_update(limits)
