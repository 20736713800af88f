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
