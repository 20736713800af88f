"""Catching up: reading the messages from a store that were sent while the channel was offline.

RELIABLE-CHANNEL-API, "Query on connect". `QueryOnConnect` decides when to query a store, and for which range of time.
`TimeAway` is one reading of such a range, page by page. The channel requests the pages.

The range begins at the end of the last reading. That time is persisted, so the range also covers the time in which the
program did not run. The reading goes from the oldest message to the newest. Each message therefore arrives after the
messages that it cites and is delivered at once. The memory needed is that of one page, however long the time offline.
After each page that was accepted completely, the start of the next reading moves forward. A restarted program continues
there.

Rejected alternatives: a reading from the newest message parks all messages until the oldest arrives. js-waku stops at
the first message with causal history; it misses the messages between that one and the last known one.

A message is refused if no buffer has room for it. A request for the missing dependencies may not find it again.
`QueryOnConnect` therefore reads everything since the last reading again after `_READ_AGAIN_AFTER_MS`.

A store may be behind: nwaku stores synchronise every few minutes. `QueryOnConnect` therefore reads the last minutes
before the reading again at `_LOOKS_AFTER_MS`, newest first. Each of these readings costs one page if nothing is new.

Everything before the first message of a page has been read; a new query starts there. Invariants of a reading:

* It does not follow a cursor twice. After such a circle it queries again from the current page.
* It ends only if a second query from the last page returns no further message, because an answer may be truncated. A
  reading backwards also ends when no message is missing.
* If the store has shown a later message in another answer, the reading queries the end up to `_CONTRADICTED` more
  times. It then accepts the end: that message may have come from another store.
* A page with a message that does not match the query is requested once more and then used as it is. A store may be
  permanently damaged.

If a page does not arrive, the reading requests it again with the same cursor. After `_TRIES_BY_CURSOR` failures it
drops the cursor, because the store may have forgotten it. If a reading dropped the cursor at each failure and every
second answer got lost, it would never reach a second page. The pauses grow by 1 s each time and do not double: a lost
answer says little about the next one, and a long time offline has thousands of pages.

`Backwards`, a reading of the time in which messages are missing, requests a page again in the same way.

Both read in windows of at most 24 hours (`fairway.protocol.query_windows`). `TimeAway` reads the oldest window first:
messages of the newest window would wait for the messages that they cite. With `Delivery.ARRIVAL` the last 24 hours are
also read at once, by a second reading from the end. Most of a long time offline may be empty. So before the first of
several windows, and after an empty window, `TimeAway` requests a single message without an end time. The next window
begins at that message.

A store may permanently refuse a time of any length, such as the second of a message that is too long. The reading
skips that second and reports it. It skips another one only after a page has arrived: a store that refuses everything is
queried again.

If a page finds no room, `TimeAway` requests it again. The messages that would make room may be on later pages: if the
store missed a message, it has only the retransmission. Each time the page finds no room, `TimeAway` reads ahead, about
twice as many pages as the time before, and returns to the page. Pages read ahead do not count as read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fairway.bounded import BoundedDict
from fairway.options import Delivery, ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.protocol.journal import Journal, Row, RowReader
from fairway.protocol.query_windows import MAX_WINDOW_NS, SHORTEST_FOR_FAILURES_NS, SHORTEST_NS, WindowLength
from fairway.units import NS_PER_MS

CAUGHT_UP: Final = "caught_up"

_MARGIN_MS: Final = 60_000
"""Overlap of ranges, for the clock differences of senders and the delay of messages to the store."""
_PATIENCE_MS: Final = 120_000
"""Time without progress after which a reading no longer delays declaring messages lost."""
_LOOKS_AFTER_MS: Final = (60_000, 180_000, 600_000)
"""Delays after a reading at which the minutes before it are read again; the last is also the length of that range."""
_READ_AGAIN_AFTER_MS: Final = 60_000
"""Delay between the refusal of a message and the reading of everything since the last reading."""
_MAX_TURNED_AWAY: Final = 10_000
"""Hashes of refused WakuMessages remembered."""
_MAX_NOTED: Final = 10_000
"""Cursors remembered; a circle of more pages is not detected."""
_MAX_DOUBLINGS: Final = 16
"""Bound on reading ahead: at most 65,535 pages."""
_FIRST_PAUSE_S: Final = 1.0
_LAST_PAUSE_S: Final = 60.0
_MAX_PAGES: Final = 100_000
"""Pages of a reading backwards at most, against a store that always returns another one."""
_CONTRADICTED: Final = 5
"""Consecutive queries for an end after which the store has shown a later message."""
_TRIES_BY_CURSOR: Final = 6
"""Failures of a page after which its cursor is dropped."""
_TRIES_BY_LENGTH: Final = 3
"""Failures after which a window is shortened; refusals of the shortest window after which it is skipped."""


class QueryOnConnect:
    """When to query a store for the time offline, and for which range."""

    def __init__(self, options: ReliableChannelOptions, journal: Journal) -> None:
        self.history_heard = 0
        """Received messages of this channel with causal history, including copies."""
        self.pending = False
        """Whether a time offline has not been read completely; False before the first query."""
        self._enabled = options.query_on_connect
        self._delivers_on_arrival = options.delivery is Delivery.ARRIVAL
        self._interval_ms = options.advanced.query_on_connect_interval_ms
        self._max_window_ms = options.advanced.query_on_connect_max_window_ms
        self._journal = journal
        self._last_success_ms: int | None = None
        self.readers: dict[str, RowReader] = {CAUGHT_UP: self._row}
        self._succeeded = False
        self._offline_at_ms: int | None = None
        self._asked_at_ms: int | None = None
        """Start or last progress of the current query; None without one."""
        self._hoped_since_ms: int | None = None
        """When a store connected, or when its reading last progressed; None without a reading."""
        self._looks_at_ms: tuple[int, ...] = ()
        """When to read the time before `_last_success_ms` again."""
        self._looks_are_done = False
        """Whether all of these readings were made since the program started."""
        self._turned_away: BoundedDict[bytes, None] = BoundedDict(_MAX_TURNED_AWAY)
        self._read_again_at_ms: int | None = None
        """When to read everything since the last reading, after a message was refused or new keys came."""
        self.unread_since_ms: Callable[[int], int | None] = lambda _: None
        """Returns since when messages may have become readable by keys that came after a time (`EpochCipher`)."""
        self._keys_came_ms: int | None = None
        """When keys came after which no reading has begun and ended."""
        self._end_with_keys_ns = 0
        """End of the range of the reading that began after these keys came."""

    def heard_history(self) -> None:
        """Count a received message with causal history, or a copy of it."""
        self.history_heard += 1

    def was_offline(self, now_ms: int) -> None:
        """Note that the node is offline, or was until now."""
        self._offline_at_ms = now_ms
        self.pending |= self._enabled and self._last_success_ms is not None

    def store_connected(self, now_ms: int) -> list[QueryStore]:
        """Return the queries for a store node that became reachable; none if no message can be missing."""
        if not self._enabled or not self._is_due(now_ms):
            return []
        self._hoped_since_ms = now_ms
        time_away = self._time_away(now_ms)
        looks = [] if self._looks_are_done else self._look_again()
        return [time_away, *looks, *self._newest_window(time_away)]

    def _time_away(self, now_ms: int) -> QueryStore:
        self._asked_at_ms = now_ms
        self.pending = True
        end_ns = (now_ms + _MARGIN_MS) * NS_PER_MS
        if self._keys_came_ms is not None:
            self._end_with_keys_ns = end_ns
        return QueryStore(start_ns=self._start_ns(now_ms), end_ns=end_ns, catch_up=True)

    def _start_ns(self, now_ms: int) -> int:
        start_ms = now_ms - self._max_window_ms
        if self._last_success_ms is not None and self._last_success_ms <= now_ms + _MARGIN_MS:
            # A later time was noted while the clock was ahead, and is useless.
            unread_ms = self.unread_since_ms(self._last_success_ms)
            read_ms = self._last_success_ms if unread_ms is None else min(self._last_success_ms, unread_ms)
            start_ms = max(start_ms, min(read_ms, now_ms) - _MARGIN_MS)
        return max(0, start_ms) * NS_PER_MS

    def next_deadline(self) -> int | None:
        """Return when `due` has queries; None if none is planned."""
        if not self._looks_at_ms:
            return self._read_again_at_ms
        look_at_ms = self._looks_at_ms[0]
        return look_at_ms if self._read_again_at_ms is None else min(look_at_ms, self._read_again_at_ms)

    def due(self, now_ms: int) -> list[QueryStore]:
        """Return the queries that are due."""
        return [*self._looks_due(now_ms), *self._read_again_due(now_ms)]

    def _read_again_due(self, now_ms: int) -> list[QueryStore]:
        if self._read_again_at_ms is None or now_ms < self._read_again_at_ms:
            return []
        self._read_again_at_ms = None
        if self._keys_came_ms is not None:
            # Pages of a reading under way may have come before the keys.
            return [self._time_away(now_ms)]
        return [self._time_away(now_ms)] if self._turned_away and not self.is_under_way(now_ms) else []

    def _looks_due(self, now_ms: int) -> list[QueryStore]:
        later = tuple(at_ms for at_ms in self._looks_at_ms if at_ms > now_ms)
        if len(later) == len(self._looks_at_ms):
            return []
        self._looks_at_ms, self._looks_are_done = later, not later
        return self._look_again()

    def plan_anew(self, now_ms: int) -> None:
        """Shorten waits that are too long, after a restart or when the clock was set back."""
        self._looks_at_ms = tuple(sorted(min(at_ms, now_ms + _LOOKS_AFTER_MS[-1]) for at_ms in self._looks_at_ms))
        if self._read_again_at_ms is not None:
            self._read_again_at_ms = min(self._read_again_at_ms, now_ms + _READ_AGAIN_AFTER_MS)

    def read_until(self, now_ms: int) -> int | None:
        """Return the time up to which all messages were read or received; None before the first progress."""
        return now_ms if self._succeeded and not self.pending else self._last_success_ms

    def unread(self, now_ms: int) -> QueryStore | None:
        """Return the query for the time in which a newer snapshot may be; None if all of it was read."""
        is_read = not self._enabled or (self._succeeded and not self.pending)
        end_ns = (now_ms + _MARGIN_MS) * NS_PER_MS
        return None if is_read else QueryStore(start_ns=self._start_ns(now_ms), end_ns=end_ns)

    def start_from(self, read_from_ms: int, now_ms: int, *, again: bool) -> list[QueryStore]:
        """Skip the time before a snapshot, and return the query for the time after it; none if all of it was read.

        With ``again`` the time after the snapshot is read even if it was read before.
        """
        if again or self._last_success_ms is None or self._last_success_ms < read_from_ms:
            self._last_success_ms = read_from_ms
            self._journal.touch(CAUGHT_UP, "")
        return [self._time_away(now_ms)] if self._enabled and (again or self.pending) else []

    def is_under_way(self, now_ms: int) -> bool:
        """Return whether a reading of the time offline progressed within the last 2 minutes."""
        return _is_recent(self._asked_at_ms, now_ms)

    def may_bring_more(self, now_ms: int) -> bool:
        """Return whether a reading may still find missing messages.

        A reading of refused messages does not count. The buffer may be full of messages that wait for one that no store
        has; such readings would keep that one from being declared lost.
        """
        return _is_recent(self._hoped_since_ms, now_ms)

    def turn_away(self, message_hash: bytes, now_ms: int) -> None:
        """Note that the message in a WakuMessage was refused and must be received again."""
        if self._read_again_at_ms is None and self._enabled and self._last_success_ms is not None:
            self._read_again_at_ms = now_ms + _READ_AGAIN_AFTER_MS
        self._turned_away[message_hash] = None

    def keys_came(self, now_ms: int) -> None:
        """Read again, because messages that could not be decrypted may have become readable."""
        if self._enabled and (self._last_success_ms is not None or self.pending):
            self._keys_came_ms = self._read_again_at_ms = now_ms

    def found_room(self, message_hash: bytes) -> None:
        """Note that the message in a WakuMessage was accepted, or never will be."""
        self._turned_away.pop(message_hash, None)

    def was_turned_away(self, message_hash: bytes) -> bool:
        """Return whether the message in a WakuMessage was refused when it was last received."""
        return message_hash in self._turned_away

    def progressed(self, up_to_ns: int, now_ms: int) -> None:
        """Note that the current reading has read and accepted everything up to a time."""
        self._asked_at_ms = now_ms
        up_to_ms = min(up_to_ns // NS_PER_MS, now_ms)
        if self._last_success_ms is None or not up_to_ms <= self._last_success_ms <= now_ms:
            self._hoped_since_ms = now_ms
            self._last_success_ms = up_to_ms
            self._journal.touch(CAUGHT_UP, "")

    def caught_up(self, end_ns: int, now_ms: int) -> None:
        """Note that everything up to ``end_ns``, the end of a query's range, was read."""
        end_ms = end_ns // NS_PER_MS
        self._succeeded = True
        self.pending = False
        self._asked_at_ms = self._hoped_since_ms = None
        self._last_success_ms = min(end_ms, now_ms)
        if self._keys_came_ms is not None and end_ns >= self._end_with_keys_ns > 0:
            self._keys_came_ms, self._end_with_keys_ns = None, 0
        elif self._keys_came_ms is not None:
            # A later start reads again what this reading could not decrypt.
            self._last_success_ms = min(self._last_success_ms, self._keys_came_ms - 1)
        self._looks_at_ms, self._looks_are_done = tuple(now_ms + after_ms for after_ms in _LOOKS_AFTER_MS), False
        self._journal.touch(CAUGHT_UP, "")
        if self._offline_at_ms is not None and self._offline_at_ms <= end_ms - _MARGIN_MS:
            self._offline_at_ms = None

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield the persisted state as table, key and row."""
        row = self._row("")
        if row is not None:
            yield CAUGHT_UP, "", row

    def _row(self, _key: str) -> Row | None:
        """Return the persisted state; None before the first progress of a reading."""
        return None if self._last_success_ms is None else (self._last_success_ms,)

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Restore what `rows` yielded."""
        for _, _, (last_success_ms,) in rows:
            self._last_success_ms = last_success_ms

    def _newest_window(self, time_away: QueryStore) -> list[QueryStore]:
        """Return the query for the last 24 hours of a longer time offline, with `Delivery.ARRIVAL`."""
        end_ns = time_away.end_ns or 0
        start_ns = end_ns - MAX_WINDOW_NS
        if not self._delivers_on_arrival or start_ns <= (time_away.start_ns or 0):
            return []
        return [QueryStore(start_ns=start_ns, end_ns=end_ns)]

    def _look_again(self) -> list[QueryStore]:
        if self._last_success_ms is None:
            return []
        start_ms = max(0, self._last_success_ms - _LOOKS_AFTER_MS[-1])
        end_ms = self._last_success_ms + _MARGIN_MS
        return [QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=end_ms * NS_PER_MS)]

    def _is_due(self, now_ms: int) -> bool:
        if not self._succeeded or self._last_success_ms is None or self._offline_at_ms is not None:
            return True
        return not 0 <= now_ms - self._last_success_ms <= self._interval_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRead:
    """The result of a page."""

    found: Sequence[tuple[int, bytes]]
    """Timestamp in nanoseconds and hash of each message on it that matches the query."""
    cursor: bytes | None
    """The cursor of the next page; None on the last page."""
    is_doubtful: bool = False
    """Whether a message on it did not match the query or its hash."""
    was_taken_in: bool = True
    """Whether all messages were accepted."""


