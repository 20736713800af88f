import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.wire.sds import HistoryEntry

names = st.text("abcdef", min_size=1, max_size=3)
records = st.builds(HistoryRecord, st.integers(0, 20), names, st.none() | st.binary(max_size=2), st.sampled_from("xyz"))


def entries(sorted_records, count):
    chosen = sorted_records[-count:] if count else []
    return tuple(HistoryEntry(r.message_id, r.retrieval_hint, r.sender_id) for r in chosen)


@given(st.lists(records, max_size=40), st.integers(0, 5), st.integers(-1, 21))
def test_a_history_is_a_sorted_list_of_which_each_id_came_first(inserted, cited, not_after):
    history, model = LocalHistory(cited), {}
    for record in inserted:
        assert history.add(record) == (record.message_id not in model)
        model.setdefault(record.message_id, record)
        expected = sorted(model.values(), key=lambda r: (r.lamport, r.message_id))
        assert list(history) == expected
        assert history.last() == entries(expected, cited)
        early = [r for r in expected if r.lamport <= not_after]
        assert history.last(not_after) == entries(early, cited)
    assert len(history) == len(model)
    assert all(history.get(key) == record for key, record in model.items())
    asked = tuple(HistoryEntry(name) for name in ("a", "zz", "b", "a", "q"))
    assert history.missing_from(asked) == [e for e in asked if e.message_id not in model]


@given(st.data())
def test_what_is_missing_does_not_depend_on_what_was_asked_before(data):
    """Consecutive messages cite overlapping stretches of one log, each with gaps and strangers of its own."""
    history = LocalHistory(0)
    for number in data.draw(st.sets(st.integers(0, 60), min_size=40)):
        history.add(HistoryRecord(number, f"m{number}", None, "alice"))
    for _ in range(4):
        start, length = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 40))
        asked = [HistoryEntry(f"m{number}") for number in range(start, start + length)]
        if data.draw(st.booleans()):
            asked = [entry for entry in asked if entry.message_id in history]
        if asked and data.draw(st.booleans()):
            asked[data.draw(st.integers(0, len(asked) - 1))] = HistoryEntry("a stranger")
        expected = [entry for entry in asked if entry.message_id not in history]
        assert history.missing_from(tuple(asked)) == expected


@pytest.mark.parametrize("order", ["ascending", "descending", "random", "two interleaved"])
def test_thousands_of_records_stay_in_order_whatever_the_order_of_insertion(order):
    rng = random.Random(order)
    expected = [HistoryRecord(n // 3, f"{n % 3}-{rng.randrange(10**9)}", None, "alice") for n in range(10_000)]
    expected.sort()
    inserted = list(expected)
    if order == "descending":
        inserted.reverse()
    elif order == "random":
        rng.shuffle(inserted)
    elif order == "two interleaved":
        inserted = [r for pair in zip(expected[:5_000], expected[5_000:], strict=True) for r in pair]
    history = LocalHistory(200)
    for count, record in enumerate(inserted, start=1):
        history.add(record)
        if count % 1_000 == 0:
            so_far = sorted(inserted[:count])
            assert history.last() == entries(so_far, 200)
            middle = so_far[count // 2].lamport
            assert history.last(middle) == entries([r for r in so_far if r.lamport <= middle], 200)
    assert list(history) == expected


def test_the_newest_are_found_across_the_borders_of_chunks():
    history = LocalHistory(2_500)
    everything = [HistoryRecord(n, f"m{n}", None, "alice") for n in range(5_000)]
    for record in everything:
        history.add(record)
    assert history.last() == entries(everything, 2_500)
    assert history.last(4_000) == entries(everything[:4_001], 2_500)
    history.add(HistoryRecord(10, "late", None, "bob"))
    assert history.last() == entries(everything, 2_500)


def test_equal_timestamps_are_ordered_by_the_code_points_of_the_id():
    history = LocalHistory(10)
    for name in ("bbb", "aaa", "AAA", "a-b", "ab", "Zz", "10", "9", "\U0010ffff\U0010ffff", "ä"):
        history.add(HistoryRecord(5, name, None, "alice"))
    expected = ["10", "9", "AAA", "Zz", "a-b", "aaa", "ab", "bbb", "ä", "\U0010ffff\U0010ffff"]
    assert [record.message_id for record in history] == expected
    assert [entry.message_id for entry in history.last(5)] == expected
    assert history.last(4) == ()
