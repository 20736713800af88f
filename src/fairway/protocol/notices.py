"""Troubles that concern no single message: a wrong key, a sender id or a topic in use twice, a node that takes nothing.

Messages that cannot be opened are everyday traffic where channels share a content topic, and the only sign of a wrong
key where they do not. A message under the own sender id that this program did not send means that two programs share an
identity, or that one is forged. Each such count is announced at once, then at most once a minute.

A node that refuses everything is announced after a minute, then once an hour (`Blockage`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.events import ForeignMessages, MessagesUndecryptable, SenderIdInUse, SendingBlocked
from fairway.protocol.statistics import Tally

NOTICE_PAUSE_MS: Final = 60_000
"""Least time between two notices of a kind."""
BLOCKED_AFTER_MS: Final = 60_000
"""How long nothing can be sent before that is announced."""
_BLOCKED_AGAIN_MS: Final = 3_600_000
"""How long until it is announced again."""

Notice = MessagesUndecryptable | SenderIdInUse | ForeignMessages | SendingBlocked

_COUNTED: Final = ("undecryptable", "undecodable", "sender_id_in_use", "foreign-channel")
"""Counters that notices are about; most of the time none of them moves."""


class Blockage:
    """Whether nothing can be sent although the node is connected: for how long, and why."""

    def __init__(self) -> None:
        """Nothing has been refused yet."""
        self._count = 0
        self._since_ms: int | None = None
        self._latest_ms = 0
        self._detail = ""
        self._announced_ms: int | None = None
        self._is_closed = False

    def refused(self, detail: str, now_ms: int) -> None:
        """Note that a transmission was refused, was not answered, or got no proof."""
        if self._since_ms is None or now_ms < self._latest_ms:
            self._since_ms = now_ms
        self._count += 1
        self._latest_ms, self._detail = now_ms, detail

    def closed(self, now_ms: int, *, is_closed: bool) -> None:
        """Note whether no coming epoch has room for what waits: there is no membership, or the limit is 0."""
        if is_closed and not self._is_closed:
            self.ended()
            self._since_ms = self._latest_ms = now_ms
            self._detail = "the rate limit allows no messages; is there an RLN membership?"
        elif self._is_closed and not is_closed:
            self.ended()
        self._is_closed = is_closed

    def ended(self) -> None:
        """Note that a transmission was taken, or that the node is away."""
        self._count, self._since_ms, self._announced_ms = 0, None, None

    @property
    def is_long(self) -> bool:
        """Whether nothing could be sent for so long that it is a trouble."""
        return self._since_ms is not None and (self._is_closed or self._latest_ms - self._since_ms >= BLOCKED_AFTER_MS)

    def take(self, now_ms: int) -> list[Notice]:
        """Return the notice that is due, if one is."""
        told_ms = self._announced_ms
        if not self.is_long or (told_ms is not None and 0 <= now_ms - told_ms < _BLOCKED_AGAIN_MS):
            return []
        self._announced_ms = now_ms
        return [SendingBlocked(since_ms=self._since_ms or now_ms, refusals=self._count, detail=self._detail)]


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
            _Counted(
                lambda: counts["foreign-channel"],
                lambda new: ForeignMessages(count=new, channel_id=tally.foreign_channel_id),
            ),
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
