"""Channels that do not fit in memory have the logs of channels that do."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED, channel_logs
from fairway.pipeline.stages.ordered_logs import carried_logs, ordered_logs

UNLIMITED = 2**40
MESSAGES = 300


def logged(channel_id, message_id, lamport, parents):
    return {
        "channel_id": channel_id,
        "message_id": message_id,
        "sender_id": "alice",
        "lamport": lamport,
        "timestamp_ns": 7,
        "message_hash": b"%032d" % lamport,
        "parents": sorted(parents),
    }


def chain(channel_id, count, clock_of=lambda number: number):
    """Return messages that each cite the two before."""
    return [
        logged(
            channel_id,
            f"m{number:05}",
            clock_of(number),
            {f"m{earlier:05}" for earlier in range(max(0, number - 2), number)},
        )
        for number in range(count)
    ]


def absent_rows(*missing, channel_id="team", computed=()):
    rows = [{"channel_id": channel_id, "message_id": name, "first_cited_ns": at} for at, name in enumerate(missing)]
    return rows + [{"channel_id": channel_id, "message_id": name, "told_by": by} for name, by in computed]


def table(rows, schema):
    return pa.Table.from_pylist(rows, schema)


def cut_at(messages, places):
    """Return the messages in the order of SDS, in parts that begin at some places."""
    ordered = sorted(messages, key=lambda row: (row["lamport"], row["message_id"]))
    bounds = [0, *sorted(places), len(ordered)]
    return [table(ordered[start:end], LOGGED) for start, end in pairwise(bounds) if end > start]


def by_id(logs):
    told = ("status", "waits_for", "missing_parents")
    return {(row["channel_id"], row["message_id"]): tuple(row[name] for name in told) for row in logs.to_pylist()}


def is_causal(log, messages):
    """Return whether each message follows the messages that it cites, apart from those in a circle."""
    places = {(row["channel_id"], row["message_id"]): row["position"] for row in log.to_pylist()}
    circular = {(row["channel_id"], row["message_id"]) for row in log.to_pylist() if row["status"] == "circular"}
    keys = [(row["channel_id"], row["message_id"], parent) for row in messages for parent in row["parents"]]
    return all(
        places[channel, parent] < places[channel, name] or {(channel, parent), (channel, name)} <= circular
        for channel, name, parent in keys
        if (channel, parent) in places and parent != name
    )


@st.composite
def channels(draw, circles=True):
    """Messages with gaps, concurrency, equal timestamps, clocks that jump, and citations of anything."""
    count = draw(st.integers(2, 40))
    names = draw(st.permutations([f"m{number:02}" for number in range(count)]))
    clocks = draw(
        st.sampled_from(
            [
                lambda number: number,
                lambda number: number // 5,
                lambda number: 9,
                lambda number: number if number % 7 else count,
                lambda number: number if number % 7 else 0,
                lambda number: count - number,
                lambda number: number * 7 % count,
            ]
        )
    )
    missing = [f"gone{number}" for number in range(draw(st.integers(0, 3)))]
    messages = []
    for number, name in enumerate(names):
        near = names[max(0, number - 4) : number]
        anything = [*missing, *(names if circles and draw(st.integers(0, 9)) == 0 else names[:number])]
        cited = draw(st.sets(st.sampled_from(near), max_size=2)) if near else set()
        if anything and draw(st.integers(0, 3)) == 0:
            cited |= draw(st.sets(st.sampled_from(anything), max_size=2))
        messages.append(logged("team", name, clocks(number), cited - {name}))
    return messages, missing


@examples(4)
@given(channels(), st.data())
def test_any_parts_of_a_channel_give_the_log_of_the_whole(made, data):
    messages, missing = made
    absent = table(absent_rows(*missing), ABSENT)
    parts = cut_at(messages, data.draw(st.sets(st.integers(1, len(messages) - 1), max_size=12)))
    whole = channel_logs(table(messages, LOGGED), absent)
    assert pa.concat_tables(carried_logs(parts, absent, UNLIMITED)).to_pylist() == whole.to_pylist()


@examples(2)
@given(channels(circles=False), st.data())
def test_the_status_does_not_depend_on_what_fits_in_memory_and_the_order_is_causal(made, data):
    messages, missing = made
    absent = table(absent_rows(*missing), ABSENT)
    parts = cut_at(messages, data.draw(st.sets(st.integers(1, len(messages) - 1), max_size=4)))
    whole = table(messages, LOGGED)
    rows = data.draw(st.integers(8, 40))
    log = pa.concat_tables(carried_logs(parts, absent, whole.nbytes * rows // len(messages)))
    found, expected = by_id(log), by_id(channel_logs(whole, absent))
    assert found.keys() == expected.keys()
    # A chain against all timestamps may be given up.
    known = {key for key, (status, *_) in found.items() if status != "not-computed"}
    assert all(found[key] == expected[key] for key in known)
    assert log["position"].to_pylist() == list(range(1, len(messages) + 1))
    assert is_causal(log, messages) or len(known) < len(messages)


@examples(0.5)
@given(st.lists(channels(circles=False), min_size=2, max_size=4), st.integers(2, 9))
def test_many_channels_of_which_some_are_large_have_the_logs_of_each(made, parts):
    rows, missing = [], []
    for number, (messages, gone) in enumerate(made):
        name = f"channel {number}"
        rows += [row | {"channel_id": name} for row in messages]
        missing += absent_rows(*gone, channel_id=name)
    messages, absent = table(rows, LOGGED), table(missing, ABSENT)
    logs = [*ordered_logs(messages, absent, max_bytes=messages.nbytes // parts)]
    found = pa.concat_tables(logs)
    keys = [(row["channel_id"], row["position"]) for row in found.to_pylist()]
    assert keys == sorted(keys)
    expected = by_id(channel_logs(messages, absent))
    told = by_id(found)
    assert told.keys() == expected.keys()
    assert all(own in (expected[key], ("not-computed", None, expected[key][-1])) for key, own in told.items())


def test_the_rows_of_a_large_channel_with_gaps_are_those_of_a_small_one():
    messages = chain("team", MESSAGES)
    messages[150]["parents"] += ["gone", "computed"]
    messages[200]["parents"] += ["late"]
    absent = table(absent_rows("late", "gone", computed=[("computed", "m00120")]), ABSENT)
    whole = table(messages[::-1], LOGGED)
    found = [*ordered_logs(whole, absent, max_bytes=whole.nbytes // 4)]
    assert len(found) > 4
    assert pa.concat_tables(found).to_pylist() == channel_logs(whole, absent).to_pylist()


def test_a_segment_that_was_computed_stands_for_the_first_that_came_in_an_earlier_part():
    messages = chain("team", MESSAGES)
    messages[10]["parents"] += ["gone"]
    for row in messages[11:]:
        row["parents"] = []
    messages[290]["parents"] = ["computed"]
    absent = table(absent_rows("gone", computed=[("computed", "m00010")]), ABSENT)
    found = pa.concat_tables(carried_logs(cut_at(messages, [100, 200]), absent, UNLIMITED))
    waiting = [row["message_id"] for row in found.to_pylist() if row["waits_for"] == "gone"]
    assert waiting == ["m00010", "m00290"]


def test_a_few_messages_of_slow_or_fast_clocks_cost_a_large_channel_nothing():
    clocks = {70: 3, 150: 10**9, 220: 150}
    messages = chain("team", MESSAGES, lambda number: clocks.get(number, number))
    messages[30]["parents"] += ["gone"]
    absent = table(absent_rows("gone"), ABSENT)
    whole = table(messages, LOGGED)
    found = pa.concat_tables(ordered_logs(whole, absent, max_bytes=whole.nbytes // 6))
    assert by_id(found) == by_id(channel_logs(whole, absent))
    assert found["message_id"].to_pylist() == [f"m{number:05}" for number in range(MESSAGES)]


def test_a_message_behind_a_circle_of_an_earlier_part_waits():
    messages = chain("team", MESSAGES)
    messages[20]["parents"] += ["m00021"]
    absent = table([], ABSENT)
    found = by_id(pa.concat_tables(carried_logs(cut_at(messages, [100, 200]), absent, UNLIMITED)))
    assert found["team", "m00021"] == ("circular", None, 0)
    assert found["team", "m00299"] == ("waiting", None, 0)


def test_a_circle_that_does_not_fit_in_memory_is_not_computed_and_all_before_it_is():
    messages = chain("team", MESSAGES)
    messages[100]["parents"] += ["m00290"]
    whole = table(messages, LOGGED)
    found = pa.concat_tables(ordered_logs(whole, table([], ABSENT), max_bytes=whole.nbytes // 6))
    assert sorted(found["message_id"].to_pylist()) == [row["message_id"] for row in messages]
    assert found["position"].to_pylist() == list(range(1, MESSAGES + 1))
    status = {row["message_id"]: row["status"] for row in found.to_pylist()}
    assert {status[f"m{number:05}"] for number in range(100)} == {"complete"}
    assert {status[f"m{number:05}"] for number in range(100, MESSAGES)} == {"not-computed"}