class Step(Enum):
    """The next step after a page."""

    ON = "ask on"
    AGAIN = "ask again after a pause"
    DONE = "the time away was read"


class RefusedTime(NamedTuple):
    """A time that a store permanently refuses."""

    start_ns: int
    end_ns: int
    is_left_out: bool
    """Whether the reading skips this time; otherwise it queries the time again."""


class PagedReading(ABC):
    """The position of a query by time, and the retries of its current page."""

    def __init__(self, query: QueryStore) -> None:
        self.query: Final = query
        self.end_ns = query.end_ns
        self.cursor: bytes | None = None
        """The cursor of the next request; None for a new query."""
        self._failures = 0
        """Consecutive missing answers, and refusals of the shortest window."""
        self._refusals = 0
        """Refusals of the current window since it has the shortest length."""
        self._refused_cursor: bytes | None = None
        """The cursor of the last refused request."""
        self._followed: BoundedDict[bytes, None] = BoundedDict(_MAX_NOTED)
        self._window = WindowLength()
        self._may_leave_out = True
        """Whether a page arrived since a time was skipped."""
        self._is_refusal_told = False

    @property
    def pause_s(self) -> float:
        """Seconds before the next request: 1 s longer after each failure, at most 60 s."""
        return min(_FIRST_PAUSE_S * self._failures, _LAST_PAUSE_S)

    def failed(self) -> None:
        """Note that a page did not arrive."""
        self._failures += 1
        if self._failures >= _TRIES_BY_CURSOR:
            self._ask_anew()
        if self._failures % _TRIES_BY_LENGTH == 0:
            self._shorten(SHORTEST_FOR_FAILURES_NS)

    def refused(self) -> tuple[Step, RefusedTime | None]:
        """Note that the store refused the query; return the next step.

        The second value is a time that the store permanently refuses; None if there is nothing new to report.
        """
        # The store may only have forgotten the cursor.
        is_new_cursor = self.cursor not in {None, self._refused_cursor}
        self._refused_cursor = self.cursor
        self._ask_anew()
        if is_new_cursor or self._shorten(SHORTEST_NS):
            return Step.ON, None
        self._failures += 1
        self._refusals += 1
        if self._refusals % _TRIES_BY_LENGTH:
            return Step.AGAIN, None
        start_ns, end_ns = self._range
        if self._may_leave_out:
            self._may_leave_out, self._failures = False, 0
            return self._leave_out(), RefusedTime(start_ns, end_ns, is_left_out=True)
        if self._is_refusal_told:
            return Step.AGAIN, None
        self._is_refusal_told = True
        return Step.AGAIN, RefusedTime(*self._unread, is_left_out=False)

    @property
    @abstractmethod
    def _range(self) -> tuple[int, int]:
        """Start and end of the current window, in nanoseconds."""

    @property
    @abstractmethod
    def _unread(self) -> tuple[int, int]:
        """Start and end of the time that is not read yet, in nanoseconds."""

    @abstractmethod
    def _shorten(self, shortest_ns: int) -> bool:
        """Shorten the window; return False if it has the shortest length."""

    @abstractmethod
    def _leave_out(self) -> Step:
        """Skip the current window."""

    def _came(self) -> None:
        """Note that a page arrived."""
        self._failures, self._may_leave_out, self._is_refusal_told = 0, True, False

    def _follow(self, cursor: bytes) -> bool:
        """Set the cursor of the next page; return False if it was followed before, which is a circle."""
        if cursor in self._followed:
            return False
        self._followed[cursor] = None
        self.cursor = cursor
        return True

    def _ask_anew(self) -> None:
        self.cursor = None
        self._followed.clear()


