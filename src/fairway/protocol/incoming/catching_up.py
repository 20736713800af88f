"""Catching up: reading from a store what was said in the time away (RELIABLE-CHANNEL-API, "Query on connect").

`QueryOnConnect` says when to ask a store, and for which range of time. `TimeAway` is one reading of such a range, page
after page; the shell asks for the pages.

The range begins where the last reading ended, so that the whole time away is covered, also that of a program that did
not run: the time is persisted. It is read oldest first and to its end. So each message comes after what it cites and is
delivered at once, and the time away costs the memory of one page, however long it was. Read newest first, all messages
would have to wait until the oldest has come. To stop at the first message with causal history, as js-waku does, leaves
out what is between it and the last one known. Each page that was taken in whole moves the beginning of the next
reading, so that a program that ends while it reads goes on where it was.

A message that finds no room while the channel runs comes again, but perhaps nothing that is cited leads to what is
needed first. So some time after a message was turned away, everything since the last reading is read once more.

A store may be behind: nwaku's compare what they have every few minutes. What a store lacks when it is read, others
cite, unless they have left. So the time just before is looked at again a few times, newest first, which costs a page
each where nothing is new.

The pages of a reading come oldest first. What is before the first message of a page was read; there the reading begins
again when it has to. It keeps these invariants:

* A store that leads in a circle is not followed. It is asked anew from the page on where that happened.
* A reading has ended only when the store, asked again from the last page on, brings nothing that this page did not
  have, for an answer may be cut short. A reading backwards may end without that once nothing is missing.
* An end of the time away is asked about a few times more while the store has shown, in answer to another query, what
  comes behind it. In the end it is believed: that may have come from another store.
* A page with a message that is not what was asked for is asked for once more. Then it is taken for what it is, for a
  store may be damaged for good.

A page that did not come is asked for again by its cursor: where every other answer gets lost, a reading that began anew
each time would never reach a second page. A store may have forgotten where a cursor leads, so that a cursor that led
nowhere a few times is given up. The pauses grow by a second each time, and do not double: an answer that got lost says
little of the next one, and of a time of thousands of pages no page may cost a minute.

A reading of the time in which messages are missing (`Backwards`) asks for a page again in the same way. If it began
anew it would have ever more to read, and where answers get lost it would not reach what was sent long ago.

The time is read in windows of at most 24 hours (`fairway.protocol.query_windows`), the oldest first. To read
the newest first would deliver nothing sooner, because its messages wait for those that they cite. Only an application
that gets messages as they arrive (`Delivery.ARRIVAL`) gets the last 24 hours at once, by a second reading from the end.
A time away of 30 days may be empty for 29. So before the first of several windows, and after an empty one, the store is
asked for one message from there on, without an end. The next window begins at that message.

A store may refuse a time for good, whatever the length of the window, such as one with a message that is too long to
read. The reading then leaves out that second, and says so. It leaves out another one only after a page came in between:
a store that refuses everything is asked again.

A page that finds no room is asked for again. What would make room may stand behind it: where a store missed a message,
it has only what its sender transmitted later. So each time that the page finds no room the reading looks further ahead,
twice as many pages as the time before, and comes back. What is read ahead does not count as read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from fairway.bounded import BoundedDict
from fairway.options import Delivery, ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.protocol.journal import Journal, Row
from fairway.protocol.query_windows import MAX_WINDOW_NS, SHORTEST_FOR_FAILURES_NS, SHORTEST_NS, WindowLength
from fairway.units import NS_PER_MS

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
_MAX_NOTED: Final = 10_000
"""Cursors remembered; a circle of more pages is not noticed."""
_MAX_DOUBLINGS: Final = 16
"""Look no further ahead than 65,535 pages."""
_FIRST_PAUSE_S: Final = 1.0
_LAST_PAUSE_S: Final = 60.0
_MAX_PAGES: Final = 100_000
"""Most pages of a reading backwards, against a store that always returns a further one."""
_CONTRADICTED: Final = 5
"""How often in a row an end is not believed behind which the store has shown something."""
_TRIES_BY_CURSOR: Final = 6
"""How often a page that does not come is asked for by the cursor that led to it."""
_TRIES_BY_LENGTH: Final = 3
"""How often a time is asked for, whose page does not come or is refused, before a shorter one is, or it is left out."""


class QueryOnConnect:
    """When to ask a store for the time away, and from when on."""

    def __init__(self, options: ReliableChannelOptions, journal: Journal) -> None:
        self.history_heard = 0
        """Messages of this channel with causal history that were received, copies included."""
        self.pending = False
        """Whether there was a time away that a store has not answered for; only where a store was ever asked."""
        self._enabled = options.query_on_connect
        self._delivers_on_arrival = options.delivery is Delivery.ARRIVAL
        self._interval_ms = options.advanced.query_on_connect_interval_ms
        self._max_window_ms = options.advanced.query_on_connect_max_window_ms
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
        self._looks_are_done = False
        """Whether all of these looks were made, as far as this life knows."""
        self._turned_away: BoundedDict[bytes, None] = BoundedDict(_MAX_TURNED_AWAY)
        self._read_again_at_ms: int | None = None
        """When to read everything since the last time, for something was turned away."""

    def heard_history(self) -> None:
        """Count a message with causal history that was received, or came again."""
        self.history_heard += 1

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
        looks = [] if self._looks_are_done else self._look_again()
        return [time_away, *looks, *self._newest_window(time_away)]

    def _time_away(self, now_ms: int) -> QueryStore:
        self._asked_at_ms = now_ms
        self.pending = True
        start_ms = now_ms - self._max_window_ms
        if self._last_success_ms is not None and self._last_success_ms <= now_ms + _MARGIN_MS:
            # What a clock that was ahead noted tells nothing of when that was.
            start_ms = max(start_ms, min(self._last_success_ms, now_ms) - _MARGIN_MS)
        return QueryStore(
            start_ns=max(0, start_ms) * NS_PER_MS,
            end_ns=(now_ms + _MARGIN_MS) * NS_PER_MS,
            catch_up=True,
        )

    def next_deadline(self) -> int | None:
        """Return when to look again at a time that was read, or to read on; None if that is not planned."""
        if not self._looks_at_ms:
            return self._read_again_at_ms
        look_at_ms = self._looks_at_ms[0]
        return look_at_ms if self._read_again_at_ms is None else min(look_at_ms, self._read_again_at_ms)

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
        self._looks_at_ms, self._looks_are_done = later, not later
        return self._look_again()

    def plan_anew(self, now_ms: int) -> None:
        """Wait no longer than from now on."""
        self._looks_at_ms = tuple(sorted(min(at_ms, now_ms + _LOOKS_AFTER_MS[-1]) for at_ms in self._looks_at_ms))
        if self._read_again_at_ms is not None:
            self._read_again_at_ms = min(self._read_again_at_ms, now_ms + _READ_AGAIN_AFTER_MS)

    def is_under_way(self, now_ms: int) -> bool:
        """Return whether a store is being read for the time away, and still brings something."""
        return _is_recent(self._asked_at_ms, now_ms)

    def may_bring_more(self, now_ms: int) -> bool:
        """Return whether a store is being read that may have what is missing.

        To read messages once more that found no room does not count: what waits for a message that no store has may
        be what takes the room, and it would not be given up as long as others came.
        """
        return _is_recent(self._hoped_since_ms, now_ms)

    def turn_away(self, message_hash: bytes, now_ms: int) -> None:
        """Note that the message in a WakuMessage was not taken in, and has to come again."""
        if self._read_again_at_ms is None and self._enabled and self._last_success_ms is not None:
            self._read_again_at_ms = now_ms + _READ_AGAIN_AFTER_MS
        self._turned_away[message_hash] = None

    def found_room(self, message_hash: bytes) -> None:
        """Note that the message in a WakuMessage need not come again: it was taken in, or never will be."""
        self._turned_away.pop(message_hash, None)

    def was_turned_away(self, message_hash: bytes) -> bool:
        """Return whether the message in a WakuMessage came last when it could not be taken in."""
        return message_hash in self._turned_away

    def progressed(self, up_to_ns: int, now_ms: int) -> None:
        """Note that everything up to a time came, and was taken in, of what is being asked for."""
        self._asked_at_ms = now_ms
        up_to_ms = min(up_to_ns // NS_PER_MS, now_ms)
        if self._last_success_ms is None or not up_to_ms <= self._last_success_ms <= now_ms:
            self._hoped_since_ms = now_ms
            self._last_success_ms = up_to_ms
            self._journal.touch(CAUGHT_UP, "")

    def caught_up(self, end_ns: int, now_ms: int) -> None:
        """Note that everything up to ``end_ns``, the end of a query's range, was asked for and came."""
        end_ms = end_ns // NS_PER_MS
        self._succeeded = True
        self.pending = False
        self._asked_at_ms = self._hoped_since_ms = None
        self._last_success_ms = min(end_ms, now_ms)
        self._looks_at_ms, self._looks_are_done = tuple(now_ms + after_ms for after_ms in _LOOKS_AFTER_MS), False
        self._journal.touch(CAUGHT_UP, "")
        if self._offline_at_ms is not None and self._offline_at_ms <= end_ms - _MARGIN_MS:
            self._offline_at_ms = None

    def row(self, _table: str = CAUGHT_UP, _key: str = "") -> Row | None:
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

    def _newest_window(self, time_away: QueryStore) -> list[QueryStore]:
        """Return the query for the end of a long time away, if the application gets messages as they arrive."""
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
    """What a page brought."""

    found: Sequence[tuple[int, bytes]]
    """Timestamp in nanoseconds and hash of each message on it that was asked for."""
    cursor: bytes | None
    """What leads to the next page."""
    is_doubtful: bool = False
    """Whether something on it was not what was asked for, or not what its hash is of."""
    was_taken_in: bool = True
    """Whether there was room for everything."""


