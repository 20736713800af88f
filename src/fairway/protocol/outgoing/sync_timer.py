"""The times of sync messages (RELIABLE-CHANNEL-API, "Synchronization messages"; SDS, "Periodic Sync Message").

Every participant waits for a time that is random within the second half of a window. The algorithm is that of Trickle
(RFC 6206): the first participants whose wait ends send a sync message for all.

- News begins a first window. News is content, a copy, a restart, or a sync message of a participant that misses
  messages. The first window of the author is an interval, that of a receiver half an interval.
- After each sync message, own or of another participant, the next window begins. It is twice as long, up to twice
  `_LONGEST_MS`. So the last message of a burst is announced soon, and then less and less often. The windows of a
  participant that has not acknowledged the news itself are at most `_LONGEST_WITH_NEWS`.
- A participant may miss messages because it has no room for them. After `_REMINDERS` sync messages it is reminded only
  every `_SELDOM_MS`.

In four cases a sync message of another participant does not replace ours:

- It is of the author of the newest message, and does not acknowledge that message.
- We received a copy of a message, so its sender has not received our acknowledgement.
- A repair request is due (SDS-R).
- We received ``max_unsynced`` messages. Beyond them our bloom filter would forget the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.protocol.jitter import Jitter

_SELDOM_MS: Final = 30_000
"""Interval of sync messages that might repeat without end: further reminders, further repair requests, and those that
the node refuses."""
_FOR_NEWS: Final = 0.5
"""Share of the interval if a participant waits for an acknowledgement."""
_LONGEST_MS: Final = 480_000
"""Shortest wait in the longest window."""
_LONGEST_WITH_NEWS: Final = 4.0
"""Longest window, in intervals, of a participant that has not acknowledged itself; its sender may require that."""
_TURN_SHARE: Final = 0.75
"""Share of a window in which the first of several participants sends: two thirds for two of them, half for many."""
_REMINDERS: Final = 10
"""Prompt sync messages for participants that miss messages: at 60 % loss one arrives in 99 % of cases."""
_REPAIR_SPACING_MS: Final = 1_000
"""Pause between sync messages for repair requests; many requests may be due at once."""
_REPAIR_BURST: Final = 20
"""Sync messages for repair requests before a limit of one per `_SELDOM_MS`; a forger can cite invented messages."""
_UNDER_WAY_MS: Final = 500
"""Time after content in which a sync message without it was probably made before its author received the content."""
_MAX_DOUBLINGS: Final = 20


class SyncTimer:
    """The time of the next sync message."""

    def __init__(self, interval_ms: Callable[[], int], jitter: Jitter, now_ms: int, max_unsynced: int = 2_500) -> None:
        """Start the timer.

        ``interval_ms`` returns the interval; 0 without sync messages. ``max_unsynced`` is the number of received
        messages after which a sync message is sent at once.
        """
        self._max_unsynced = max_unsynced
        self._interval = interval_ms
        self._jitter = jitter
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Reset all times: at a start, and after the clock was set back."""
        self._unsynced = 0
        """Messages received since the last own message or sync message."""
        self.at_ms: int | None = None
        self._has_news = False
        """Whether content or a copy was received since the last own message or sync message."""
        self._round = 0
        """Sync messages, own and others', since the last news."""
        self._owes_acknowledgement = False
        self._peer_is_behind = False
        """Whether a participant that misses messages sent a sync message since our last one."""
        self._reminders = 0
        """Own sync messages for participants that miss messages, since the last news."""
        self._sent_ms: int | None = None
        self._content_ms = now_ms
        """When content was last sent or received."""
        self._repair_credit = _REPAIR_BURST * _SELDOM_MS
        """Credit for sync messages that only carry repair requests, in milliseconds; each costs one interval."""
        self._credited_ms = now_ms
        self._begin_window(now_ms)

    def send_soon(self, now_ms: int) -> None:
        """Send a sync message within an interval, after the node connected or disconnected."""
        self._note_news()
        self._bring_forward(self._draw(now_ms, 1.0))

    def refused(self, now_ms: int) -> None:
        """Send a sync message again later, because the node refused the last one."""
        self._bring_forward(now_ms + _SELDOM_MS)

    def turn_ms(self, *, has_news: bool) -> int:
        """Return the mean time until a participant of a group sends a sync message, at most; 0 without sync messages.

        ``has_news`` says whether a participant has content to acknowledge, and so a short window.
        """
        interval_ms = self._interval()
        return int(_TURN_SHARE * interval_ms * _longest_window(interval_ms, has_news=has_news)) if interval_ms else 0

    def on_sent(self, now_ms: int) -> None:
        """Note that a sync message is sent now."""
        passed_ms = max(0, now_ms - self._credited_ms)
        self._repair_credit = min(_REPAIR_BURST * _SELDOM_MS, self._repair_credit + passed_ms)
        self._credited_ms = now_ms
        if self.at_ms is not None and self.at_ms > now_ms:
            self._repair_credit = max(0, self._repair_credit - _SELDOM_MS)
        self._has_news = False
        self._unsynced = 0
        self._reminders += self._peer_is_behind
        self._peer_is_behind = False
        self._sent_ms = now_ms
        self._begin_next_window(now_ms)

    def for_repair_at(self, due_at: int) -> int | None:
        """Return when to send a sync message for a repair request; None if sync messages are off.

        The time is at least ``due_at``, `_REPAIR_SPACING_MS` after the last sync message, and within the credit.
        """
        if self.at_ms is None:
            return None
        lacking_ms = _SELDOM_MS - self._repair_credit
        credit_at = self._credited_ms + lacking_ms if lacking_ms > 0 else due_at
        spaced_at = due_at if self._sent_ms is None else self._sent_ms + _REPAIR_SPACING_MS
        return max(due_at, credit_at, spaced_at)

    def content_sent(self, now_ms: int) -> None:
        """Begin a new wait, because an own message acknowledges as much as a sync message."""
        self._has_news = False
        self._unsynced = 0
        self._content_ms = now_ms
        self._note_news()
        self._begin_window(now_ms)

    def fire_now(self, now_ms: int) -> None:
        """Send a sync message now, because the channel is about to stop."""
        self._bring_forward(now_ms)

    def content_received(self, now_ms: int) -> None:
        """Bring the sync message forward to a share of the interval from now; further content never postpones it."""
        self._has_news = True
        self._content_ms = now_ms
        self._note_news()
        self._unsynced += 1
        at_once = self._unsynced >= self._max_unsynced and self._interval()
        self._bring_forward(now_ms if at_once else self._draw(now_ms, _FOR_NEWS))

    def copy_received(self, now_ms: int) -> None:
        """Note a copy: our sync message must acknowledge it, and that of another participant cannot replace ours."""
        self._has_news = True
        if not self._owes_acknowledgement:
            self._owes_acknowledgement = True
            self._bring_forward(self._draw(now_ms, _FOR_NEWS))

    def sync_received(self, now_ms: int, *, is_behind: bool, wrote_newest: bool = False) -> None:
        """Begin the next window after a sync message of another participant, unless that participant ``is_behind``.

        With news, the wait continues if the participant ``wrote_newest``: its sync message does not acknowledge that.
        """
        if self._owes_acknowledgement or self._unsynced >= self._max_unsynced:
            return
        if is_behind:
            if 0 <= now_ms - self._content_ms < _UNDER_WAY_MS:
                return
            self._peer_is_behind = True
            pause_ms = self._interval()
            if self._reminders < _REMINDERS:
                self._round = 0
            else:
                pause_ms = max(pause_ms, _SELDOM_MS)
            left_ms = 0 if self._sent_ms is None else max(0, self._sent_ms + pause_ms - now_ms)
            self._bring_forward(self._draw(now_ms + left_ms, _FOR_NEWS))
        elif not (self._has_news and wrote_newest):
            self._begin_next_window(now_ms)

    def _note_news(self) -> None:
        self._round = self._reminders = 0

    def _begin_next_window(self, now_ms: int) -> None:
        self._round = min(self._round + 1, _MAX_DOUBLINGS)
        self._begin_window(now_ms)

    def _begin_window(self, now_ms: int) -> None:
        self._owes_acknowledgement = False
        interval_ms = self._interval()
        longest = _longest_window(interval_ms, has_news=self._has_news) if interval_ms else 0
        self.at_ms = self._draw(now_ms, min(2.0**self._round, longest))

    def _bring_forward(self, at_ms: int | None) -> None:
        if at_ms is not None and self.at_ms is not None and at_ms < self.at_ms:
            self.at_ms = at_ms

    def _draw(self, now_ms: int, intervals: float) -> int | None:
        """Return a random time in the second half of a window of that many intervals; None without sync messages."""
        interval_ms = self._interval()
        if not interval_ms:
            return None
        return now_ms + 1 + int((1 + self._jitter.fraction()) / 2 * interval_ms * intervals)


def _longest_window(interval_ms: int, *, has_news: bool) -> float:
    """Return the longest window in intervals."""
    longest = max(1.0, 2 * _LONGEST_MS / interval_ms)
    return min(longest, _LONGEST_WITH_NEWS) if has_news else longest
