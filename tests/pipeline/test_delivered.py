"""What is delivered, from whole messages and from reassembled ones, without a JVM."""

from __future__ import annotations

import hashlib

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.delivered import are_whole, in_order, incomplete_sets, joined_messages, whole_messages
from fairway.pipeline.stages.reassembled import REASSEMBLED
from fairway.pipeline.tables import table_named

SDS = exact_schema(table_named("sds_messages").schema).append(pa.field("content", pa.binary()))
SETS = exact_schema(REASSEMBLED)
NAMES = st.sampled_from(["a", "b", "é", "zz"])
CLOCKS = st.none() | st.integers(-1, 3)


@st.composite
def archives(draw):
    """Return rows of unique messages and of ``reassembled``; no id of a message is in two of them."""
    ids = iter([f"{draw(NAMES)}{number}" for number in range(30)])
    messages = [
        dict.fromkeys(SDS.names)
        | {
            "channel_id": draw(NAMES),
            "sender_id": "alice",
            "message_id": next(ids),
            "lamport": draw(CLOCKS),
            "timestamp_ns": 7,
            "kind": kind,
            "content": None if kind == "sync" else draw(st.binary(min_size=1, max_size=3)),
            "segment_hash": draw(st.sampled_from([None, None, b"hash"])),
        }
        for kind in draw(st.lists(st.sampled_from(["content", "ephemeral", "sync"]), max_size=8))
    ]
    sets = [
        dict.fromkeys(SETS.names)
        | {
            "channel_id": draw(NAMES),
            "sender_id": "bob",
            "segment_hash": b"hash",
            "outcome": outcome,
            "payload": draw(st.binary(max_size=3)) if outcome == "complete" else None,
            "recovered": draw(st.booleans()),
            "held": 2,
            "data_segments": 2,
            "sds_ids": [next(ids), next(ids)],
            "lamport": draw(CLOCKS),
            "first_seen_ns": 1,
            "last_seen_ns": 9,
        }
        for outcome in draw(st.lists(st.sampled_from(["complete", "incomplete", "discarded"]), max_size=6))
    ]
    return messages, sets


def expected(messages, sets):
    whole = [
        (row, row["content"], [row["message_id"]], row["timestamp_ns"], 1, False)
        for row in messages
        if row["kind"] != "sync" and row["segment_hash"] is None
    ]
    joined = [
        (row, row["payload"], row["sds_ids"], row["last_seen_ns"], row["data_segments"], row["recovered"])
        for row in sets
        if row["outcome"] == "complete"
    ]
    rows = [
        {
            "channel_id": row["channel_id"],
            "sender_id": row["sender_id"],
            "message_id": hashlib.sha256(payload).hexdigest(),
            "lamport": row["lamport"],
            "sds_ids": sds_ids,
            "timestamp_ns": timestamp,
            "segments": segments,
            "recovered": recovered,
            "size_bytes": len(payload),
            "payload": payload,
        }
        for row, payload, sds_ids, timestamp, segments, recovered in [*whole, *joined]
    ]
    no_clock = (False, 0)

    def order(row):
        clock = no_clock if row["lamport"] is None else (True, row["lamport"])
        return row["channel_id"].encode(), clock, row["sds_ids"][0].encode()

    return sorted(rows, key=order)


@examples(1)
@given(archives(), st.integers(1, 20))
def test_whole_and_reassembled_messages_are_delivered_in_the_order_of_their_channels(archive, piece_bytes):
    messages, sets = (pa.Table.from_pylist(rows, schema) for rows, schema in zip(archive, (SDS, SETS), strict=True))
    table = pa.concat_tables([whole_messages(messages.filter(are_whole(messages))), joined_messages(sets)])
    assert table.schema == exact_schema(table_named("delivered").schema)
    pieces = list(in_order(table, piece_bytes=piece_bytes))
    assert [row for piece in pieces for row in piece.to_pylist()] == expected(*archive)
    # A piece has all that ends in its range of bytes, and so one message more than fits at most.
    sizes = [piece.column("size_bytes").to_pylist() for piece in pieces]
    assert all(sum(own[1:]) <= piece_bytes for own in sizes)
    failed = incomplete_sets(sets)
    assert failed.schema == exact_schema(table_named("incomplete").schema)
    assert failed.column("outcome").to_pylist() == [
        row["outcome"] for row in archive[1] if row["outcome"] != "complete"
    ]
