"""Reading a long time from a store that refuses long ranges: in windows, whole, and with few queries."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.effects import QueryStore
from fairway.protocol.incoming.catching_up import Backwards, PageRead, RefusedTime, Step, TimeAway

SECOND = 1_000_000_000
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
START = 20_000 * DAY
END = START + 30 * DAY
NOW = END - 60 * SECOND


class Asked(NamedTuple):
    start_ns: int
    end_ns: int | None
    is_refused: bool

    @property
    def length_ns(self) -> int:
        return 0 if self.end_ns is None else self.end_ns - self.start_ns


class Store:
    """A store with messages at these times, which refuses longer ranges than it allows, and pages that begin with a
    message that is too long to read."""

    def __init__(self, *timestamps, longest_ns=DAY, too_long=(), needs_end=False, page=100):
        self.timestamps = sorted(timestamps)
        self.longest_ns, self.too_long, self.needs_end, self.page = longest_ns, set(too_long), needs_end, page
        self.asked = []

    def answer(self, start_ns, end_ns, *, cursor, most=100, newest_first=False):
        """Return a page, oldest first, and what leads to the next one; None: refused."""
        found = [at for at in self.timestamps if start_ns <= at and (end_ns is None or at < end_ns)]
        if newest_first:
            found = [at for at in reversed(found) if cursor is None or at < int(cursor)]
        else:
            found = [at for at in found if cursor is None or at > int(cursor)]
        some = list(itertools.takewhile(lambda at: at not in self.too_long, found[: min(most, self.page)]))
        is_refused = (
            (end_ns is not None and end_ns - start_ns > self.longest_ns)
            or (end_ns is None and self.needs_end)
            or (bool(found) and not some)
        )
        self.asked.append(Asked(start_ns, end_ns, is_refused))
        return None if is_refused else (sorted(some), b"%d" % some[-1] if len(found) > len(some) else None)

    @property
    def longest_asked_ns(self):
        return max(one.length_ns for one in self.asked)


class Reading:
    """What came of reading a store for the time away."""

    def __init__(self, store, start_ns=START, end_ns=END, *, most_queries=3_000):
        self.seen, self.refused, self.paused_s, self.progress = [], [], 0.0, [start_ns]
        self.is_done = False
        away = TimeAway(QueryStore(start_ns=start_ns, end_ns=end_ns, catch_up=True))
        for _ in range(most_queries):
            most = 1 if away.is_seeking else 100
            answer = store.answer(away.from_ns, away.until_ns, cursor=away.cursor, most=most)
            if answer is None:
                step, refused = away.refused()
                self.refused += [refused] if refused is not None else []
            else:
                found, cursor = answer
                step = away.take(PageRead(found=[(at, b"%d" % at) for at in found], cursor=cursor), NOW)
                self.seen += [at for at in found if at not in self.seen]
            assert away.start_ns >= self.progress[-1]
            self.progress.append(away.start_ns)
            if step is Step.AGAIN:
                self.paused_s += away.pause_s
            elif step is Step.DONE:
                self.is_done = True
                break


def test_thirty_days_are_read_in_windows_of_a_day_oldest_first():
    sent = [START + number * 5 * HOUR for number in range(143)]
    store = Store(*sent)
    reading = Reading(store)
    assert (reading.seen, reading.is_done, reading.refused) == (sent, True, [])
    assert store.longest_asked_ns == DAY
    assert not any(one.is_refused for one in store.asked)
    assert len(store.asked) <= 2 * 30 + 3, "each window, the same again, and where the first one begins"


def test_a_store_without_messages_is_asked_twice():
    store = Store()
    assert Reading(store).is_done
    assert len(store.asked) == 2


@pytest.mark.parametrize("sent", [[NOW - HOUR], [START + HOUR], [START + HOUR, START + 17 * DAY, NOW - 1]])
def test_days_without_messages_cost_nothing(sent):
    store = Store(*sent)
    reading = Reading(store)
    assert (reading.seen, reading.is_done) == (sent, True)
    assert len(store.asked) <= 5 * len(sent) + 2


@pytest.mark.parametrize("longest_ns", [DAY, 6 * HOUR, HOUR, 90 * SECOND])
@pytest.mark.parametrize("needs_end", [False, True], ids=["with an end or without", "with an end only"])
def test_a_window_that_is_refused_is_halved_until_it_is_not(longest_ns, needs_end):
    sent = [NOW - number * 7 * HOUR for number in range(10)][::-1]
    store = Store(*sent, longest_ns=longest_ns, needs_end=needs_end)
    reading = Reading(store, start_ns=END - 3 * DAY, most_queries=20_000)
    assert (reading.seen, reading.is_done, reading.refused) == (sent, True, [])
    refused = sum(one.is_refused for one in store.asked)
    assert refused <= 12 + len(store.asked) / 50


def test_a_second_that_is_refused_for_good_is_left_out_and_the_rest_is_read():
    sent = [START + number * HOUR for number in range(200)]
    store = Store(*sent, sent[77] + 123, too_long=[sent[77] + 123])
    reading = Reading(store)
    [refused] = reading.refused
    assert refused.is_left_out
    assert refused.start_ns <= sent[77] + 123 < refused.end_ns <= refused.start_ns + SECOND
    assert (reading.seen, reading.is_done) == (sent, True)
    assert len(store.asked) < 200


def test_a_store_that_refuses_everything_is_asked_on_and_that_is_said_once():
    store = Store(longest_ns=0, needs_end=True)
    reading = Reading(store, most_queries=100)
    left_out, all_of_it = reading.refused
    assert left_out == RefusedTime(START, left_out.end_ns, is_left_out=True)
    assert left_out.end_ns - START <= SECOND
    assert all_of_it == RefusedTime(left_out.end_ns, END, is_left_out=False)
    assert not reading.is_done
    assert reading.paused_s > 1_000
    assert max(reading.progress) == left_out.end_ns


def test_after_a_few_failures_a_shorter_time_is_asked_for_and_after_many_no_shorter_than_an_hour():
    away = TimeAway(QueryStore(start_ns=END - DAY, end_ns=END, catch_up=True))
    lengths = []
    for _ in range(40):
        assert away.until_ns is not None
        lengths.append(away.until_ns - away.from_ns)
        away.failed()
    assert lengths[:3] == [DAY] * 3
    assert lengths[3] == DAY // 2
    assert lengths[-1] == HOUR


def test_a_store_that_does_not_say_where_the_next_message_is_is_read_window_by_window():
    away = TimeAway(QueryStore(start_ns=START, end_ns=END, catch_up=True))
    assert away.is_seeking
    for _ in range(3):
        away.failed()
    assert (away.is_seeking, away.until_ns) == (False, START + DAY)


def test_a_message_without_a_time_does_not_lead_in_a_circle():
    away, windows = TimeAway(QueryStore(start_ns=START, end_ns=END, catch_up=True)), set()
    for _ in range(200):
        if away.is_seeking:
            step = away.take(PageRead(found=[(0, b"undated")], cursor=None), NOW)
        else:
            windows.add(away.from_ns)
            step = away.take(PageRead(found=[], cursor=None), NOW)
        if step is Step.DONE:
            break
    assert step is Step.DONE
    assert len(windows) == 30


@given(
    times=st.lists(st.integers(START, NOW - 1), max_size=30, unique=True),
    page=st.integers(1, 7),
    longest_ns=st.sampled_from([DAY, 5 * HOUR]),
    needs_end=st.booleans(),
    troubles=st.lists(st.sampled_from(["", "lost", "repeated", "no room"]), max_size=40),
)
def test_whatever_gets_lost_or_finds_no_room_all_is_read(times, page, longest_ns, needs_end, troubles):
    store = Store(*times, page=page, longest_ns=longest_ns, needs_end=needs_end)
    away, taken_in = TimeAway(QueryStore(start_ns=START, end_ns=END, catch_up=True)), set()
    for number in range(2_000):
        trouble = troubles[number] if number < len(troubles) else ""
        answer = store.answer(away.from_ns, away.until_ns, cursor=away.cursor, most=1 if away.is_seeking else 100)
        if trouble == "lost":
            away.failed()
            continue
        if answer is None:
            step, refused = away.refused()
            assert refused is None
            continue
        found, cursor = answer
        if trouble == "repeated" and away.cursor is not None:
            cursor = away.cursor
        has_room = trouble != "no room"
        taken_in |= set(found) if has_room else set()
        read = PageRead(found=[(at, b"%d" % at) for at in found], cursor=cursor, was_taken_in=has_room)
        step = away.take(read, NOW)
        assert all(at in taken_in for at in times if at < away.start_ns)
        if step is Step.DONE:
            break
    assert step is Step.DONE
    assert taken_in == set(times)


# Reading backwards


def read_backwards(store, start_ns, end_ns):
    back, seen, refusals = Backwards(QueryStore(start_ns=start_ns, end_ns=end_ns)), [], []
    for _ in range(2_000):
        answer = store.answer(back.start_ns, back.end_ns, cursor=back.cursor, newest_first=True)
        if answer is None:
            step, refused = back.refused()
            refusals += [refused] if refused else []
            if step is Step.DONE:
                break
            continue
        found, cursor = answer
        seen += [at for at in found[::-1] if at not in seen]
        if not back.take([(at, b"%d" % at) for at in found], cursor):
            break
    else:
        raise AssertionError("the reading has no end")
    return seen, refusals


@pytest.mark.parametrize("longest_ns", [DAY, 5 * HOUR])
def test_a_long_time_is_read_backwards_in_windows(longest_ns):
    sent = [NOW - number * 3 * HOUR for number in range(40)]
    store = Store(*sent, longest_ns=longest_ns, page=3)
    assert read_backwards(store, NOW - 5 * DAY, NOW + 1) == (sent, [])
    assert store.longest_asked_ns == DAY
