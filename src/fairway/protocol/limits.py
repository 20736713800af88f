"""Bounds against exhaustion. Each one has an event, which is emitted when the bound is reached.

RELIABLE-CHANNEL-API, "Security/Privacy Considerations": limits on missing messages tracked, active retries and store
queries. While a bound stays reached, no further event follows. After relief the next event is possible.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairway.events import Limit, LimitReached


class LimitWatch:
    """The bounds that are reached now."""

    def __init__(self) -> None:
        self._biting: set[Limit] = set()

    def note(self, limit: Limit, bound: int, *, bites: bool) -> tuple[LimitReached, ...]:
        """Note whether a bound is reached, and return the event if it was not reached before."""
        if not bites:
            if self._biting:
                self._biting.discard(limit)
        elif limit not in self._biting:
            self._biting.add(limit)
            return (LimitReached(limit=limit, bound=bound),)
        return ()

    def relieved(self, limits: Iterable[Limit]) -> None:
        """Note that none of these bounds is reached."""
        if self._biting:
            self._biting.difference_update(limits)