class Backwards(PagedReading):
    """One reading of a time in which messages are missing, newest first."""

    def __init__(self, query: QueryStore) -> None:
        super().__init__(query)
        self.start_ns = 0
        """The start of the current window."""
        self._unread_to_ns = query.end_ns
        """Everything from this time on was read."""
        self._pages = 0
        self._last: frozenset[bytes] | None = None
        """Message hashes of the window's last page, once the store returned one."""
        self._begin_window()

    @property
    def has_begun(self) -> bool:
        """Whether a page arrived."""
        return self._pages > 0

    @property
    def gives_way(self) -> bool:
        """Whether this reading failed so often that the other readings are tried first."""
        return self._failures >= _TRIES_BY_CURSOR

    def take(self, found: Sequence[tuple[int, bytes]], cursor: bytes | None) -> bool:
        """Note a page, with ``found`` and ``cursor`` as in `PageRead`; return whether to read on."""
        self._came()
        self._pages += 1
        timestamps_ns = [timestamp_ns for timestamp_ns, _ in found if timestamp_ns]
        if timestamps_ns and self.end_ns is not None:
            # Other messages may have the timestamp of the oldest one.
            self._unread_to_ns = min(self.end_ns, min(timestamps_ns) + 1)
        if self._pages >= _MAX_PAGES:
            return False
        if cursor is not None and self._follow(cursor):
            return True
        # The store reports the end, or its cursors form a circle.
        last, self._last = self._last, frozenset(message_hash for _, message_hash in found)
        self._ask_anew()
        if last is None or not self._last <= last:
            return True
        self._window.was_read()
        return self._go_further_back()

    def joined_with(self, other: Backwards) -> Backwards:
        """Return a new reading that covers the time of both."""
        joined = Backwards(
            QueryStore(
                start_ns=min(self.query.start_ns or 0, other.query.start_ns or 0),
                end_ns=max(self.query.end_ns or 0, other.query.end_ns or 0),
            )
        )
        joined._failures = max(self._failures, other._failures)
        joined._window = self._window
        joined._begin_window()
        return joined

    def _ask_anew(self) -> None:
        super()._ask_anew()
        self.end_ns = self._unread_to_ns

    @property
    def _first_ns(self) -> int:
        return self.query.start_ns or 0

    def _begin_window(self) -> None:
        self.start_ns = max(self._first_ns, (self.end_ns or 0) - self._window.ns)

    def _go_further_back(self) -> bool:
        """Begin the window before this one; return False at the start of the range."""
        if self.start_ns <= self._first_ns:
            return False
        self.end_ns = self._unread_to_ns = self.start_ns
        self._last, self._refusals = None, 0
        self._begin_window()
        return True

    @property
    def _range(self) -> tuple[int, int]:
        return self.start_ns, self.end_ns or 0

    @property
    def _unread(self) -> tuple[int, int]:
        return self._first_ns, self.end_ns or 0

    def _shorten(self, shortest_ns: int) -> bool:
        start_ns, end_ns = self._range
        is_shorter = self._window.refused(end_ns - start_ns, shortest_ns)
        if is_shorter:
            self._begin_window()
        return is_shorter

    def _leave_out(self) -> Step:
        return Step.ON if self._go_further_back() else Step.DONE


