"""When to send a sync message (RELIABLE-CHANNEL-API, "Synchronization messages"; SDS, "Periodic Sync Message").

Sync messages are a shared responsibility: every participant waits a random time, and who hears another's sync message
waits anew. While there is something to tell, that time is a random part of the interval, as in RELIABLE-CHANNEL-API.
When nothing is new, each further sync message makes the wait twice as long, up to `_LONGEST_MS`, and the shortest wait
is the interval itself, so that one speaks for all: who has nothing to tell need not say so twice a minute. Whatever is
new ends this: content, a copy, a restart, or a sync message of somebody who lacks what is here. Who was told so a few
times and lacks it all the same may have no room for it, or take it for forged: he is told again every half minute.

Where sync messages have no bloom filter (`BloomPolicy`), those with news come twice as soon, and the author of the
newest message also sees to it that whoever missed it notices: until `ECHOES` further transmissions cited it, his own
or others', he speaks every few seconds.

Three things do not wait for others: a copy of a message that was received before, because its sender plainly lacks our
acknowledgement; a repair request that is due (SDS-R); and so much news that our bloom filter would forget the first of
it before we spoke.
"""

from __future__ import annotations

from typing import Final

from fairway.protocol.jitter import Jitter

AFTER_CONTENT_RECEIVED: Final = 0.5
"""Sooner, for somebody waits for an acknowledgement."""
NORMAL: Final = 1.0
_ECHO: Final = 0.12
"""Of the interval: how soon the author of the newest message cites it, unless others do."""
_BEFORE_ECHO: Final = 0.03
"""Of the interval: how long an author waits for his next message, which does the same."""
_SMALL: Final = 0.5
"""Of these times: how soon a sync message leaves that has no bloom filter, and so costs a fiftieth."""
ECHOES: Final = 3
"""Transmissions that are to cite the newest message: at 30 % loss one of them is heard in 97 % of cases."""
_LONGEST_MS: Final = 480_000
"""From this wait on it does not become longer; the random part of it may be as long again."""

_TELLINGS: Final = 10
"""How often somebody is told at once what he lacks: at 60 % loss he hears one of them in 99 % of cases."""
_TOLD_AGAIN_MS: Final = 30_000
"""Between further sync messages for him: he may answer each of them, and lack it for hours."""

_REPAIR_SPACING_MS: Final = 1_000
"""Between sync messages that only repair requests call for; many may fall due at once, and few ride on each."""
_REPAIR_BURST: Final = 20
"""Such sync messages that may follow each other so closely. Beyond them there is one for each interval: anybody can
invent messages that we miss, and must not have us transmit much more than we do without him."""


