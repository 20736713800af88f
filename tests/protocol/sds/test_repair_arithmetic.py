import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.options import Profile, RepairConfig
from fairway.protocol.sds.repair import RepairBuffer
from fairway.protocol.sds.repair_times import (
    in_response_group,
    request_offset,
    response_groups_for,
    wait_after,
)
from fairway.wire.repair_hash import NIM_REPAIR, WAKU_REPAIR
from fairway.wire.sds import HistoryEntry

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "sds.json").read_text())
WAKU = VECTORS["waku_repair"]
families = st.sampled_from([WAKU_REPAIR, NIM_REPAIR])


def config_of(given_config):
    return RepairConfig(t_min_ms=given_config.get("tMin", 30_000), t_max_ms=given_config.get("tMax", 120_000))


# Known answers


def test_hashes_of_js_waku_are_eight_bytes_of_sha_256():
    for vector in WAKU["hashToInteger"]:
        assert WAKU_REPAIR.hash(vector["s"]) == int(vector["v"])
    for vector in WAKU["combined"]:
        assert WAKU_REPAIR.pair(vector["participant"], vector["messageId"]) == int(vector["v"])
    for vector in WAKU["xor"]:
        assert WAKU_REPAIR.distance(vector["a"], vector["b"]) == int(vector["v"])


def test_requests_are_made_when_js_waku_makes_them():
    for vector in WAKU["tReq"]:
        offset = request_offset(WAKU_REPAIR, vector["participant"], vector["messageId"], config_of(vector["cfg"]))
        assert vector["now"] + offset == vector["tReq"], vector


def test_answers_are_given_when_js_waku_would_give_them():
    for vector in WAKU["tResp"]:
        participant, author = vector["participant"], vector["senderId"]
        t_max_ms = config_of(vector["cfg"]).t_max_ms
        offset = WAKU_REPAIR.response_offset(participant, author, vector["messageId"], t_max_ms)
        assert vector["now"] + offset == vector["tResp"], vector


def test_response_groups_have_the_members_that_they_have_in_js_waku():
    asked = [vector for vector in WAKU["inGroup"] if vector["senderId"]]
    assert len(asked) > 20
    for vector in asked:
        names = (vector["participant"], vector["senderId"], vector["messageId"])
        assert in_response_group(WAKU_REPAIR, *names, vector["numResponseGroups"]) == vector["inGroup"], vector


@pytest.mark.parametrize("vector", VECTORS["nim_t_req"], ids=lambda v: v["participant"])
def test_requests_are_made_when_nim_sds_makes_them(vector):
    config = RepairConfig(t_min_ms=vector["t_min"], t_max_ms=vector["t_max"])
    assert request_offset(NIM_REPAIR, vector["participant"], vector["message"], config) == vector["value"]


@pytest.mark.parametrize("vector", VECTORS["nim_t_resp"], ids=lambda v: f"{v['participant']} for {v['sender']}")
def test_answers_are_given_when_nim_sds_gives_them(vector):
    names = (vector["participant"], vector["sender"], vector["message"])
    assert NIM_REPAIR.response_offset(*names, vector["t_max"]) == vector["value"]


@pytest.mark.parametrize("vector", WAKU["groups"], ids=lambda v: str(v["participants"]))
def test_there_is_a_response_group_for_every_128_participants_and_one_more(vector):
    assert response_groups_for(vector["participants"]) == vector["groups"]
    assert response_groups_for(-1) == 1