class Step(Enum):
    """What to do after a page."""

    ON = "ask on"
    AGAIN = "ask again after a pause"
    DONE = "the time away was read"


class RefusedTime(NamedTuple):
    """A time for which a store refuses queries of any length."""

    start_ns: int
    end_ns: int
    is_left_out: bool
    """Whether the reading goes on behind it; else the store is asked again."""


class PagedReading(ABC):
    """A query by time of which pages are left: where it is, and how a page that did not come is asked for again."""

    def __init__(self, query: QueryStore) -> None:
        self.query: Final = query
        self.end_ns = query.end_ns
        self.cursor: bytes | None = None
        """What to ask the next page with; None to ask anew."""
        self._failures = 0
        """Answers in a row that did not come, or refused a time of the shortest length."""
        self._refusals = 0
        """How often the store refused the time that is asked for now, which is of the shortest length."""
        self._refused_cursor: bytes | None = None
        """The cursor with which the store refused a page last."""
        self._followed: BoundedDict[bytes, None] = BoundedDict(_MAX_NOTED)
        self._window = WindowLength()
        self._may_leave_out = True
        """Whether a page came since a time was left out."""
        self._is_refusal_told = False

    @property
    def pause_s(self) -> float:
        """How long to wait before asking again: ever longer."""
        return min(_FIRST_PAUSE_S * self._failures, _LAST_PAUSE_S)

    def failed(self) -> None:
        """Note that a page did not come."""
        self._failures += 1
        if self._failures >= _TRIES_BY_CURSOR:
            self._ask_anew()
        if self._failures % _TRIES_BY_LENGTH == 0:
            self._shorten(SHORTEST_FOR_FAILURES_NS)

    def refused(self) -> tuple[Step, RefusedTime | None]:
        """Note that the store refused the query; return what to do next.

        The second value is a time that the store refuses for good, when this shows one.
        """
        # The first time, perhaps it has only forgotten where the cursor leads.
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
        """The time that is asked for now."""

    @property
    @abstractmethod
    def _unread(self) -> tuple[int, int]:
        """The time that is not read yet."""

    @abstractmethod
    def _shorten(self, shortest_ns: int) -> bool:
        """Ask for a shorter time; return False if the present one is the shortest."""

    @abstractmethod
    def _leave_out(self) -> Step:
        """Pass over the time that is asked for now."""

    def _came(self) -> None:
        """Note that a page came."""
        self._failures, self._may_leave_out, self._is_refusal_told = 0, True, False

    def _follow(self, cursor: bytes) -> bool:
        """Go on to the next page; return whether this leads on, and not in a circle."""
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
        """Where the window begins that is read now."""
        self._unread_to_ns = query.end_ns
        """Everything from there on was read."""
        self._pages = 0
        self._last: frozenset[bytes] | None = None
        """What was on the page that led no further; None before there was one."""
        self._begin_window()

    @property
    def has_begun(self) -> bool:
        """Whether a page came."""
        return self._pages > 0

    @property
    def gives_way(self) -> bool:
        """Whether the store may answer other questions and not this one."""
        return self._failures >= _TRIES_BY_CURSOR

    def take(self, found: Sequence[tuple[int, bytes]], cursor: bytes | None) -> bool:
        """Note a page, its messages as in `PageRead`, and what leads to the next one; return whether to read on."""
        self._came()
        self._pages += 1
        timestamps_ns = [timestamp_ns for timestamp_ns, _ in found if timestamp_ns]
        if timestamps_ns and self.end_ns is not None:
            # Others may have been sent at the same time as the last message.
            self._unread_to_ns = min(self.end_ns, min(timestamps_ns) + 1)
        if self._pages >= _MAX_PAGES:
            return False
        if cursor is not None and self._follow(cursor):
            return True
        # The store says that this is the end, or leads in a circle.
        last, self._last = self._last, frozenset(message_hash for _, message_hash in found)
        self._ask_anew()
        if last is None or not self._last <= last:
            return True
        self._window.was_read()
        return self._go_further_back()

    def joined_with(self, other: Backwards) -> Backwards:
        """Return a reading of the time of both, of which nothing is read."""
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
        """Begin with the window before this one; return False if there is none."""
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