class SyncTimer:
    """The time of the next sync message."""

    def __init__(
        self, interval_ms: int, jitter: Jitter, now_ms: int, speak_after: int = 2_500, echoes: int = 0
    ) -> None:
        """``speak_after``: messages received after which to speak at once; ``echoes``: of each own message."""
        self._speak_after = speak_after
        self._echoes = echoes
        self._haste = _SMALL if echoes else NORMAL
        self._interval_ms = interval_ms
        self._jitter = jitter
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Begin anew, knowing nothing of an earlier time: in a new run, and when the clock was set back."""
        self._echoes_due = 0
        """Transmissions that are still to cite the newest message, if it is an own one."""
        self._heard = 0
        self.at_ms: int | None = None
        self._has_news = False
        self._idle_rounds = 0
        """Sync messages, own and others', since there was something to tell."""
        self._lacks_news = False
        """Whether somebody who lacks what is here was heard since we last spoke."""
        self._told = 0
        """How often we spoke to such a one since anything was new here."""
        self._spoke_ms: int | None = None
        self._repair_credit = _REPAIR_BURST * self._interval_ms
        """Time in which sync messages for repairs may be spent, an interval each."""
        self._credited_ms = now_ms
        self._restart(now_ms)

    def _restart(self, now_ms: int) -> None:
        """Begin a new wait, of somebody who may have something to tell."""
        self._owed = False
        self._begin_telling()
        self.at_ms = self._draw_echo(now_ms) if self._echoes_due else self._draw(now_ms, NORMAL)

    def send_soon(self, now_ms: int) -> None:
        """Send a sync message within an interval: after the node came back, or refused the last one."""
        self._begin_telling()
        self._bring_forward(self._draw(now_ms, NORMAL))

    def on_sent(self, now_ms: int) -> None:
        """Note that a sync message is sent now."""
        self._earn_credit(now_ms)
        if self.at_ms is not None and self.at_ms > now_ms:
            self._repair_credit = max(0, self._repair_credit - self._interval_ms)
        self._has_news = False
        self._heard = 0
        self._told += self._lacks_news
        self._lacks_news = False
        self._spoke_ms = now_ms
        self._echoed()
        self._wait_idly(now_ms)

    def for_repair_at(self, due_at: int) -> int | None:
        """Return when a repair request that is due at a time makes us speak; not in rapid succession."""
        if self.at_ms is None:
            return None
        lacking_ms = self._interval_ms - self._repair_credit
        credit_at = self._credited_ms + lacking_ms if lacking_ms > 0 else due_at
        spaced_at = due_at if self._spoke_ms is None else self._spoke_ms + _REPAIR_SPACING_MS
        return max(due_at, credit_at, spaced_at)

    def content_sent(self, now_ms: int) -> None:
        """Begin a new wait: an own message acknowledges as much as a sync message would."""
        self._has_news = False
        self._heard = 0
        self._echoes_due = self._echoes
        self._restart(now_ms)

    def fire_now(self, now_ms: int) -> None:
        """Speak now if something was received since we last spoke: we are about to leave."""
        if self._has_news and self.at_ms is not None:
            self.at_ms = min(self.at_ms, now_ms)

    def content_received(self, now_ms: int) -> None:
        """Wait no longer than the shorter factor says; a busy channel must not postpone for ever."""
        self._has_news = True
        self._begin_telling()
        self._echoes_due = 0
        self._heard += 1
        at_once = self._heard >= self._speak_after and self._interval_ms
        self._bring_forward(now_ms if at_once else self._draw(now_ms, AFTER_CONTENT_RECEIVED * self._haste))

    def copy_received(self, now_ms: int) -> None:
        """Owe an acknowledgement, which a sync message of another participant cannot replace."""
        self._has_news = True
        if not self._owed:
            self._owed = True
            self._bring_forward(self._draw(now_ms, AFTER_CONTENT_RECEIVED * self._haste))

    def sync_received(
        self, now_ms: int, *, is_behind: bool, cites_newest: bool = False, wrote_newest: bool = False
    ) -> None:
        """Let another's sync message suppress ours, unless its sender ``is_behind`` and must hear what is here.

        Nor does it if its sender ``wrote_newest``: that is said so that all notice it, and nobody acknowledged it.
        """
        if cites_newest:
            self._echoed()
        if self._owed or self._heard >= self._speak_after:
            return
        if is_behind:
            self._lacks_news = True
            rest_ms = self._interval_ms
            if self._told < _TELLINGS:
                self._idle_rounds = 0
            else:
                rest_ms = max(rest_ms, _TOLD_AGAIN_MS)
            rested_ms = 0 if self._spoke_ms is None else max(0, self._spoke_ms + rest_ms - now_ms)
            self._bring_forward(self._draw(now_ms + rested_ms, AFTER_CONTENT_RECEIVED))
        elif self._has_news:
            if not wrote_newest:
                self.at_ms = self._draw(now_ms, NORMAL * self._haste)
        else:
            self._wait_idly(now_ms)

    def _earn_credit(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._credited_ms)
        self._repair_credit = min(_REPAIR_BURST * self._interval_ms, self._repair_credit + passed_ms)
        self._credited_ms = now_ms

    def _begin_telling(self) -> None:
        """Begin anew to count what was said in vain, for there is something new to tell."""
        self._idle_rounds = 0
        self._told = 0

    def _echoed(self) -> None:
        self._echoes_due = max(0, self._echoes_due - 1)

    def _wait_idly(self, now_ms: int) -> None:
        """Begin a new wait, of somebody who has nothing new to tell: at least an interval, and ever longer."""
        self._owed = False
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

    def _draw(self, now_ms: int, factor: float) -> int | None:
        if not self._interval_ms:
            return None
        return now_ms + 1 + int(self._jitter.fraction() * self._interval_ms * factor)
