"""The times of sync messages (RELIABLE-CHANNEL-API, "Synchronization messages"; SDS, "Periodic Sync Message").

Every participant waits a random time. A sync message of another participant restarts the wait.

- With news, the wait is a random part of the interval. News is received content, a copy, a restart, or a sync message
  of a participant that misses messages.
- Without news, the wait is at least the interval. It doubles after each sync message, up to `_LONGEST_MS`.
- A participant may miss messages because it has no room for them. After `_REMINDERS` sync messages it is reminded only
  every `_REMINDER_PAUSE_MS`.
- Without bloom filters (`BloomPolicy`) sync messages with news leave in half the time. The author of the newest message
  also sends one every few seconds until `ECHOES` transmissions cited that message.

In three cases a sync message of another participant does not replace ours:

- We received a copy of a message, so its sender has not received our acknowledgement.
- A repair request is due (SDS-R).
- We received ``max_unsynced`` messages. Beyond them our bloom filter would forget the first ones.
"""

from __future__ import annotations

from typing import Final

from fairway.protocol.jitter import Jitter

_FOR_NEWS: Final = 0.5
"""Share of the interval if a participant waits for an acknowledgement."""
_WITHOUT_FILTER: Final = 0.5
"""Share of these times without bloom filters, because the sync messages are small."""
_ECHO: Final = 0.12
"""Share of the interval for the random wait before the author of the newest message cites it."""
_BEFORE_ECHO: Final = 0.03
"""Share of the interval before that wait, in which the author may send its next message instead."""
ECHOES: Final = 3
"""Transmissions that cite the newest message: at 30 % loss one of them arrives in 97 % of cases."""
_LONGEST_MS: Final = 480_000
"""Longest fixed wait; the random part may be equally long."""
_REMINDERS: Final = 10
"""Prompt sync messages for participants that miss messages: at 60 % loss one arrives in 99 % of cases."""
_REMINDER_PAUSE_MS: Final = 30_000
"""Pause between further sync messages for them: a participant may answer each one, and miss messages for hours."""
_REPAIR_SPACING_MS: Final = 1_000
"""Pause between sync messages for repair requests; many requests may be due at once."""
_REPAIR_BURST: Final = 20
"""Sync messages for repair requests before a limit of one per interval; a forger can cite invented messages."""