class TimeAway(PagedReading):
    """One reading of the time away."""

    def __init__(self, query: QueryStore) -> None:
        super().__init__(query)
        self.start_ns = query.start_ns or 0
        """Everything before was read, and taken in."""
        self.from_ns = self.start_ns
        """Where to ask from; later than `start_ns` while looking ahead."""
        self.until_ns: int | None = None
        """Where the window ends that is read now; None to ask without an end."""
        self.is_seeking = False
        """Whether one message is asked for, the next one from `from_ns` on: there the next window begins."""
        self._can_seek = True
        self._sought_ns: int | None = None
        """Where a message was asked for last."""
        self._is_window_empty = True
        self._in_vain = 0
        """How often there was no room, and looking ahead made none; one less for each page that was taken in since."""
        self._ahead: int | None = None
        """Pages still to look at behind one that found no room; None while all were taken in."""
        self._stood_still = 0
        """Answers in a row that led nowhere."""
        self._last: frozenset[bytes] | None = None
        """What was on the page that the store called the last one; None before it did, and once there was more."""
        self._latest_ns = self.start_ns
        """When the latest message was sent of those read since it came back to `start_ns` last."""
        self._shown_ns = self.start_ns
        """When the latest message of that time was sent that the store has shown in any answer."""
        self._contradicted = 0
        """How often in a row the store called something the end behind which it has shown more."""
        self._doubted = False
        self._begin_window(may_seek=True)

    @property
    def pause_s(self) -> float:
        """How long to wait before asking again: ever longer."""
        if self._failures:
            return super().pause_s
        return min(_FIRST_PAUSE_S * (1 << max(0, self._stood_still - 1)), _LAST_PAUSE_S)

    def go_on_from(self, older: TimeAway) -> None:
        """Look ahead where an older reading, which this one replaces, had got to, and know what that was shown."""
        self._in_vain = older._in_vain
        self._window = older._window
        self.shown([older._shown_ns])
        if older._ahead is not None:
            self._ahead, self.from_ns = older._ahead, max(self.start_ns, older.from_ns)
        self._begin_window(may_seek=self._ahead is None)

    def shown(self, timestamps_ns: Iterable[int]) -> None:
        """Note when messages were sent that the store has, which an answer to any query has shown."""
        within = (at_ns for at_ns in timestamps_ns if self.end_ns is None or at_ns < self.end_ns)
        self._shown_ns = max(self._shown_ns, *within, 0)

    def take(self, page: PageRead, now_ns: int) -> Step:
        """Note what a page brought, and return what to do next."""
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
        """Note that the store refused the query; return what to do next, and the time that it refuses for good."""
        if self.is_seeking:
            self._can_seek = False
            self._begin_window(may_seek=False)
            return Step.ON, None
        return super().refused()

    def _take(self, page: PageRead, now_ns: int) -> Step:
        """Note a page, and return what to do next.

        An example: of the pages A, B, C and so on, B finds no room, and `start_ns` moves to its first message. The
        first time nothing is read ahead: `_ahead` is 0, so that B is asked for again after a pause. The second time
        `_ahead` is 1: C is read, which makes it 0, and then B. The third time it is 3: C, D and E are read, and then B.
        When B finds room, `_ahead` stays None and C comes next. C moves `start_ns` on, so that less is read ahead of
        the next page that finds no room.
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
                # What seemed to be the end was none, and says nothing of the next one.
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
        """Note the next message that the store has, where the next window begins."""
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
        """Ask from the first message of a page on; what is before it was read."""
        self.from_ns = max(self.from_ns, timestamp_ns if self.end_ns is None else min(timestamp_ns, self.end_ns))

    def _come_back(self) -> Step:
        """Begin again with the page that found no room."""
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
            # What is sent from now on is heard, and would keep the reading from ever coming to an end.
            self.end_ns = max(self.start_ns, min(self.end_ns, now_ns))
            self.until_ns = None if self.is_seeking else self.end_ns
        self._last = found
        self._ask_anew()
        return Step.ON

    def _has_shown_more(self) -> bool:
        """Return whether the store has something later than all that was read, up to the end of the window."""
        until_ns = self.end_ns if self.is_seeking else self.until_ns
        return self._latest_ns < self._shown_ns and (until_ns is None or self._shown_ns < until_ns)

    @property
    def _can_seek_here(self) -> bool:
        return self._can_seek and self._sought_ns != self.from_ns

    def _begin_window(self, *, may_seek: bool) -> None:
        """Ask for what was sent in the next 24 hours, or for the message that comes next."""
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
