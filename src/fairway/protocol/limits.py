"""Bounds against exhaustion, told to the application when they begin to bite.

Seed 000, "Security/Privacy Considerations": limits on missing messages tracked, active retries and store queries. A
bound that goes on biting is told once, and again only after it had ceased to.
"""

from __future__ import annotations

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