class SyncTimer:
    """The time of the next sync message."""

    def __init__(
        self, interval_ms: int, jitter: Jitter, now_ms: int, max_unsynced: int = 2_500, echoes: int = 0
    ) -> None:
        """Start the timer.

        ``max_unsynced`` is the number of received messages after which a sync message is sent at once. ``echoes`` is
        the number of transmissions that cite each own message; 0 with bloom filters.
        """
        self._max_unsynced = max_unsynced
        self._echoes = echoes
        self._share = _WITHOUT_FILTER if echoes else 1.0
        self._interval_ms = interval_ms
        self._jitter = jitter
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Reset all times: at a start, and after the clock was set back."""
        self._echoes_due = 0
        """Transmissions that must still cite the newest message, if it is an own message."""
        self._unsynced = 0
        """Messages received since the last own message or sync message."""
        self.at_ms: int | None = None
        self._has_news = False
        self._idle_rounds = 0
        """Sync messages, own and others', since the last news."""
        self._owes_acknowledgement = False
        self._peer_is_behind = False
        """Whether a participant that misses messages sent a sync message since our last one."""
        self._reminders = 0
        """Own sync messages for participants that miss messages, since the last news."""
        self._sent_ms: int | None = None
        self._repair_credit = _REPAIR_BURST * self._interval_ms
        """Credit for sync messages that only carry repair requests, in milliseconds; each costs one interval."""
        self._credited_ms = now_ms
        self._restart(now_ms)

    def send_soon(self, now_ms: int) -> None:
        """Send a sync message within an interval, after the node connected, disconnected or refused the last one."""
        self._note_news()
        self._bring_forward(self._draw(now_ms, 1.0))

    def on_sent(self, now_ms: int) -> None:
        """Note that a sync message is sent now."""
        passed_ms = max(0, now_ms - self._credited_ms)
        self._repair_credit = min(_REPAIR_BURST * self._interval_ms, self._repair_credit + passed_ms)
        self._credited_ms = now_ms
        if self.at_ms is not None and self.at_ms > now_ms:
            self._repair_credit = max(0, self._repair_credit - self._interval_ms)
        self._has_news = False
        self._unsynced = 0
        self._reminders += self._peer_is_behind
        self._peer_is_behind = False
        self._sent_ms = now_ms
        self._echoes_due = max(0, self._echoes_due - 1)
        self._wait_without_news(now_ms)

    def for_repair_at(self, due_at: int) -> int | None:
        """Return when to send a sync message for a repair request; None if sync messages are off.

        The time is at least ``due_at``, `_REPAIR_SPACING_MS` after the last sync message, and within the credit.
        """
        if self.at_ms is None:
            return None
        lacking_ms = self._interval_ms - self._repair_credit
        credit_at = self._credited_ms + lacking_ms if lacking_ms > 0 else due_at
        spaced_at = due_at if self._sent_ms is None else self._sent_ms + _REPAIR_SPACING_MS
        return max(due_at, credit_at, spaced_at)

    def content_sent(self, now_ms: int) -> None:
        """Begin a new wait, because an own message acknowledges as much as a sync message."""
        self._has_news = False
        self._unsynced = 0
        self._echoes_due = self._echoes
        self._restart(now_ms)

    def fire_now(self, now_ms: int) -> None:
        """Send a sync message now if content or a copy was received, because the channel is about to stop."""
        if self._has_news and self.at_ms is not None:
            self.at_ms = min(self.at_ms, now_ms)

    def content_received(self, now_ms: int) -> None:
        """Bring the sync message forward to a share of the interval from now; further content never postpones it."""
        self._has_news = True
        self._note_news()
        self._echoes_due = 0
        self._unsynced += 1
        at_once = self._unsynced >= self._max_unsynced and self._interval_ms
        self._bring_forward(now_ms if at_once else self._draw(now_ms, _FOR_NEWS * self._share))

    def copy_received(self, now_ms: int) -> None:
        """Note a copy: our sync message must acknowledge it, and that of another participant cannot replace ours."""
        self._has_news = True
        if not self._owes_acknowledgement:
            self._owes_acknowledgement = True
            self._bring_forward(self._draw(now_ms, _FOR_NEWS * self._share))

    def sync_received(
        self, now_ms: int, *, is_behind: bool, cites_newest: bool = False, wrote_newest: bool = False
    ) -> None:
        """Restart the wait after a sync message of another participant, unless that participant ``is_behind``.

        With news, the wait continues if the participant ``wrote_newest``: its sync message does not acknowledge that.
        """
        if cites_newest:
            self._echoes_due = max(0, self._echoes_due - 1)
        if self._owes_acknowledgement or self._unsynced >= self._max_unsynced:
            return
        if is_behind:
            self._peer_is_behind = True
            pause_ms = self._interval_ms
            if self._reminders < _REMINDERS:
                self._idle_rounds = 0
            else:
                pause_ms = max(pause_ms, _REMINDER_PAUSE_MS)
            left_ms = 0 if self._sent_ms is None else max(0, self._sent_ms + pause_ms - now_ms)
            self._bring_forward(self._draw(now_ms + left_ms, _FOR_NEWS))
        elif self._has_news:
            if not wrote_newest:
                self.at_ms = self._draw(now_ms, self._share)
        else:
            self._wait_without_news(now_ms)

    def _restart(self, now_ms: int) -> None:
        """Begin a new wait with news."""
        self._owes_acknowledgement = False
        self._note_news()
        self.at_ms = self._draw_echo(now_ms) if self._echoes_due else self._draw(now_ms, 1.0)

    def _note_news(self) -> None:
        self._idle_rounds = self._reminders = 0

    def _wait_without_news(self, now_ms: int) -> None:
        """Begin a new wait without news: at least one interval, and twice as long as the last wait."""
        self._owes_acknowledgement = False
        if self._echoes_due:
            self.at_ms = self._draw_echo(now_ms)
            return
        times = max(1, min(2**self._idle_rounds, _LONGEST_MS // self._interval_ms)) if self._interval_ms else 0
        self._idle_rounds = min(self._idle_rounds + 1, _LONGEST_MS.bit_length())
        self.at_ms = self._draw(now_ms + times * self._interval_ms, times)

    def _draw_echo(self, now_ms: int) -> int | None:
        return self._draw(now_ms + int(_BEFORE_ECHO * self._interval_ms), _ECHO)

    def _bring_forward(self, at_ms: int | None) -> None:
        if at_ms is not None and self.at_ms is not None and at_ms < self.at_ms:
            self.at_ms = at_ms

    def _draw(self, now_ms: int, share: float) -> int | None:
        if not self._interval_ms:
            return None
        return now_ms + 1 + int(self._jitter.fraction() * self._interval_ms * share)
