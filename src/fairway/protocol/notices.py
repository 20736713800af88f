"""What an application should hear of although it concerns no message that it will ever get: at most once a minute.

Messages that cannot be opened are everyday traffic where channels share a content topic, and the only sign of a wrong
key where they do not. A message under one's own name that one did not send means that two programs share an identity,
or that somebody pretends to be us. Both are announced with a count, the first at once and further ones together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.events import MessagesUndecryptable, SenderIdInUse
from fairway.protocol.statistics import Tally

NOTICE_PAUSE_MS: Final = 60_000
"""Least time between two notices of a kind."""

Notice = MessagesUndecryptable | SenderIdInUse

_COUNTED: Final = ("undecryptable", "undecodable", "sender_id_in_use")
"""Counters that notices are about; hardly ever does any of them move."""


class _Counted:
    """One thing that is counted, and whose count is announced now and then."""

    def __init__(self, count: Callable[[], int], make: Callable[[int], Notice]) -> None:
        self._count = count
        self._make = make
        self._told = 0
        self._not_before_ms = 0
        self.at_ms: int | None = None
        """When something that was held back is due, as of the last `take`."""

    def take(self, now_ms: int) -> Notice | None:
        """Return the notice that is due, if one is."""
        self.at_ms = None
        new = self._count() - self._told
        if not new:
            return None
        if now_ms < self._not_before_ms:
            self.at_ms = self._not_before_ms
            return None
        self._told += new
        self._not_before_ms = now_ms + NOTICE_PAUSE_MS
        return self._make(new)


class Notices:
    """All things whose counts are announced."""

    def __init__(self, tally: Tally) -> None:
        counts = tally.counts
        self._counts = counts
        self._looked_at = 0
        """The sum of the counters when they were last looked at."""
        self._at_ms: int | None = None
        self._kinds = (
            _Counted(
                lambda: counts["undecryptable"] + counts["undecodable"],
                lambda new: MessagesUndecryptable(count=new, opened=counts["opened"]),
            ),
            _Counted(lambda: counts["sender_id_in_use"], lambda new: SenderIdInUse(count=new)),
        )

    def take(self, now_ms: int) -> list[Notice]:
        """Return the notices that are due."""
        counted = sum(map(self._counts.__getitem__, _COUNTED))
        if counted == self._looked_at and self._at_ms is None:
            return []
        self._looked_at = counted
        notices = [notice for kind in self._kinds if (notice := kind.take(now_ms)) is not None]
        self._at_ms = min([kind.at_ms for kind in self._kinds if kind.at_ms is not None], default=None)
        return notices

    def next_deadline(self) -> int | None:
        """Return when the next notice is due, of what was counted when they were last taken."""
        return self._at_ms
