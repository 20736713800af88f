"""Citations, what is missing and who acknowledged what: functions over Arrow tables beside plain Python."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.pipeline.schema import arrow_schema, exact_schema
from fairway.pipeline.stages.acknowledgements import (
    ACKNOWLEDGEMENTS,
    EVIDENCE,
    SENT,
    acknowledgement_rows,
    latency_rows,
    sent_in,
)
from fairway.pipeline.stages.citations import CITED, citations_in, parents_in
from fairway.pipeline.stages.keyed import keyed
from fairway.pipeline.stages.missing_messages import MESSAGE_KEYS, missing_rows, rebuilt_in
from fairway.pipeline.stages.reassembled import REASSEMBLED, computed_segments_in
from fairway.pipeline.tables import table_named

SDS = arrow_schema(table_named("sds_messages").schema)
NAMES = ("", "a", "b", "é", "sync-1", "sync-", "zz", "ｚ", "😀")
CHANNELS = ("one", "two")
PEOPLE = ("alice", "bob", "carol", "Ångström")
TIMES = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1])
NS_PER_MS = 1_000_000


@st.composite
def archives(draw):
    """Return unique messages, no two of them with one key, with histories that may cite anything."""
    keys = draw(
        st.lists(st.tuples(st.sampled_from(CHANNELS), st.sampled_from(NAMES)), unique=True, min_size=0, max_size=14)
    )
    entry = st.fixed_dictionaries(
        {
            "message_id": st.sampled_from(NAMES),
            "retrieval_hint": st.none() | st.sampled_from([b"", b"\x80", b"h"]),
            "sender_id": st.none() | st.sampled_from(PEOPLE),
        }
    )
    history = st.none() | st.lists(entry, max_size=4, unique_by=lambda one: one["message_id"])
    return [
        dict.fromkeys(SDS.names)
        | {
            "channel_id": channel_id,
            "message_id": message_id,
            "sender_id": draw(st.sampled_from(PEOPLE)),
            "timestamp_ns": draw(TIMES),
            "kind": draw(st.sampled_from(["content", "content", "sync", "ephemeral"])),
            "causal_history": draw(history),
        }
        for channel_id, message_id in keys
    ]


def table(rows, chunks=3):
    """Return the rows in chunks, as they come out of an exchange."""
    size = max(1, -(-len(rows) // chunks))
    parts = [pa.Table.from_pylist(rows[start : start + size], SDS) for start in range(0, len(rows), size)]
    return pa.concat_tables(parts) if parts else SDS.empty_table()


def key(row):
    return (row["channel_id"], row["message_id"])


def counted(message):
    """Return the entries of a history that somebody may wait for."""
    return [
        entry
        for entry in message["causal_history"] or ()
        if entry["message_id"] not in {"", message["message_id"]} and not entry["message_id"].startswith("sync-")
    ]


def citations_of(messages):
    return [
        {
            "channel_id": message["channel_id"],
            **entry,
            "citing_id": message["message_id"],
            "citing_sender_id": message["sender_id"],
            "cited_at_ns": message["timestamp_ns"],
        }
        for message in messages
        if message["kind"] != "ephemeral"
        for entry in counted(message)
    ]


def content_of(messages):
    return {key(message): message for message in messages if message["kind"] == "content"}


def grouped(rows, by):
    groups = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


def greatest(values, order=lambda value: value):
    return max((value for value in values if value is not None), key=order, default=None)


def missing_of(messages, rebuilt):
    there = {*content_of(messages), *rebuilt}
    by_message = grouped((one for one in citations_of(messages) if key(one) not in there), key)

    def when(one):
        return one["cited_at_ns"], one["citing_sender_id"].encode()

    return [
        {
            "channel_id": channel_id,
            "message_id": message_id,
            "sender_id": greatest((one["sender_id"] for one in group), str.encode),
            "retrieval_hint": greatest(one["retrieval_hint"] for one in group),
            "cited_by": len(group),
            "first_cited_ns": min(group, key=when)["cited_at_ns"],
            "last_cited_ns": max(group, key=when)["cited_at_ns"],
            "first_cited_by": min(group, key=when)["citing_sender_id"],
            "last_cited_by": max(group, key=when)["citing_sender_id"],
        }
        for (channel_id, message_id), group in by_message.items()
    ]


def acknowledged_of(messages, evidence, threshold):
    content = content_of(messages)
    told = [(key(one), one["citing_sender_id"], one["cited_at_ns"], "cited") for one in citations_of(messages)] + [
        (key(one), one["acknowledged_by"], one["acknowledged_at_ns"], one["how"]) for one in evidence
    ]
    rows = []
    for (message, participant), group in grouped(told, lambda one: one[:2]).items():
        if message in content and content[message]["sender_id"] != participant:
            certain = min((one[2:] for one in group if one[3] != "bloom"), default=None)
            at, how = certain or (min(one[2] for one in group), "bloom")
            rows.append(
                dict(zip(("channel_id", "message_id"), message, strict=True))
                | {
                    "sender_id": content[message]["sender_id"],
                    "acknowledged_by": participant,
                    "how": how,
                    "acknowledged_at_ns": at,
                }
            )
    possible = [key(row) for row in rows if row["how"] == "bloom"]
    return [row for row in rows if row["how"] != "bloom" or possible.count(key(row)) >= threshold]


def latencies_of(messages, acknowledged):
    by_message = grouped(acknowledged, key)
    rows = []
    for message, sent in content_of(messages).items():
        group = by_message.get(message, [])
        first = min(group, key=lambda row: (row["acknowledged_at_ns"], row["acknowledged_by"].encode()), default=None)
        latency = first["acknowledged_at_ns"] - sent["timestamp_ns"] if first else 2**63
        rows.append(
            {
                "channel_id": message[0],
                "message_id": message[1],
                "sender_id": sent["sender_id"],
                "sent_at_ns": sent["timestamp_ns"],
                "ackers": len(group),
                "first_by": first and first["acknowledged_by"],
                "acked_at_ns": first and first["acknowledged_at_ns"],
                "latency_ms": int(max(0, latency) / NS_PER_MS // 1) if -(2**63) <= latency < 2**63 else None,
            }
        )
    return rows


def in_some_order(rows):
    return sorted(rows, key=repr)


@examples(1)
@given(archives())
def test_citations_are_those_that_somebody_may_wait_for(messages):
    assert citations_in(table(messages)).to_pylist() == citations_of(messages)
    assert parents_in(table(messages)).to_pylist() == [
        [entry["message_id"] for entry in counted(message)] for message in messages
    ]


@examples(2)
@given(archives(), st.lists(st.tuples(st.sampled_from(CHANNELS), st.sampled_from(NAMES)), max_size=3))
def test_what_is_cited_and_nowhere_is_missing_with_all_that_is_told_of_it(messages, rebuilt):
    content, cited, others = keyed(
        sent_in(table(messages)),
        citations_in(table(messages)).select(CITED.names),
        pa.Table.from_pylist([dict(zip(MESSAGE_KEYS.names, one, strict=True)) for one in rebuilt], MESSAGE_KEYS),
    )
    assert in_some_order(missing_rows(content, cited, others).to_pylist()) == in_some_order(
        missing_of(messages, rebuilt)
    )


EVIDENCE_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "channel_id": st.sampled_from(CHANNELS),
            "message_id": st.sampled_from(NAMES),
            "acknowledged_by": st.sampled_from(PEOPLE),
            "how": st.sampled_from(["descendant", "bloom"]),
            "acknowledged_at_ns": TIMES,
        }
    ),
    max_size=12,
)


@examples(2)
@given(archives(), st.none() | EVIDENCE_ROWS, st.integers(1, 3))
def test_the_first_certain_evidence_acknowledges_or_enough_of_the_possible(messages, evidence, threshold):
    tables = [sent_in(table(messages)), citations_in(table(messages)).select(CITED.names)]
    if evidence is not None:
        tables.append(pa.Table.from_pylist(evidence, EVIDENCE))
    sent, *proofs = keyed(*tables)
    told = acknowledgement_rows(sent, *proofs, possible_acks_threshold=threshold)
    expected = acknowledged_of(messages, evidence or [], threshold)
    assert in_some_order(told.table.to_pylist()) == in_some_order(expected)
    # The numbers that the rows have are those of their messages.
    of_sent = dict(zip(map(key, sent.table.to_pylist()), sent.keys.tolist(), strict=True))
    assert told.keys.tolist() == [of_sent[key(row)] for row in told.table.to_pylist()]
    assert in_some_order(latency_rows(sent, told).to_pylist()) == in_some_order(latencies_of(messages, expected))


@pytest.mark.parametrize("empty", [(), ("content",), ("cited",)])
def test_a_bucket_may_lack_messages_or_citations(empty):
    message = dict.fromkeys(SDS.names) | {
        "channel_id": "one",
        "message_id": "a",
        "sender_id": "alice",
        "timestamp_ns": 1,
        "kind": "content",
        "causal_history": [{"message_id": "b", "retrieval_hint": None, "sender_id": None}],
    }
    messages = table([message])
    content, cited = keyed(
        sent_in(messages.slice(0, 0 if "content" in empty else 1)),
        citations_in(messages.slice(0, 0 if "cited" in empty else 1)).select(CITED.names),
    )
    assert missing_rows(content, cited).num_rows == cited.table.num_rows
    told = acknowledgement_rows(content, cited, possible_acks_threshold=2)
    assert told.table.num_rows == 0
    assert latency_rows(content, told).column("ackers").to_pylist() == [0] * content.table.num_rows


def test_lost_segments_of_which_the_ids_are_known_are_listed_for_each_message():
    rows = [
        dict.fromkeys(arrow_schema(REASSEMBLED).names)
        | {"channel_id": channel_id, "sds_ids": ["first"], "rebuilt_ids": rebuilt, "guessed_ids": ["guess"]}
        for channel_id, rebuilt in (("one", ["a", "b"]), ("two", []), ("one", None), ("two", ["c"]))
    ]
    computed = computed_segments_in(pa.Table.from_pylist(rows, arrow_schema(REASSEMBLED)))
    assert set(computed.column("told_by").to_pylist()) == {"first"}
    assert computed.filter(computed.column("is_guess")).column("message_id").to_pylist() == ["guess"] * 4
    told = rebuilt_in(computed)
    assert [tuple(row.values()) for row in told.to_pylist()] == [("one", "a"), ("one", "b"), ("two", "c")]


@given(st.integers(0, 2**62), st.integers(0, 2**62 - 1))
def test_a_latency_is_whole_milliseconds_to_the_nanosecond(sent_ns, later_ns):
    sent = pa.table([["c"], ["m"], ["alice"], [sent_ns]], schema=SENT)
    seen = ["c", "m", "alice", "bob", "cited", sent_ns + later_ns]
    acknowledged = pa.table([[value] for value in seen], schema=exact_schema(ACKNOWLEDGEMENTS))
    assert latency_rows(*keyed(sent, acknowledged))["latency_ms"].to_pylist() == [later_ns // 10**6]
