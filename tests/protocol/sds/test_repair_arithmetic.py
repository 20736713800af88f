import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.options import Profile, RepairConfig
from fairway.protocol.journal import Journal
from fairway.protocol.sds.repair import MAX_TRACKED, Repair, RepairBuffer, in_response_group, request_offset
from fairway.wire.repair_hash import NIM_REPAIR, WAKU_REPAIR
from fairway.wire.sds import HistoryEntry

families = st.sampled_from([WAKU_REPAIR, NIM_REPAIR])


# Rules of SDS-R that both families keep
@given(families, st.text("ab", max_size=4), st.text("ab", max_size=4), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_request_lies_in_its_window(hashes, participant, message_id, t_min_ms, window_ms):
    config = RepairConfig(t_min_ms=t_min_ms, t_max_ms=t_min_ms + window_ms)
    offset = request_offset(hashes, participant, message_id, *config.window())
    assert t_min_ms <= offset < t_min_ms + max(1, window_ms)


@given(families, st.text("ab", max_size=4), st.text("ab", max_size=4), st.text("ab"), st.integers(0, 10**6))
def test_an_author_answers_at_once_and_others_within_their_window(hashes, participant, author, message_id, t_max_ms):
    offset = hashes.response_offset(participant, author, message_id, t_max_ms)
    assert 0 <= offset < max(1, t_max_ms)
    assert hashes.response_offset(author, author, message_id, t_max_ms) == 0


@given(families, st.text("ab", max_size=4), st.text("ab"), st.integers(-1, 9))
def test_an_author_is_always_in_the_group_that_answers(hashes, author, message_id, groups):
    assert in_response_group(hashes, author, author, message_id, groups)


@pytest.mark.parametrize("hashes", [WAKU_REPAIR, NIM_REPAIR], ids=["waku", "nim"])
def test_groups_are_of_about_the_same_size(hashes):
    members = sum(in_response_group(hashes, f"p{n}", "author", "m1", 4) for n in range(2_000))
    assert 400 < members < 600


@pytest.mark.parametrize("hashes", [WAKU_REPAIR, NIM_REPAIR], ids=["waku", "nim"])
def test_requests_of_different_participants_are_spread(hashes):
    offsets = [request_offset(hashes, f"p{n}", "m1", *RepairConfig().window()) for n in range(500)]
    assert len(set(offsets)) > 480
    assert 65_000 < sum(offsets) / 500 < 85_000


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("participant", ["alice", "bob", "carol"])
def test_a_missing_message_is_requested_thirty_times_before_it_is_given_up(profile, participant):
    sds = profile.options().sds
    repair = Repair(participant, sds.repair, profile.repair, Journal(), bloom_bytes=0)
    repair.schedule_request(HistoryEntry("m1"), 0)
    for _ in range(30):
        now_ms = repair.requests.next_at()
        assert len(repair.take_requests(now_ms)) == 1
    assert now_ms <= sds.lost_timeout_ms + sds.repair.window()[1]


def test_a_request_of_another_participant_defers_the_own_one():
    repair = Repair("alice", RepairConfig(), WAKU_REPAIR, Journal(), bloom_bytes=0)
    repair.schedule_request(HistoryEntry("m1"), 0)
    first_ms = repair.requests.next_at() or 0
    repair.heard_request("m1", 0)
    assert repair.requests.next_at() == 2 * first_ms


def test_requests_of_others_defer_the_own_one_a_bounded_number_of_times():
    repair = Repair("alice", RepairConfig(), WAKU_REPAIR, Journal(), bloom_bytes=0)
    repair.schedule_request(HistoryEntry("m1"), 0)
    for now_ms in range(20):
        repair.heard_request("m1", now_ms)
    at_ms = repair.requests.next_at()
    repair.heard_request("m1", 60_000)
    assert repair.requests.next_at() == at_ms


# Buffers


def test_a_buffer_is_ordered_by_time_whatever_the_order_of_entry():
    buffer = RepairBuffer()
    for name, at_ms in (("c", 3_000), ("a", 1_000), ("b", 2_000)):
        assert buffer.add(HistoryEntry(name), at_ms) == (True, None)
    assert [scheduled.message_id for scheduled in buffer] == ["a", "b", "c"]
    assert buffer.next_at() == 1_000
    assert [scheduled.message_id for scheduled in buffer.due(1_500)] == ["a"]
    assert [scheduled.message_id for scheduled in buffer.due(2_500)] == ["a", "b"]
    assert [scheduled.message_id for scheduled in buffer.due(9_000, 2)] == ["a", "b"]
    assert buffer.due(999) == []


def test_an_entry_keeps_its_first_time_hint_and_author():
    buffer = RepairBuffer()
    entry = HistoryEntry("a", b"hint", "zoe")
    buffer.add(entry, 1_000)
    assert buffer.add(HistoryEntry("a", b"other", "bob"), 500) == (False, None)
    assert buffer.get("a").at_ms == 1_000
    assert buffer.get("a").entry == entry


def test_a_full_buffer_keeps_what_is_most_overdue():
    buffer = RepairBuffer()
    for number in range(MAX_TRACKED):
        buffer.add(HistoryEntry(f"m{number}"), 1_000 + number)
    assert buffer.add(HistoryEntry("earlier"), 500) == (True, f"m{MAX_TRACKED - 1}")
    assert buffer.add(HistoryEntry("later"), 9_000) == (False, None)
    assert len(buffer) == MAX_TRACKED


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "move"]), st.integers(0, 9), st.integers(0, 5))))
def test_a_buffer_is_a_sorted_table(operations):
    buffer, model = RepairBuffer(), {}
    for operation, number, at_ms in operations:
        name = f"m{number}"
        if operation == "remove":
            assert buffer.remove(name) == (model.pop(name, None) is not None)
        elif operation == "move":
            assert buffer.reschedule(name, at_ms, 1) == (name in model)
            if name in model:
                model[name] = at_ms
        elif name not in model:
            assert buffer.add(HistoryEntry(name), at_ms) == (True, None)
            model[name] = at_ms
        assert [(s.at_ms, s.message_id) for s in buffer] == sorted((at, other) for other, at in model.items())
        assert len(buffer) == len(model)
        assert all(other in buffer for other in model)
        assert buffer.next_at() == min(model.values(), default=None)