# Rules of SDS-R that both families keep
@given(families, st.text("ab", max_size=4), st.text("ab", max_size=4), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_request_lies_in_its_window(hashes, participant, message_id, t_min_ms, window_ms):
    config = RepairConfig(t_min_ms=t_min_ms, t_max_ms=t_min_ms + window_ms)
    offset = request_offset(hashes, participant, message_id, config)
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
    offsets = [request_offset(hashes, f"p{n}", "m1", RepairConfig()) for n in range(500)]
    assert len(set(offsets)) > 480
    assert 65_000 < sum(offsets) / 500 < 85_000


def test_the_wait_doubles_once_it_was_in_vain():
    assert [wait_after(40_000, asked, 0, RepairConfig()) for asked in range(4)] == [40_000, 80_000, 80_000, 80_000]


@pytest.mark.parametrize("profile", Profile)
def test_what_is_missing_is_asked_for_thirty_times_before_it_is_given_up(profile):
    sds = profile.options().sds
    for offset_ms in (sds.repair.t_min_ms, sds.repair.t_max_ms):
        waits_ms = sum(wait_after(offset_ms, asked, 0, sds.repair) for asked in range(1, 30))
        assert offset_ms + waits_ms <= sds.lost_timeout_ms + sds.repair.t_max_ms


def test_a_request_of_another_puts_the_own_off_for_longer():
    assert [wait_after(100_000, 1, heard, RepairConfig()) for heard in range(3)] == [120_000, 200_000, 200_000]


def test_who_asks_seldom_at_first_asks_seldom_again():
    config = RepairConfig(t_min_ms=600_000, t_max_ms=900_000)
    assert wait_after(700_000, 1, 0, config) == 600_000


# Buffers


def test_a_buffer_is_ordered_by_time_whatever_the_order_of_entry():
    buffer = RepairBuffer(10)
    for name, at_ms in (("c", 3_000), ("a", 1_000), ("b", 2_000)):
        assert buffer.add(HistoryEntry(name), at_ms) == (True, None)
    assert [scheduled.message_id for scheduled in buffer] == ["a", "b", "c"]
    assert buffer.next_at() == 1_000
    assert [scheduled.message_id for scheduled in buffer.due(1_500)] == ["a"]
    assert [scheduled.message_id for scheduled in buffer.due(2_500)] == ["a", "b"]
    assert [scheduled.message_id for scheduled in buffer.due(9_000, 2)] == ["a", "b"]
    assert buffer.due(999) == []


def test_an_entry_keeps_its_first_time_hint_and_author():
    buffer = RepairBuffer(10)
    entry = HistoryEntry("a", b"hint", "zoe")
    buffer.add(entry, 1_000)
    assert buffer.add(HistoryEntry("a", b"other", "bob"), 500) == (False, None)
    assert buffer.get("a").at_ms == 1_000
    assert buffer.get("a").entry == entry


def test_a_full_buffer_keeps_what_is_most_overdue():
    buffer = RepairBuffer(3)
    for number in (1, 2, 3):
        buffer.add(HistoryEntry(f"m{number}"), number * 1_000)
    assert buffer.add(HistoryEntry("m0"), 500) == (True, "m3")
    assert buffer.add(HistoryEntry("m9"), 9_000) == (False, None)
    assert [scheduled.message_id for scheduled in buffer] == ["m0", "m1", "m2"]
    assert RepairBuffer(0).add(HistoryEntry("m"), 0) == (False, None)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "move"]), st.integers(0, 9), st.integers(0, 5))))
def test_a_buffer_is_a_sorted_table(operations):
    buffer, model = RepairBuffer(5), {}
    for operation, number, at_ms in operations:
        name = f"m{number}"
        if operation == "remove":
            assert buffer.remove(name) == (model.pop(name, None) is not None)
        elif operation == "move":
            assert buffer.reschedule(name, at_ms, 1) == (name in model)
            if name in model:
                model[name] = at_ms
        elif name not in model:
            last = max(((at, other) for other, at in model.items()), default=None)
            added, evicted = buffer.add(HistoryEntry(name), at_ms)
            assert added == (len(model) < 5 or (last is not None and (at_ms, name) < last))
            if evicted is not None:
                assert last is not None
                assert evicted == last[1]
                del model[evicted]
            if added:
                model[name] = at_ms
        assert [(s.at_ms, s.message_id) for s in buffer] == sorted((at, other) for other, at in model.items())
        assert len(buffer) == len(model) <= 5
        assert all(other in buffer for other in model)
        assert buffer.next_at() == min(model.values(), default=None)
