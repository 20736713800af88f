"""js-waku's channel traces replayed step by step; and spoilt, to see that every difference is noticed and named."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.report import Check

from fairway.options import SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesMissing
from fairway.protocol.sds.repair import RepairBuffer
from fairway.wire.bloom import WAKU_BLOOM, BloomParameters
from fairway.wire.sds import HistoryEntry, SdsMessage
from js_waku import actions
from js_waku.actions import sweep_outgoing
from js_waku.channel import JsWakuChannel
from js_waku.faults import Fault
from js_waku.history import JsBloom
from js_waku.repairing import JsRepairBuffer
from js_waku.traces import check_traces

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = ("conformance/js_waku.json", "traces_js_waku.json")
START_MS = 1_700_000_000_000
# The first takes 10,000 messages to see; the others show there in events of js-waku's repair buffers alone.
NOT_IN_TRACES = {Fault.FILTER_NEVER_ROLLED, Fault.UNBOUNDED, Fault.NEWEST_STAYS}


@cache
def traces() -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for name in FILES for trace in json.loads((VECTORS / name).read_bytes())["traces"]}


NAMES = sorted(traces())


def replay(*changed: Any) -> list[Check]:
    return list(check_traces(list(changed), {}))


def failures(*changed: Any) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in replay(*changed) if not check.ok]


@cache
def checks_of(name: str) -> list[Check]:
    return replay(traces()[name])


def departures(name: str) -> dict[str, str]:
    return {check.name: check.differs_on_purpose for check in checks_of(name) if check.differs_on_purpose}


def with_step(name: str, index: int, **fields: Any) -> dict[str, Any]:
    trace = copy.deepcopy(traces()[name])
    trace["steps"][index] |= fields
    return trace


def one_step(step: Any, **options: Any) -> dict[str, Any]:
    return {"name": "t", "start_ms": START_MS, "channels": {"bob": options}, "steps": [step]}


@pytest.mark.parametrize("name", NAMES)
def test_every_trace_comes_out_byte_for_byte_and_in_order(name: str):
    checks = checks_of(name)
    assert [check for check in checks if not check.ok] == []
    assert len(checks) > 5 * sum(step["op"] != "clock" for step in traces()[name]["steps"])


def test_every_known_fault_of_js_waku_shows_in_some_trace():
    told = " ".join(reason for name in NAMES for reason in departures(name).values())
    assert {fault for fault in Fault if fault.value not in told} == NOT_IN_TRACES


def test_steps_that_fairway_takes_otherwise_are_named_with_the_fault():
    found = departures("lost-timeout")
    name, reason = next(iter(found.items()))
    assert name.startswith("lost-timeout: step 6 sweep_in by bob: fairway itself differs in events, ")
    assert reason == f"{Fault.DEPENDANTS_DROPPED.value}; also: {Fault.EMPTY_REPORT.value}"
    follows = [reason for name, reason in found.items() if "step 7 recv m1 by bob" in name]
    assert follows == ["follows from an earlier step: dependants dropped"]


def test_a_step_is_explained_by_its_own_faults_alone():
    released = [reason for name, reason in departures("missing-dependency-then-sweep").items() if "step 6" in name]
    assert released == [Fault.RELEASED_IN_SWEEPS.value]


def test_a_step_that_both_take_alike_is_not_named():
    assert departures("basic-causal-ack") == {}


def test_a_difference_that_no_fault_explains_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    def forgetful(channel: MessageChannel) -> dict[str, list[str]]:
        found = sweep_outgoing(channel)
        return found if isinstance(channel, JsWakuChannel) else {key: [] for key in found}

    monkeypatch.setattr(actions, "sweep_outgoing", forgetful)
    (failure,) = failures(traces()["possible-acks"])
    assert "step 8 sweep_out by alice: fairway itself differs in what is returned" in failure
    assert "no known fault of js-waku explains why" in failure


def spoilt(value: Any) -> Any:
    match value:
        case None:
            return "00"
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}x" if not value.isdecimal() else str(int(value) + 1)
        case list():
            return [*value, value[-1]] if value else ["x"]
    return value | {"surprise": {}}


def flipped(compressed: str) -> str:
    data = bytearray(zlib.decompress(base64.b64decode(compressed)))
    data[-1] ^= 1
    return base64.b64encode(zlib.compress(bytes(data))).decode()


def spoil_message(message: dict[str, Any]) -> set[str]:
    """Spoil all that a record tells of a message, and return by which names that should be reported."""
    # The id of a sync message is random and so an input, which is not checked by itself.
    claimed = [field for field in message if not str(message[field]).startswith("sync-")]
    for field in claimed:
        message[field] = (flipped if field == "encoded_zlib_b64" else spoilt)(message[field])
    return {"bytes" if field == "encoded_zlib_b64" else field for field in claimed}


def spoil_step(step: dict[str, Any]) -> set[str]:
    """Spoil all that a step claims, and return by which names that should be reported."""
    named: set[str] = {key for key in ("now", "events", "returned") if key in step}
    named |= {f"out: {field}" for field in spoil_message(step.get("out") or {})}
    named |= {f"state: {field}" for field in step.get("state") or ()}
    if step["op"] == "sweep_repair":
        fields = [spoil_message(message) for message in step["returned"]]
        named |= {f"returned[{index}]: {field}" for index, one in enumerate(fields) for field in one}
        named.remove("returned")
    for key in ("now", "events", "returned"):
        if key in named:
            step[key] = spoilt(step[key])
    for field, value in step.get("state", {}).items():
        step["state"][field] = spoilt(value)
    return named


@pytest.mark.parametrize("name", NAMES)
def test_every_wrong_claim_is_reported_by_its_step_and_its_name(name: str):
    trace = copy.deepcopy(traces()[name])
    expected = [(index, claim) for index, step in enumerate(trace["steps"]) for claim in sorted(spoil_step(step))]
    found = [check.name.removeprefix(f"{name}: step ") for check in replay(trace) if not check.ok]
    assert sorted((int(one.split()[0]), one.split(": ", 1)[1]) for one in found) == expected


def test_one_wrong_claim_is_one_failure():
    for path in (("now",), ("events", "bob"), ("state", "lamport"), ("state", "bloom_bits")):
        trace = copy.deepcopy(traces()["duplicates"])
        place = trace["steps"][1]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = spoilt(place[path[-1]])
        (failure,) = failures(trace)
        assert failure.startswith("duplicates: step 1 recv m1 by bob: ")


def test_a_wrong_sync_id_shows_in_the_bytes():
    out = traces()["sync"]["steps"][2]["out"]
    found = failures(with_step("sync", 2, out={**out, "messageId": f"{out['messageId']}x"}))
    assert any("step 2 send_sync s1 by alice: out: encoded_sha256" in one for one in found)


@pytest.mark.parametrize("key", ["now", "events", "state", "returned", "out"])
@pytest.mark.parametrize("name", ["basic-causal-ack", "sync-asks"])
def test_a_missing_claim_is_noticed(name: str, key: str):
    trace = copy.deepcopy(traces()[name])
    lacking = [index for index, step in enumerate(trace["steps"]) if step.pop(key, None) is not None]
    found = failures(trace)
    assert [index for index in lacking if not any(f"{name}: step {index} " in one for one in found)] == []


def test_a_difference_deep_in_a_value_is_shown_where_it_is():
    trace = copy.deepcopy(traces()["basic-causal-ack"])
    trace["steps"][4]["events"]["alice"][2]["detail"] = "nobody"
    (failure,) = failures(trace)
    assert failure.startswith(
        "basic-causal-ack: step 4 recv r1 by alice: events: at alice[2].detail: 'nobody' expected"
    )


def test_swapped_events_are_noticed():
    trace = copy.deepcopy(traces()["missing-dependency-then-sweep"])
    trace["steps"][7]["events"]["bob"].reverse()
    assert len(failures(trace)) == 1


def test_wrong_input_shows_in_what_follows():
    found = failures(with_step("basic-causal-ack", 0, payload="other"))
    assert any("step 0 send m1 by alice: out: content" in one for one in found)
    assert any("step 1 recv m1 by bob: state: localHistory" in one for one in found)
    assert failures(with_step("basic-causal-ack", 0, hint="00" * 32))
    assert failures(with_step("basic-causal-ack", 2, ms=11))


def test_the_bytes_themselves_must_be_compressed_data():
    trace = copy.deepcopy(traces()["duplicates"])
    for text in ("no base 64!", base64.b64encode(b"not compressed").decode()):
        trace["steps"][0]["out"]["encoded_zlib_b64"] = text
        assert any("not compressed data in base 64" in one for one in failures(trace))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"op": "teleport"}, "the operation 'teleport' is not known, only send, "),
        ({"op": 7}, "'op' should be a string"),
        ({"who": "nobody"}, "'nobody' is no participant; there are alice, bob"),
        ({"op": "recv", "msg": "never"}, "no message was sent as 'never'; known are none"),
        ({"op": "recv", "hex": "zz"}, "'hex' should be bytes in hex"),
        ({"success": "perhaps"}, "should be true, false or 'throw', not 'perhaps'"),
        ({"op": "send_sync", "out": {"messageId": "sink-1"}}, "'sync-' and digits of base 36, not 'sink-1'"),
    ],
)
def test_a_step_that_is_not_understood_ends_the_trace_and_is_named(fields: dict[str, Any], said: str):
    first, second = failures(with_step("duplicates", 0, **fields))
    assert said in first
    assert first.startswith("duplicates: step 0 ")
    assert second.startswith("duplicates: after step 0 ")
    assert "2 further steps were not replayed" in second


def test_a_field_that_nobody_knows_is_a_failure():
    for changed in (
        with_step("duplicates", 1, surprise=1),
        with_step("basic-causal-ack", 2, who="bob"),
        with_step("basic-causal-ack", 5, **{"as": "swept"}),
        {**traces()["duplicates"], "surprise": 1},
        {**traces()["duplicates"], "channels": {"alice": {"surprise": 1}, "bob": {}}},
    ):
        (failure,) = failures(changed)
        assert "not understood, so it was not checked" in failure
    state = copy.deepcopy(traces()["duplicates"])
    state["steps"][0]["state"]["surprise"] = []
    assert "step 0 send m1 by alice: state.surprise" in failures(state)[0]


@pytest.mark.parametrize("group", [None, 7, [None], [[]], [{}], {"x": {}}])
def test_a_group_of_any_other_shape_is_a_failure_and_no_exception(group: Any):
    assert [check for check in check_traces(group, {}) if not check.ok]


@pytest.mark.parametrize("step", [None, 7, [], {}, {"op": "send"}, {"op": "clock"}, {"op": "send", "who": "bob"}])
def test_a_step_of_any_other_shape_is_a_failure_and_no_exception(step: Any):
    assert any("t: step 0" in one for one in failures(one_step(step)))


@pytest.mark.parametrize("operation", ["sync", "push_sync", "send_sync_message"])
def test_sync_messages_are_sent_by_any_operation_that_says_so(operation: str):
    trace = copy.deepcopy(traces()["sync"])
    for step in trace["steps"]:
        step["op"] = operation if "sync" in step["op"] else step["op"]
    assert failures(trace) == []


def test_a_message_that_should_not_have_gone_out_is_noticed():
    sent = traces()["sync"]["steps"][2]["out"]
    assert any("whether a message was sent" in one for one in failures(with_step("sync", 0, out=sent)))
    assert failures(with_step("sync", 0, out=None)) == []


def test_a_name_for_a_sync_message_that_did_not_go_out_names_nothing():
    assert failures(with_step("sync", 0, **{"as": "s0"})) == []
    trace = with_step("sync", 0, **{"as": "s0"})
    trace["steps"][3]["msg"] = "s0"
    assert "no message was sent as 's0'; known are m1, s1" in failures(trace)[0]


def test_a_payload_may_be_written_in_hex():
    trace = copy.deepcopy(traces()["duplicates"])
    del trace["steps"][0]["payload"]
    trace["steps"][0]["payload_hex"] = b"m1".hex()
    assert failures(trace) == []


def test_bytes_that_cannot_be_decoded_do_nothing():
    state = traces()["ephemeral"]["steps"][0]["state"]
    step = {"op": "recv", "who": "bob", "hex": "ff", "now": START_MS, "events": {}, "state": state}
    assert failures(one_step(step)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"causalHistorySize": -1},
        {"causalHistorySize": "many"},
        {"repairConfig": {"tMin": 5, "tMax": 5}},
        {"repairConfig": {"bufferSize": 0}},
        {"enableRepair": "no"},
    ],
)
def test_options_with_which_js_waku_itself_fails_are_refused_by_name(options: dict[str, Any]):
    (failure,) = failures(one_step({}, **options))
    assert any(key in failure for key in ("causalHistorySize", "bufferSize", "enableRepair"))


def test_a_switch_that_js_waku_does_not_have_changes_nothing():
    trace = copy.deepcopy(traces()["sync-asks"])
    for options in trace["channels"].values():
        options["repairConfig"]["enabled"] = False
    assert failures(trace) == []


@pytest.mark.parametrize("absent", [None, "gone"])
def test_without_repair_its_buffers_need_not_be_told(absent: str | None):
    trace = copy.deepcopy(traces()["repair-disabled"])
    for step in trace["steps"]:
        if step.get("who") == "bob":
            for key in ("repairOutgoing", "repairIncoming"):
                step["state"].pop(key)
                step["state"] |= {key: None} if absent is None else {}
    assert failures(trace) == []


def test_all_entries_of_a_message_are_read_where_fairway_reads_only_the_newest():
    cited = tuple(HistoryEntry(f"m{index}") for index in range(1_001))
    message = SdsMessage(
        message_id="x", sender_id="eve", channel_id="c", lamport_timestamp=1, causal_history=cited, content=b"content"
    )
    model = JsWakuChannel("c", "bob", SdsConfig(), now_ms=START_MS)
    missing = model.receive(message, None, START_MS)[-1]
    assert isinstance(missing, DependenciesMissing)
    assert missing.entries == cited
    assert Fault.UNBOUNDED in model.take_faults()


def test_a_full_repair_buffer_of_js_waku_takes_the_newest_where_fairways_keeps_the_earliest():
    noticed: list[Fault] = []
    buffers = (JsRepairBuffer(2, noticed.append), RepairBuffer(2))
    for buffer in buffers:
        for at_ms, name in enumerate(("first", "second", "third")):
            buffer.add(HistoryEntry(name), at_ms)
    assert [[scheduled.message_id for scheduled in buffer] for buffer in buffers] == [
        ["first", "third"],
        ["first", "second"],
    ]
    assert noticed == [Fault.NEWEST_STAYS]


def test_the_filter_of_js_waku_is_never_rolled_over():
    noticed: list[Fault] = []
    bloom = JsBloom(BloomParameters.of(4, 0.01), WAKU_BLOOM, noticed.append)
    for index in range(9):
        bloom.insert(f"m{index}")
    assert all(f"m{index}" in bloom for index in range(9))
    assert set(noticed) == {Fault.FILTER_NEVER_ROLLED}
