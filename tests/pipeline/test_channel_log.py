"""The log of one channel without a JVM: messages and what is absent are Arrow tables."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.options import SdsConfig
from fairway.pipeline.stages.channel_log import channel_logs
from fairway.protocol.sds.channel import MessageChannel
from fairway.wire.sds import HistoryEntry, SdsMessage

MESSAGES = pa.schema(
    [
        ("channel_id", pa.string()),
        ("message_id", pa.string()),
        ("sender_id", pa.string()),
        ("lamport", pa.int64()),
        ("timestamp_ns", pa.int64()),
        ("message_hash", pa.binary()),
        ("segment_hash", pa.binary()),
        ("parents", pa.list_(pa.string())),
    ]
)
ABSENT = pa.schema(
    [
        ("channel_id", pa.string()),
        ("message_id", pa.string()),
        ("first_cited_ns", pa.int64()),
        ("told_by", pa.string()),
    ]
)


def log(messages, missing=(), rebuilt=()):
    """Return the rows of a log, in its order; messages are (id, lamport, parents), missing ids in order of citation."""
    shuffled = random.Random(3).sample(messages, len(messages))
    rows = [("team", name, "alice", lamport, 7, b"h", None, parents) for name, lamport, parents in shuffled]
    absent: list[tuple[object, ...]] = [("team", name, at, None) for at, name in enumerate(missing)]
    absent += [("team", name, None, told_by) for name, told_by in rebuilt]
    told = channel_logs(table(rows, MESSAGES), table(absent, ABSENT)).to_pylist()
    return sorted(told, key=lambda row: row["position"])


def table(rows, schema):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def ids(rows):
    return [row["message_id"] for row in rows]


def told(rows):
    return {row["message_id"]: (row["status"], row["waits_for"]) for row in rows}


COMPLETE = ("complete", None)


def test_what_was_sent_comes_back_beside_what_was_found():
    (row,) = log([("a", 1, ["gone"])], ["gone"])
    assert row == {
        "channel_id": "team",
        "message_id": "a",
        "sender_id": "alice",
        "lamport": 1,
        "timestamp_ns": 7,
        "message_hash": b"h",
        "segment_hash": None,
        "position": 1,
        "missing_parents": 1,
        "status": "waiting",
        "waits_for": "gone",
    }


def test_nobody_waits_for_what_was_computed_from_parity():
    assert told(log([("a", 1, []), ("b", 2, ["computed", "a"])], [], [("computed", "a")])) == {
        "a": COMPLETE,
        "b": COMPLETE,
    }


def test_what_was_computed_stands_for_what_was_sent_before_its_message():
    segments = [("first", 2, ["gone"]), ("third", 4, ["second", "first"]), ("reply", 5, ["second"])]
    assert told(log(segments, ["gone"], [("second", "first")])) == dict.fromkeys(
        ("first", "third", "reply"), ("waiting", "gone")
    )


def test_a_message_whose_first_segments_were_computed_does_not_wait_for_itself():
    segments = [("second", 3, ["first", "before"]), ("before", 1, []), ("reply", 3, ["first"])]
    rows = log(segments, [], [("first", "second")])
    assert set(told(rows).values()) == {COMPLETE}
    assert ids(rows) == ["before", "reply", "second"]


def test_a_guess_holds_nobody_up_and_what_is_there_is_no_guess():
    messages = [("a", 1, []), ("b", 2, ["guess"]), ("gap", 1, ["gone"]), ("c", 3, ["a"])]
    rows = log(messages, ["gone", "guess"], [("guess", "a"), ("a", "gap")])
    assert told(rows) == {"a": COMPLETE, "b": COMPLETE, "c": COMPLETE, "gap": ("waiting", "gone")}
    assert {row["message_id"]: row["missing_parents"] for row in rows} == {"a": 0, "b": 1, "c": 0, "gap": 1}


def test_a_message_that_cites_itself_waits_for_nothing():
    assert told(log([("a", 1, ["a"])])) == {"a": COMPLETE}


def test_ten_thousand_inventions_in_one_history_are_one_waiting_message():
    never = [f"never-{number:05}" for number in range(10_000)]
    (row,) = log([("a", 1, never)], never)
    assert (row["missing_parents"], row["status"], row["waits_for"]) == (10_000, "waiting", "never-09999")


def test_a_chain_against_all_timestamps_is_as_long_as_the_channel():
    chain = [(f"m{number:05}", 20_000 - number, [f"m{number - 1:05}"] if number else []) for number in range(20_000)]
    assert ids(log(chain)) == [name for name, _, _ in chain]
    chain[0] = ("m00000", 20_000, ["m19999"])
    rows = log(chain)
    assert {row["status"] for row in rows} == {"circular"}
    assert [row["position"] for row in rows] == list(range(1, 20_001))


def test_a_channel_of_which_nothing_is_there_has_no_rows():
    assert log([], ["gone"]) == []


def test_timestamps_that_are_not_there_count_as_zero():
    assert ids(log([("b", 1, []), ("a", None, None)])) == ["a", "b"]


@st.composite
def channels(draw):
    """Return messages that cite anything at all, with any timestamps, and the ids that are missing."""
    names = [f"m{number}" for number in range(draw(st.integers(1, 12)))]
    missing = [f"g{number}" for number in range(draw(st.integers(0, 3)))]
    cited = st.lists(st.sampled_from([*names, *missing]), unique=True, max_size=3)
    messages = [(name, draw(st.integers(1, 6)), [one for one in draw(cited) if one != name]) for name in names]
    return messages, missing


def core_state(messages):
    """Return what the protocol core parks of a channel, what each waits for in the end, and who waits in vain."""
    channel = MessageChannel("team", "reader", SdsConfig(), now_ms=1)
    for name, lamport, parents in messages:
        channel.receive(
            SdsMessage(
                message_id=name,
                sender_id="alice",
                channel_id="team",
                lamport_timestamp=lamport,
                causal_history=tuple(map(HistoryEntry, parents)),
                bloom_filter=None,
                content=b"x",
            ),
            None,
            1,
        )
    return {name: channel.dependencies.incoming.missing_behind(parked) for name, parked in channel.parked.items()}


@examples(3)
@given(channels())
def test_exactly_those_wait_that_the_protocol_core_parks(made):
    messages, missing = made
    rows = log(messages, missing)
    parked = core_state(messages)
    assert {row["message_id"] for row in rows if row["status"] != "complete"} == parked.keys()
    for row in rows:
        behind = parked.get(row["message_id"], [])
        assert row["waits_for"] == max(behind, default=None)
    assert [row["position"] for row in rows] == list(range(1, len(messages) + 1))


@examples(3)
@given(channels())
def test_the_order_respects_causality_but_in_circles(made):
    messages, missing = made
    rows = log(messages, missing)
    place = {row["message_id"]: row["position"] for row in rows}
    parents = {name: [one for one in cited if one in place] for name, _, cited in messages}

    def ancestors(name):
        found, reached = set(), list(parents[name])
        while reached:
            one = reached.pop()
            if one not in found:
                found.add(one)
                reached += parents[one]
        return found

    behind = {name: ancestors(name) for name in parents}
    for row in rows:
        name = row["message_id"]
        assert (row["status"] == "circular") == (name in behind[name])
        for parent in parents[name]:
            assert place[parent] < place[name] or name in behind[parent]
    # A message comes next as soon as all that it cites is placed; a circle is one message, with its highest number.
    circle = {name: {name} | {one for one in behind[name] if name in behind[one]} for name in parents}
    number = {name: (lamport, name) for name, lamport, _ in messages}
    highest = {name: max(number[one] for one in circle[name]) for name in parents}
    for this, later in pairwise(ids(rows)):
        cited = {parent for one in circle[later] for parent in parents[one]}
        assert (highest[this], number[this]) < (highest[later], number[later]) or circle[this] & cited


def rows_in(name, messages):
    return [(name, one, "alice", lamport, 7, b"h", None, parents) for one, lamport, parents in messages]


def absent_from(name, missing, rebuilt):
    return [
        *((name, one, at, None) for at, one in enumerate(missing)),
        *((name, one, None, told_by) for one, told_by in rebuilt),
    ]


@st.composite
def computed_segments(draw, made):
    """Return segments that were computed, or their guessed ids, and what tells of each."""
    messages, missing = made
    ids = st.sampled_from(["r0", "r1", *missing])
    return draw(st.lists(st.tuples(ids, st.sampled_from([name for name, _, _ in messages])), max_size=3, unique=True))


@examples(2)
@given(st.data(), st.lists(channels(), min_size=2, max_size=4))
def test_the_logs_of_many_channels_are_those_of_each_alone(data, made):
    rows, absent, alone = [], [], []
    for number, (messages, missing) in enumerate(made):
        cited = [(name, lamport, [*parents, "r0"]) for name, lamport, parents in messages]
        own = rows_in(f"channel {number}", cited)
        lost = absent_from(f"channel {number}", missing, data.draw(computed_segments((messages, missing))))
        alone += channel_logs(table(own, MESSAGES), table(lost, ABSENT)).to_pylist()
        rows, absent = rows + own, absent + lost
    together = channel_logs(
        table(data.draw(st.permutations(rows)), MESSAGES), table(data.draw(st.permutations(absent)), ABSENT)
    )
    assert together.to_pylist() == sorted(alone, key=lambda row: (row["channel_id"], row["position"]))
