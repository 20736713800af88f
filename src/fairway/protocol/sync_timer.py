"""When to send a sync message (seed 000, "Synchronization messages"; SDS spec, "Periodic Sync Message").

The interval is shared responsibility: every participant waits a random part of it, and whoever hears another's sync
message waits anew, so that one speaks for all. Three things do not wait for others: a copy of a message that was
received before, because its sender plainly lacks our acknowledgement; a repair request that is due (SDS-R); and so much
news that our bloom filter would forget the first of it before we spoke.
"""

from __future__ import annotations

from typing import Final

from fairway.protocol.jitter import Jitter

AFTER_CONTENT_RECEIVED: Final = 0.5
"""Sooner, for somebody waits for an acknowledgement."""
NORMAL: Final = 1.0
AFTER_OWN_SYNC: Final = 2.0
"""Seed 000 names this factor for a failed sync; js-waku takes it after every one, and so do we: nothing is new."""


_REPAIR_SPACING_MS: Final = 1_000
"""Between sync messages that only repair requests call for; many may fall due at once, and few ride on each."""
_REPAIR_BURST: Final = 20
"""Such sync messages that may follow each other so closely. Beyond them there is one for each interval: anybody can
invent messages that we miss, and must not have us transmit much more than we do without him."""


class SyncTimer:
    """The time of the next sync message."""

    def __init__(self, interval_ms: int, jitter: Jitter, now_ms: int, speak_after: int = 2_500) -> None:
        """``speak_after``: messages received after which to speak at once."""
        self._speak_after = speak_after
        self._heard = 0
        self.at_ms: int | None = None
        self._interval_ms = interval_ms
        self._jitter = jitter
        self._owed = False
        self._has_news = False
        self._spoke_ms: int | None = None
        self._repair_credit = _REPAIR_BURST * interval_ms
        """Time in which sync messages for repairs may be spent, an interval each."""
        self._credited_ms = now_ms
        self.restart(now_ms, NORMAL)

    def restart(self, now_ms: int, factor: float) -> None:
        """Begin a new wait."""
        self._owed = False
        self.at_ms = self._draw(now_ms, factor)

    def spoke(self, now_ms: int) -> None:
        """Note that a sync message is sent now."""
        self._earn_credit(now_ms)
        if self.at_ms is not None and self.at_ms > now_ms:
            self._repair_credit = max(0, self._repair_credit - self._interval_ms)
        self._has_news = False
        self._heard = 0
        self._spoke_ms = now_ms
        self.restart(now_ms, AFTER_OWN_SYNC)

    def for_repair_at(self, due_at: int | None) -> int | None:
        """Return when a repair request that is due at a time makes us speak; not in rapid succession."""
        if due_at is None or self.at_ms is None:
            return None
        lacking_ms = max(0, self._interval_ms - self._repair_credit)
        allowed_at = self._credited_ms + lacking_ms if lacking_ms else due_at
        return (
            max(due_at, allowed_at)
            if self._spoke_ms is None
            else max(due_at, allowed_at, self._spoke_ms + _REPAIR_SPACING_MS)
        )

    def content_sent(self, now_ms: int) -> None:
        """Begin a new wait: an own message acknowledges as much as a sync message would."""
        self._has_news = False
        self._heard = 0
        self.restart(now_ms, NORMAL)

    def hasten(self, now_ms: int) -> None:
        """Speak now if something was received since we last spoke: we are about to leave."""
        if self._has_news and self.at_ms is not None:
            self.at_ms = min(self.at_ms, now_ms)

    def content_received(self, now_ms: int) -> None:
        """Wait no longer than the shorter factor says; a busy channel must not postpone for ever."""
        self._has_news = True
        self._heard += 1
        at_once = self._heard >= self._speak_after and self._interval_ms
        self._bring_forward(now_ms if at_once else self._draw(now_ms, AFTER_CONTENT_RECEIVED))

    def copy_received(self, now_ms: int) -> None:
        """Owe an acknowledgement, which nobody else's sync message can replace."""
        self._has_news = True
        if not self._owed:
            self._owed = True
            self._bring_forward(self._draw(now_ms, AFTER_CONTENT_RECEIVED))

    def sync_received(self, now_ms: int) -> None:
        """Let another's sync message suppress ours."""
        if not self._owed and self._heard < self._speak_after:
            self.restart(now_ms, NORMAL)

    def clock_went_back(self, now_ms: int) -> None:
        """Wait no longer than from now on."""
        self._bring_forward(self._draw(now_ms, AFTER_OWN_SYNC))
        if self._spoke_ms is not None:
            self._spoke_ms = min(self._spoke_ms, now_ms)
        self._credited_ms = min(self._credited_ms, now_ms)
        self._credited_ms = min(self._credited_ms, now_ms)

    def _earn_credit(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._credited_ms)
        self._repair_credit = min(_REPAIR_BURST * self._interval_ms, self._repair_credit + passed_ms)
        self._credited_ms = now_ms

    def _bring_forward(self, at_ms: int | None) -> None:
        if at_ms is not None and self.at_ms is not None and at_ms < self.at_ms:
            self.at_ms = at_ms

    def _draw(self, now_ms: int, factor: float) -> int | None:
        if not self._interval_ms:
            return None
        return now_ms + 1 + int(self._jitter.fraction() * self._interval_ms * factor)
