"""Reading a store for the time away: to the end, once more where it seemed to be, and in no circle."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.effects import QueryStore
from fairway.protocol.incoming.catching_up import PageRead, Step, TimeAway

START, END, NOW = 1_000, 10_000, 5_000


def reading():
    return TimeAway(QueryStore(start_ns=START, end_ns=END, catch_up=True))


def page(*timestamps, cursor=None, **more):
    return PageRead(found=[(at, b"%d" % at) for at in timestamps], cursor=cursor, **more)


def test_the_end_is_believed_when_the_store_says_it_twice():
    away = reading()
    assert away.take(page(2_000, 3_000, cursor=b"more"), NOW) is Step.ON
    assert (away.cursor, away.start_ns) == (b"more", 2_000)
    assert away.take(page(3_500, 4_000), NOW) is Step.ON
    # Asked again is what was on the last page, and nothing that was sent since.
    assert (away.cursor, away.start_ns, away.end_ns) == (None, 3_500, NOW)
    assert away.take(page(3_500, 4_000), NOW + 1_000) is Step.DONE


def test_an_end_that_was_none_says_nothing_of_the_next_one():
    away = reading()
    assert away.take(page(2_000), NOW) is Step.ON
    assert away.take(page(2_000, cursor=b"more"), NOW) is Step.ON
    assert away.take(page(3_000, cursor=b"yet more"), NOW) is Step.ON
    assert away.take(page(), NOW) is Step.ON, "the store says for the first time that this is the end"
    assert away.take(page(3_000, 4_000), NOW) is Step.ON
    assert away.take(page(3_000, 4_000), NOW) is Step.DONE


def test_an_end_behind_which_the_store_has_shown_something_is_not_believed_at_once():
    away = reading()
    away.shown([4_500, END + 1])
    away.take(page(2_000, 3_000, cursor=b"more"), NOW)
    assert [away.take(page(3_000), NOW), away.take(page(3_000), NOW)] == [Step.ON, Step.AGAIN]
    assert away.take(page(3_000, cursor=b"more"), NOW) is Step.ON
    assert away.take(page(4_500), NOW) is Step.ON
    assert away.take(page(4_500), NOW) is Step.DONE


def test_what_was_read_ahead_or_shown_to_an_older_reading_counts_as_shown():
    older, newer = reading(), reading()
    older.shown([4_500])
    newer.go_on_from(older)
    assert [newer.take(page(2_000), NOW), newer.take(page(2_000), NOW)] == [Step.ON, Step.AGAIN]
    away = reading()
    away.shown([2_000, 3_000])
    for at in (2_000, 2_000, 3_000):
        away.take(page(at, cursor=b"%d" % at, was_taken_in=False), NOW)
    assert away.from_ns == 2_000, "it came back to what found no room"
    assert [away.take(page(2_000), NOW), away.take(page(2_000), NOW)] == [Step.ON, Step.AGAIN]


def test_an_end_behind_which_another_store_has_shown_something_is_believed_after_half_a_minute():
    away, steps, paused_s = reading(), [], 0.0
    away.shown([4_500])
    while not steps or steps[-1] is not Step.DONE:
        steps.append(away.take(page(3_000), NOW))
        paused_s += away.pause_s if steps[-1] is Step.AGAIN else 0
    assert steps == [Step.ON, *[Step.AGAIN] * 5, Step.DONE]
    assert paused_s == 31


def test_what_was_not_taken_in_whole_is_asked_for_again_after_ever_longer_pauses():
    away = reading()
    away.take(page(2_000, cursor=b"more"), NOW)
    assert away.take(page(3_000, cursor=b"yet more", was_taken_in=False), NOW) is Step.AGAIN
    # What came before its first message was taken in.
    assert (away.cursor, away.start_ns, away.from_ns, away.pause_s) == (None, 3_000, 3_000, 1)
    assert away.take(page(3_000, cursor=b"yet more"), NOW) is Step.ON


def test_what_makes_room_may_stand_pages_behind_what_found_none():
    """The store has the third page of a message that everything on the first one waits for."""
    pages = {None: (2_000, b"1"), b"1": (3_000, b"2"), b"2": (4_000, b"3"), b"3": (5_000, None)}
    away, has_room, asked, pauses = reading(), False, [], []
    for _ in range(20):
        here = away.cursor or (None if away.from_ns < 3_000 else b"%d" % (away.from_ns // 1_000 - 2))
        at, cursor = pages[here]
        asked.append(at)
        has_room |= at == 4_000
        step = away.take(page(at, cursor=cursor, was_taken_in=has_room or at > 2_000), NOW)
        if step is Step.AGAIN:
            assert away.start_ns == 2_000, "what is read ahead is not yet read"
            pauses.append(away.pause_s)
        if step is Step.DONE:
            break
    # Nothing, then one page, then three: there it was.
    assert asked[:7] == [2_000, 2_000, 3_000, 2_000, 3_000, 4_000, 5_000]
    assert pauses == [1, 2, 4]
    assert step is Step.DONE
    assert away.start_ns == 5_000


def test_a_reading_that_takes_the_place_of_another_looks_ahead_where_that_had_got_to():
    older, newer = reading(), reading()
    for at in (2_000, 2_000, 3_000, 2_000, 3_000):
        older.take(page(at, cursor=b"%d" % at, was_taken_in=False), NOW)
    assert (older.start_ns, older.from_ns) == (2_000, 3_000)
    newer.go_on_from(older)
    assert (newer.start_ns, newer.from_ns) == (START, 3_000)
    assert newer.take(page(4_000, cursor=b"4000"), NOW) is Step.ON
    assert newer.take(page(4_500, cursor=b"4500"), NOW) is Step.AGAIN
    assert newer.from_ns == START


def test_a_page_with_something_false_is_asked_for_once_more_and_no_more():
    away = reading()
    doubtful = page(2_000, cursor=b"more", is_doubtful=True)
    assert away.take(doubtful, NOW) is Step.AGAIN
    assert away.cursor is None
    assert away.take(doubtful, NOW) is Step.ON
    assert away.cursor == b"more"


def test_a_circle_is_left_where_it_closes():
    away = reading()
    cursors = [b"a", b"b", b"c", b"a"]
    steps = [away.take(page(2_000 + place, cursor=cursor), NOW) for place, cursor in enumerate(cursors)]
    assert steps == [Step.ON, Step.ON, Step.ON, Step.AGAIN]
    assert (away.cursor, away.start_ns) == (None, 2_003)


def test_a_cursor_that_leads_nowhere_any_more_is_given_up_and_it_begins_where_it_had_got():
    away = reading()
    away.take(page(2_000, cursor=b"more"), NOW)
    asked = []
    while away.cursor is not None:
        asked.append(away.cursor)
        away.failed()
    assert asked == [b"more"] * 6
    assert (away.from_ns, away.start_ns) == (2_000, 2_000)


def test_of_a_store_of_which_two_answers_of_three_get_lost_a_page_costs_seconds():
    """Of thousands of pages that are read after a day away, none may take a minute for a few lost answers."""
    dice, away, paused_s, pages = random.Random(1), reading(), 0.0, 0
    while pages < 1_000:
        if dice.random() < 0.65:
            away.failed()
            paused_s += away.pause_s
        else:
            pages += 1
            assert away.take(page(2_000 + pages, cursor=b"%d" % pages), NOW) is Step.ON
    assert paused_s / pages < 6


def test_a_store_that_never_answers_is_asked_once_a_minute_in_the_end():
    away, pauses = reading(), []
    for _ in range(100):
        away.failed()
        pauses.append(away.pause_s)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 60)


def test_a_store_of_which_every_other_answer_gets_lost_is_read_to_its_end():
    away, timestamps, seen = reading(), range(2_000, 2_040), set()
    for question in range(100):
        if question % 2:
            away.failed()
            continue
        after = away.from_ns - 1 if away.cursor is None else int(away.cursor)
        here = [at for at in timestamps if at > after][:2]
        seen.update(here)
        cursor = b"%d" % here[-1] if here[-1] < timestamps[-1] else None
        if away.take(page(*here, cursor=cursor), NOW) is Step.DONE:
            break
    assert seen == set(timestamps)
    assert question <= 2 * (20 + 1), "two questions for each of 20 pages, and for the end"


@given(
    timestamps=st.lists(st.integers(START, NOW - 1), max_size=30, unique=True).map(sorted),
    size=st.integers(1, 7),
    lies=st.lists(st.sampled_from(["true", "cut", "back", "lost"]), max_size=12),
)
def test_a_store_that_lies_for_a_while_is_read_to_its_end(timestamps, size, lies):
    away, seen, answers = reading(), set(), 0
    while True:
        lie = lies[answers] if answers < len(lies) else "true"
        answers += 1
        after = -1 if away.cursor is None else int(away.cursor)
        rest = [at for at in timestamps if away.start_ns <= at < away.end_ns and at > after]
        here = rest[:size]
        cursor = b"%d" % here[-1] if len(rest) > size else None
        if lie == "lost":
            away.failed()
            continue
        if lie == "cut":
            here, cursor = here[: len(here) // 2], None
        if lie == "back" and timestamps:
            cursor = b"%d" % timestamps[0]
        seen.update(here)
        before = away.start_ns
        step = away.take(page(*here, cursor=cursor), NOW)
        assert before <= away.start_ns <= away.end_ns
        if step is Step.DONE:
            break
        assert answers < 200
    # A store that tells the truth twice in a row at the end is believed, one that cuts twice alike is, too.
    if "cut" not in lies:
        assert seen == set(timestamps)


@given(fails_at=st.integers(0, 20))
def test_pages_that_unite_several_stores_are_read_whole_also_after_failures(fails_at):
    """One store is ahead of another on the same page: what is before the page's first message was read, not more."""
    stores = (range(START, START + 40), range(START, START + 40, 10))
    away, seen = reading(), set()
    for answer in range(60):
        if fails_at <= answer < fails_at + 3:
            away.failed()
            continue
        places = (0, 0) if away.cursor is None else tuple(map(int, away.cursor.split()))
        rests = [
            [at for at in store if away.start_ns <= at < away.end_ns and at > place]
            for store, place in zip(stores, places, strict=True)
        ]
        here = sorted({at for rest in rests for at in rest[:4]})
        reached = [rest[:4][-1] if rest else END for rest in rests]
        cursor = b"%d %d" % tuple(reached) if any(rest[4:] for rest in rests) else None
        seen.update(here)
        if away.take(page(*here, cursor=cursor), NOW) is Step.DONE:
            break
    assert seen == set(stores[0])
