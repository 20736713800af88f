"""js-waku's channel traces replayed step by step; and spoilt, to see that every difference is noticed and named."""

from __future__ import annotations

import json
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
