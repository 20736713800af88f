"""Asking the store for the time away (RELIABLE-CHANNEL-API, "Query on connect").

The range begins where the last such query that went through ended, so that the whole time away is covered, also that of
a program that did not run: the time is persisted. It is read oldest first and to its end, also by a participant without
a past. So each message comes after what it cites and is delivered at once, and being away for any number of messages
takes the memory of one page. Read newest first, all of them would have to wait until the oldest has come, and stopping
at the first message with causal history (js-waku) leaves out what is between it and the last one known.

Each page that was taken in whole moves the beginning of the next such query, so that a program that is ended while it
reads goes on where it was.

What finds no room while the channel runs comes again, but perhaps nothing that is cited leads to what is needed first:
the messages that would lead there are those that find no room. So some time after something was turned away everything
since the last such query is read in the same way.

A store may be behind: nwaku's compare what they have every few minutes. What it did not have when it was read, others
cite; but if those have left, nobody does. So the time just before is looked at again a few times, newest first, which
costs a page each where nothing is new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.protocol.journal import Journal, Row

CAUGHT_UP: Final = "caught_up"

_MARGIN_MS: Final = 60_000
"""Clocks of senders differ, and a message reaches the store a moment after it was stamped."""
_PATIENCE_MS: Final = 120_000
"""A store that brings nothing new for this long does not keep anything from being given up."""
_LOOKS_AFTER_MS: Final = (60_000, 180_000, 600_000)
"""When to look again at what came before a store was read, after it was; the last one also says how far back."""
_READ_AGAIN_AFTER_MS: Final = 60_000
"""When to read what was said since the last time, after a message found no room: mostly room is made before."""
_MAX_TURNED_AWAY: Final = 10_000
"""WakuMessages remembered as not taken in."""
_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


class QueryOnConnect:
    """Up to when the store was asked for everything."""

    def __init__(self, options: ReliableChannelOptions, journal: Journal) -> None:
        self.history_heard = 0
        """Messages of this channel with causal history that were received, copies included."""
        self.pending = False
        """Whether there was a time away that a store has not answered for; only where a store was ever asked."""
        self._enabled = options.query_on_connect
        self._interval_ms = options.query_on_connect_interval_ms
        self._max_window_ms = options.query_on_connect_max_window_ms
        self._journal = journal
        self._last_success_ms: int | None = None
        self._succeeded = False
        self._offline_at_ms: int | None = None
        self._asked_at_ms: int | None = None
        """When the query that is under way was made, or last brought something; None if there is none."""
        self._hoped_since_ms: int | None = None
        """When a store came that may have what is missing, or last brought something; None if there is none."""
        self._looks_at_ms: tuple[int, ...] = ()
        """When to look again at the time before `_last_success_ms`."""
        self._is_settled = False
        """Whether all of these looks were made, as far as this life knows."""
        self._turned_away: OrderedDict[bytes, None] = OrderedDict()
        self._read_again_at_ms: int | None = None
        """When to read everything since the last time, for something was turned away."""

    def was_offline(self, now_ms: int) -> None:
        """Note that the node is offline, or was until now."""
        self._offline_at_ms = now_ms
        self.pending |= self._enabled and self._last_success_ms is not None

    def store_connected(self, now_ms: int) -> list[QueryStore]:
        """Return what to ask a store node that became reachable; nothing if nothing can have been missed."""
        if not self._enabled or not self._is_due(now_ms):
            return []
        self._hoped_since_ms = now_ms
        time_away = self._time_away(now_ms)
        return [time_away] if self._is_settled else [time_away, *self._look_again()]

    def _time_away(self, now_ms: int) -> QueryStore:
        self._asked_at_ms = now_ms
        self.pending = True
        start_ms = now_ms - self._max_window_ms
        if self._last_success_ms is not None and self._last_success_ms <= now_ms + _MARGIN_MS:
            # What a clock that was ahead noted tells nothing of when that was.
            start_ms = max(start_ms, min(self._last_success_ms, now_ms) - _MARGIN_MS)
        return QueryStore(
            start_ns=max(0, start_ms) * _NANOSECONDS_PER_MILLISECOND,
            end_ns=(now_ms + _MARGIN_MS) * _NANOSECONDS_PER_MILLISECOND,
            catch_up=True,
        )

    def next_deadline(self) -> int | None:
        """Return when to look again at a time that was read, or to read on; None if that is not planned."""
        planned = (*self._looks_at_ms[:1], *(() if self._read_again_at_ms is None else (self._read_again_at_ms,)))
        return min(planned, default=None)

    def due(self, now_ms: int) -> list[QueryStore]:
        """Return what to read now, if anything is due."""
        return [*self._looks_due(now_ms), *self._read_again_due(now_ms)]

    def _read_again_due(self, now_ms: int) -> list[QueryStore]:
        if self._read_again_at_ms is None or now_ms < self._read_again_at_ms:
            return []
        self._read_again_at_ms = None
        return [self._time_away(now_ms)] if self._turned_away and not self.is_under_way(now_ms) else []

    def _looks_due(self, now_ms: int) -> list[QueryStore]:
        later = tuple(at_ms for at_ms in self._looks_at_ms if at_ms > now_ms)
        if len(later) == len(self._looks_at_ms):
            return []
        self._looks_at_ms, self._is_settled = later, not later
        return self._look_again()

    def clock_went_back(self, now_ms: int) -> None:
        """Wait no longer than from now on."""
        self._looks_at_ms = tuple(sorted(min(at_ms, now_ms + _LOOKS_AFTER_MS[-1]) for at_ms in self._looks_at_ms))
        if self._read_again_at_ms is not None:
            self._read_again_at_ms = min(self._read_again_at_ms, now_ms + _READ_AGAIN_AFTER_MS)

    def is_under_way(self, now_ms: int) -> bool:
        """Return whether a store is being read for the time away, and still brings something."""
        return _is_recent(self._asked_at_ms, now_ms)

    def may_bring_more(self, now_ms: int) -> bool:
        """Return whether a store is being read that may have what is missing.

        To read once more what found no room is no reason to hope anew: what waits for something that nobody has may
        be what takes the room, and it would not be given up as long as others came.
        """
        return _is_recent(self._hoped_since_ms, now_ms)

    def turn_away(self, message_hash: bytes, now_ms: int) -> None:
        """Note that the message in a WakuMessage was not taken in, and has to come again."""
        if self._read_again_at_ms is None and self._enabled and self._last_success_ms is not None:
            self._read_again_at_ms = now_ms + _READ_AGAIN_AFTER_MS
        self._turned_away[message_hash] = None
        self._turned_away.move_to_end(message_hash)
        if len(self._turned_away) > _MAX_TURNED_AWAY:
            self._turned_away.popitem(last=False)

    def take_in(self, message_hash: bytes) -> None:
        """Note that the message in a WakuMessage was taken in."""
        self._turned_away.pop(message_hash, None)

    def was_turned_away(self, message_hash: bytes) -> bool:
        """Return whether the message in a WakuMessage came last when it could not be taken in."""
        return message_hash in self._turned_away

    def progressed(self, up_to_ns: int, now_ms: int) -> None:
        """Note that everything up to a time came, and was taken in, of what is being asked for."""
        self._asked_at_ms = now_ms
        up_to_ms = min(up_to_ns // _NANOSECONDS_PER_MILLISECOND, now_ms)
        if self._last_success_ms is None or not up_to_ms <= self._last_success_ms <= now_ms:
            self._hoped_since_ms = now_ms
            self._last_success_ms = up_to_ms
            self._journal.touch(CAUGHT_UP, "")

    def caught_up(self, end_ns: int, now_ms: int) -> None:
        """Note that everything up to ``end_ns``, the end of a query's range, was asked for and came."""
        end_ms = end_ns // _NANOSECONDS_PER_MILLISECOND
        self._succeeded = True
        self.pending = False
        self._asked_at_ms = self._hoped_since_ms = None
        self._last_success_ms = min(end_ms, now_ms)
        self._looks_at_ms, self._is_settled = tuple(now_ms + after_ms for after_ms in _LOOKS_AFTER_MS), False
        self._journal.touch(CAUGHT_UP, "")
        if self._offline_at_ms is not None and self._offline_at_ms <= end_ms - _MARGIN_MS:
            self._offline_at_ms = None

    def row(self) -> Row | None:
        """Return the state that survives a restart; None before the first query went through."""
        return None if self._last_success_ms is None else (self._last_success_ms,)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield that state as a table."""
        row = self.row()
        if row is not None:
            yield CAUGHT_UP, "", row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Restore what `rows` yielded; the present life has not asked yet."""
        for _, _, (last_success_ms,) in rows:
            self._last_success_ms = last_success_ms

    def _look_again(self) -> list[QueryStore]:
        if self._last_success_ms is None:
            return []
        start_ms = max(0, self._last_success_ms - _LOOKS_AFTER_MS[-1])
        end_ms = self._last_success_ms + _MARGIN_MS
        return [
            QueryStore(start_ns=start_ms * _NANOSECONDS_PER_MILLISECOND, end_ns=end_ms * _NANOSECONDS_PER_MILLISECOND)
        ]

    def _is_due(self, now_ms: int) -> bool:
        if not self._succeeded or self._last_success_ms is None or self._offline_at_ms is not None:
            return True
        return not 0 <= now_ms - self._last_success_ms <= self._interval_ms


def _is_recent(since_ms: int | None, now_ms: int) -> bool:
    return since_ms is not None and abs(now_ms - since_ms) <= _PATIENCE_MS
