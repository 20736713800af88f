"""Notices of faults that concern no single message.

- Messages that cannot be decrypted are the only sign of a wrong key. If channels share a topic, they are normal.
- A message of another program under the own sender id is forged, or two programs share an identity.
- A message of another channel means that the channels share a content topic.

Each count is announced at once, then at most once a minute. A node that refuses every transmission is announced after
a minute, then once an hour (`Blockage`).
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from fairway.events import ForeignMessages, MessagesUndecryptable, SenderIdInUse, SendingBlocked
from fairway.protocol.statistics import Tally

NOTICE_PAUSE_MS: Final = 60_000
"""Shortest time between two notices of a kind."""
BLOCKED_AFTER_MS: Final = 60_000
"""Time without an accepted transmission before the notice."""
_BLOCKED_AGAIN_MS: Final = 3_600_000
"""Time before the notice is repeated."""

Notice = MessagesUndecryptable | SenderIdInUse | ForeignMessages | SendingBlocked

_UNOPENED: Final = ("undecryptable", "undecodable")
_OWN_ID: Final = ("sender_id_in_use",)
_COUNTERS: Final = (_UNOPENED, _OWN_ID, ("foreign-channel",))
"""The counters of each kind of notice."""
_ALL_COUNTERS: Final = tuple(chain(*_COUNTERS))


class Blockage:
    """A period in which nothing can be sent although the node is connected: its duration, and the reason."""

    def __init__(self) -> None:
        """Begin without a refusal."""
        self._count = 0
        self._since_ms: int | None = None
        self._latest_ms = 0
        self._detail = ""
        self._announced_ms: int | None = None
        self._is_closed = False
        self.is_long = False
        """Whether the node refused all transmissions for `BLOCKED_AFTER_MS`, or no epoch has room."""

    def refused(self, detail: str, now_ms: int) -> None:
        """Note that a transmission was refused, was not answered, or got no proof."""
        if self._since_ms is None or now_ms < self._latest_ms:
            self._since_ms = now_ms
        self._count += 1
        self._latest_ms, self._detail = now_ms, detail
        self.is_long = self._is_closed or now_ms - self._since_ms >= BLOCKED_AFTER_MS

    def closed(self, now_ms: int, *, is_closed: bool) -> None:
        """Note whether no later epoch has room for the waiting transmissions: no membership, or a limit of 0."""
        if is_closed is self._is_closed:
            return
        self.ended()
        self._is_closed = self.is_long = is_closed
        if is_closed:
            self._since_ms = self._latest_ms = now_ms
            self._detail = "the rate limit allows no messages; is there an RLN membership?"

    def ended(self) -> None:
        """Note that the node took a transmission, or that the node is offline."""
        self._count, self._since_ms, self._announced_ms = 0, None, None
        self.is_long = False

    def take(self, now_ms: int) -> list[Notice]:
        """Return the notice of a long blockage, if one is due."""
        told_ms = self._announced_ms
        if told_ms is not None and 0 <= now_ms - told_ms < _BLOCKED_AGAIN_MS:
            return []
        self._announced_ms = now_ms
        return [SendingBlocked(since_ms=self._since_ms or now_ms, refusals=self._count, detail=self._detail)]


class Notices:
    """Announces counts: each at once, then at most once a minute."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._announced = dict.fromkeys(_COUNTERS, 0)
        self._not_before_ms = dict.fromkeys(_COUNTERS, 0)
        self._total = 0
        """Sum of all counts at the last call of `take`."""
        self.at_ms: int | None = None
        """When the next notice is due, for the counts at the last call of `take`; None if none is."""

    def take(self, now_ms: int) -> list[Notice]:
        """Return the notices that are due."""
        notices: list[Notice] = []
        total = sum(map(self._tally.counts.__getitem__, _ALL_COUNTERS))
        if total == self._total and self.at_ms is None:
            return notices
        self._total, self.at_ms = total, None
        for counters in _COUNTERS:
            new = sum(map(self._tally.counts.__getitem__, counters)) - self._announced[counters]
            not_before_ms = self._not_before_ms[counters]
            if new and now_ms < not_before_ms:
                self.at_ms = not_before_ms if self.at_ms is None else min(self.at_ms, not_before_ms)
            elif new:
                self._announced[counters] += new
                self._not_before_ms[counters] = now_ms + NOTICE_PAUSE_MS
                notices.append(self._notice(counters, new))
        return notices

    def _notice(self, counters: tuple[str, ...], new: int) -> Notice:
        if counters == _UNOPENED:
            return MessagesUndecryptable(count=new, opened=self._tally.counts["opened"])
        if counters == _OWN_ID:
            return SenderIdInUse(count=new)
        return ForeignMessages(count=new, channel_id=self._tally.foreign_channel_id)