class NewestFirst(Backwards):
    """One reading of a time, newest first, that usually ends before its start.

    It has no windows, which would cost a query for each day without a message: the query has no start, and the caller
    stops at messages from before the time.
    """

    def _begin_window(self) -> None:
        self.start_ns = self._first_ns

    def _shorten(self, shortest_ns: int) -> bool:
        del shortest_ns
        return False


class TimeAway(PagedReading):
    """One reading of the time offline, oldest first."""

    def __init__(self, query: QueryStore) -> None:
        super().__init__(query)
        self.start_ns = query.start_ns or 0
        """Everything before this time was read and accepted."""
        self.from_ns = self.start_ns
        """The start of the next query; later than `start_ns` while reading ahead."""
        self.until_ns: int | None = None
        """The end of the current window; None for a query without an end."""
        self.is_seeking = False
        """Whether the query is for one message, the next one from `from_ns` on: there the next window begins."""
        self._can_seek = True
        self._sought_ns: int | None = None
        """`from_ns` of the last query for one message."""
        self._is_window_empty = True
        self._in_vain = 0
        """Returns to a page that found no room, minus the pages accepted since; at least 0."""
        self._ahead: int | None = None
        """Pages still to read ahead of one that found no room; None while all pages are accepted."""
        self._stood_still = 0
        """Consecutive answers without progress."""
        self._last: frozenset[bytes] | None = None
        """Message hashes of the page that the store called the last one; None if it has not, or if more followed."""
        self._latest_ns = self.start_ns
        """The latest timestamp read since the reading last returned to `start_ns`."""
        self._shown_ns = self.start_ns
        """The latest timestamp within the range in any answer of the store."""
        self._contradicted = 0
        """Consecutive times that the store reported an end before a message that it has shown."""
        self._doubted = False
        self._begin_window(may_seek=True)

    @property
    def pause_s(self) -> float:
        """Seconds before the next request; at most 60 s, longer after each failure or answer without progress."""
        if self._failures:
            return super().pause_s
        return min(_FIRST_PAUSE_S * (1 << max(0, self._stood_still - 1)), _LAST_PAUSE_S)

    def go_on_from(self, older: TimeAway) -> None:
        """Take over the state of an older reading that this one replaces, and continue its reading ahead."""
        self._in_vain = older._in_vain
        self._window = older._window
        self.shown([older._shown_ns])
        if older._ahead is not None:
            self._ahead, self.from_ns = older._ahead, max(self.start_ns, older.from_ns)
        self._begin_window(may_seek=self._ahead is None)

    def shown(self, timestamps_ns: Iterable[int]) -> None:
        """Note the timestamps of messages in an answer of the store to any query."""
        within = (at_ns for at_ns in timestamps_ns if self.end_ns is None or at_ns < self.end_ns)
        self._shown_ns = max(self._shown_ns, *within, 0)

    def take(self, page: PageRead, now_ns: int) -> Step:
        """Note the result of a page and return the next step."""
        before_ns = self.from_ns
        self._came()
        if not self.is_seeking:
            self._latest_ns = max(self._latest_ns, *(timestamp_ns for timestamp_ns, _ in page.found), 0)
        step = self._take(page, now_ns)
        if self.from_ns > before_ns:
            self._stood_still = 0
        elif step is Step.AGAIN:
            self._stood_still = min(max(self._stood_still + 1, self._in_vain), _MAX_DOUBLINGS)
        return step

    def refused(self) -> tuple[Step, RefusedTime | None]:
        """Note that the store refused the query; return the next step and a refused time, as `PagedReading` does."""
        if self.is_seeking:
            self._can_seek = False
            self._begin_window(may_seek=False)
            return Step.ON, None
        return super().refused()

    def _take(self, page: PageRead, now_ns: int) -> Step:
        """Note a page and return the next step.

        Example: of the pages A, B, C and so on, B finds no room, and `start_ns` moves to its first message. The first
        time `_ahead` is 0: B is requested again after a pause. The second time `_ahead` is 1: C is read, then B. The
        third time it is 3: C, D and E are read, then B. When B finds room, `_ahead` stays None and C follows. C moves
        `start_ns` forward and reduces `_in_vain`, so the next page that finds no room reads less ahead.
        """
        if page.is_doubtful and not self._doubted:
            self._doubted = True
            return Step.AGAIN
        self._doubted = False
        if self.is_seeking:
            return self._sought(page, now_ns)
        if page.found:
            self._is_window_empty = False
            before_ns = self.from_ns
            self._advance_to(min(timestamp_ns for timestamp_ns, _ in page.found))
            if self.from_ns > before_ns:
                # The page that seemed to be the last one was not.
                self._last, self._contradicted = None, 0
        if self._ahead is not None:
            self._ahead -= 1
        else:
            if self.from_ns > self.start_ns:
                self.start_ns, self._in_vain = self.from_ns, max(0, self._in_vain - 1)
            if not page.was_taken_in:
                self._ahead = (1 << self._in_vain) - 1
        if self._ahead == 0:
            return self._come_back()
        if page.cursor is None or (page.cursor == self.cursor and not page.found):
            return self._ended(frozenset(message_hash for _, message_hash in page.found), now_ns)
        if not self._follow(page.cursor):
            self._ask_anew()
            return Step.AGAIN
        return Step.ON

    def _sought(self, page: PageRead, now_ns: int) -> Step:
        """Begin the next window at the message that was found."""
        dated_ns = [timestamp_ns for timestamp_ns, _ in page.found if timestamp_ns]
        if not page.found or (dated_ns and self.end_ns is not None and min(dated_ns) >= self.end_ns):
            return self._ended(frozenset(), now_ns)
        if dated_ns:
            self._advance_to(min(dated_ns))
            self.start_ns = self.from_ns
        self._last, self._contradicted = None, 0
        self._begin_window(may_seek=False)
        return Step.ON

    def _advance_to(self, timestamp_ns: int) -> None:
        """Query from the first message of a page on; everything before it was read."""
        self.from_ns = max(self.from_ns, timestamp_ns if self.end_ns is None else min(timestamp_ns, self.end_ns))

    def _come_back(self) -> Step:
        """Return to the page that found no room."""
        self._in_vain = min(self._in_vain + 1, _MAX_DOUBLINGS)
        self._ahead, self.from_ns = None, self.start_ns
        self._latest_ns = self.start_ns
        self._begin_window(may_seek=False)
        return Step.AGAIN

    def _ended(self, found: frozenset[bytes], now_ns: int) -> Step:
        """Note that the store has no further page of the window."""
        is_last = self.is_seeking or self.until_ns == self.end_ns
        if self._ahead is not None:
            if is_last:
                return self._come_back()
            self._next_window()
            return Step.ON
        if not is_last and self._is_window_empty and self._last is None and self._can_seek_here:
            self._begin_window(may_seek=True)
            return Step.ON
        if self._last is not None and found <= self._last:
            if self._contradicted < _CONTRADICTED and self._has_shown_more():
                self._contradicted += 1
                self._ask_anew()
                return Step.AGAIN
            if is_last:
                return Step.DONE
            self._window.was_read()
            self._next_window()
            return Step.ON
        if is_last and self._last is None and self.end_ns is not None:
            # Messages sent from now on arrive by themselves; reading them too might never end.
            self.end_ns = max(self.start_ns, min(self.end_ns, now_ns))
            self.until_ns = None if self.is_seeking else self.end_ns
        self._last = found
        self._ask_anew()
        return Step.ON

    def _has_shown_more(self) -> bool:
        """Return whether the store has shown a message of this window later than all that were read."""
        until_ns = self.end_ns if self.is_seeking else self.until_ns
        return self._latest_ns < self._shown_ns and (until_ns is None or self._shown_ns < until_ns)

    @property
    def _can_seek_here(self) -> bool:
        return self._can_seek and self._sought_ns != self.from_ns

    def _begin_window(self, *, may_seek: bool) -> None:
        """Begin the window from `from_ns` on, or the search for the next message."""
        is_long = self.end_ns is not None and self.end_ns - self.from_ns > self._window.ns
        self.is_seeking = may_seek and is_long and self._can_seek_here
        self._is_window_empty = True
        if self.is_seeking:
            self._sought_ns, self.until_ns = self.from_ns, None
        else:
            self.until_ns = self.from_ns + self._window.ns if is_long else self.end_ns
        self._ask_anew()

    def _next_window(self) -> None:
        self.from_ns = self._range[1]
        if self._ahead is None:
            self.start_ns = self.from_ns
        self._last, self._contradicted, self._refusals = None, 0, 0
        self._begin_window(may_seek=False)

    @property
    def _range(self) -> tuple[int, int]:
        return self.from_ns, self.from_ns if self.until_ns is None else self.until_ns

    @property
    def _unread(self) -> tuple[int, int]:
        return self.start_ns, self.start_ns if self.end_ns is None else self.end_ns

    def _shorten(self, shortest_ns: int) -> bool:
        if self.is_seeking:
            self._begin_window(may_seek=False)
            return True
        start_ns, until_ns = self._range
        is_shorter = self._window.refused(until_ns - start_ns, shortest_ns)
        if is_shorter:
            self.until_ns = start_ns + self._window.ns
        return is_shorter

    def _leave_out(self) -> Step:
        self._next_window()
        return Step.ON


def _is_recent(since_ms: int | None, now_ms: int) -> bool:
    return since_ms is not None and abs(now_ms - since_ms) <= _PATIENCE_MS
