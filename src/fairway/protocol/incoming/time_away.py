"""Reading a store for the time away, page after page, also one that does not say how it is.

The pages come oldest first. What is before the first message of a page was read; so far has the reading got, and there
it begins again when it has to. Invariants: a store that leads in a circle is not followed; a reading has ended only
when the store, asked again from the last page on, brings nothing that this page did not have, for an answer may be cut
short; a page with a message that is not what was asked for is asked for once more, and then taken for what it is,
because a store may have been damaged for good.

A page that did not come is asked for again by its cursor: where every other answer gets lost, a reading that began anew
each time would never reach a second page. A store may have forgotten where a cursor leads, so that one which led
nowhere a few times is given up.

A page that finds no room is asked for again. What would make room may stand behind it: where a store missed a message,
it has only what its sender transmitted later. So each time in vain the reading looks further ahead, twice as many pages
as the time before, and comes back; what is read ahead is not yet read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.protocol.effects import QueryStore

_MAX_NOTED: Final = 10_000
"""Cursors remembered; a circle of more pages is not noticed."""
_MAX_DOUBLINGS: Final = 16
"""Look no further ahead than 65,535 pages."""
_FIRST_PAUSE_S: Final = 1.0
_LAST_PAUSE_S: Final = 60.0
_TRIES_BY_CURSOR: Final = 3
"""How often a page that does not come is asked for by the cursor that led to it."""


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


class TimeAway:
    """One reading of the time away."""

    def __init__(self, query: QueryStore) -> None:
        self.query: Final = query
        self.start_ns = query.start_ns or 0
        """Everything before was read, and taken in."""
        self.from_ns = self.start_ns
        """Where to ask from; later than `start_ns` while looking ahead."""
        self.end_ns = query.end_ns
        self.cursor: bytes | None = None
        """What to ask the next page with; None to ask from `from_ns` on."""
        self._in_vain = 0
        """How often there was no room, and looking ahead made none; one less for each page that was taken in since."""
        self._ahead: int | None = None
        """Pages still to look at behind one that found no room; None while all were taken in."""
        self._stood_still = 0
        """Answers in a row that led nowhere, or did not come."""
        self._failures = 0
        """Answers in a row that did not come."""
        self._followed: OrderedDict[bytes, None] = OrderedDict()
        self._last: frozenset[bytes] | None = None
        """What was on the page that the store called the last one; None before it did."""
        self._doubted = False

    @property
    def pause_s(self) -> float:
        """How long to wait before asking again: ever longer."""
        return min(_FIRST_PAUSE_S * (1 << max(0, self._stood_still - 1)), _LAST_PAUSE_S)

    def go_on_from(self, older: TimeAway) -> None:
        """Look ahead where an older reading, which this one replaces, had got to."""
        self._in_vain = older._in_vain
        if older._ahead is not None:
            self._ahead, self.from_ns = older._ahead, max(self.start_ns, older.from_ns)

    def failed(self) -> None:
        """Note that a page did not come."""
        self._stood_still = min(self._stood_still + 1, _MAX_DOUBLINGS)
        self._failures += 1
        if self._failures >= _TRIES_BY_CURSOR:
            self._ask_anew()

    def take(self, page: PageRead, now_ns: int) -> Step:
        """Note what a page brought, and return what to do next."""
        before_ns, self._failures = self.from_ns, 0
        step = self._take(page, now_ns)
        if self.from_ns > before_ns:
            self._stood_still = 0
        elif step is Step.AGAIN:
            self._stood_still = min(max(self._stood_still + 1, self._in_vain), _MAX_DOUBLINGS)
        return step

    def _take(self, page: PageRead, now_ns: int) -> Step:
        if page.is_doubtful and not self._doubted:
            self._doubted = True
            return Step.AGAIN
        self._doubted = False
        if page.found:
            begins_ns = min(timestamp_ns for timestamp_ns, _ in page.found)
            self.from_ns = max(self.from_ns, begins_ns if self.end_ns is None else min(begins_ns, self.end_ns))
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
        if page.cursor in self._followed:
            self._ask_anew()
            return Step.AGAIN
        self._followed[page.cursor] = None
        if len(self._followed) > _MAX_NOTED:
            self._followed.popitem(last=False)
        self.cursor = page.cursor
        return Step.ON

    def _come_back(self) -> Step:
        """Begin again with the page that found no room."""
        self._in_vain = min(self._in_vain + 1, _MAX_DOUBLINGS)
        self._ahead, self.from_ns = None, self.start_ns
        self._ask_anew()
        return Step.AGAIN

    def _ended(self, found: frozenset[bytes], now_ns: int) -> Step:
        if self._ahead is not None:
            return self._come_back()
        if self._last is not None and found <= self._last:
            return Step.DONE
        if self._last is None and self.end_ns is not None:
            # What is sent from now on is heard, and would keep the reading from ever coming to an end.
            self.end_ns = max(self.start_ns, min(self.end_ns, now_ns))
        self._last = found
        self._ask_anew()
        return Step.ON

    def _ask_anew(self) -> None:
        self.cursor = None
        self._followed.clear()
