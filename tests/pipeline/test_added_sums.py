"""Figures are sums over any parts of a table: added up they are those of the whole, and what plain Python counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from math import ceil

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.bandwidth import added_bytes, bytes_by_part
from fairway.pipeline.stages.rate_utilisation import EPOCH, transmissions, utilisation
from fairway.pipeline.stages.statistics import (
    added_sums,
    channel_rows,
    channel_sums,
    latency_counts,
    sender_rows,
    sums_of_acknowledged,
    sums_of_messages,
    sums_of_rows,
)
from fairway.pipeline.stages.store_completeness import completeness, holdings, named_stores
from fairway.pipeline.tables import table_named

NAMES = st.sampled_from(["a", "b", "", "ä"])
TIMES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(10**10), 10**10))


def rows_of(kinds, /, **columns):
    return st.lists(st.fixed_dictionaries(columns), max_size=30).map(
        lambda rows: pa.Table.from_pylist(rows, pa.schema([(name, kinds[name]) for name in columns]))
    )


SDS = {field.name: field.type for field in exact_schema(table_named("sds_messages").schema)}
LATENCY = {field.name: field.type for field in exact_schema(table_named("ack_latency").schema)}
MESSAGES = rows_of(
    SDS,
    channel_id=NAMES,
    sender_id=NAMES,
    kind=st.sampled_from(["content", "sync", "ephemeral"]),
    timestamp_ns=TIMES,
    nullifier=st.sampled_from([None, b"1", b"2", b"3"]),
    share_x=st.sampled_from([b"4", b"5"]),
    payload_bytes=st.integers(0, 2**31 - 1),
    content_bytes=st.integers(0, 2**31 - 1),
    history_bytes=st.integers(0, 99),
    bloom_bytes=st.integers(0, 99),
    repair_bytes=st.integers(0, 99),
)
LATENCIES = rows_of(
    LATENCY,
    channel_id=NAMES,
    sender_id=NAMES,
    ackers=st.integers(0, 2),
    latency_ms=st.one_of(st.none(), st.integers(0, 2**62), st.integers(0, 5)),
)


def halves(table):
    return table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)


def in_parts(count, add, table):
    return add(pa.concat_tables([count(part) for part in halves(table)]))


@given(MESSAGES, LATENCIES)
def test_the_statistics_of_parts_add_up(messages, latencies):
    sums = pa.concat_tables(
        [sums_of_messages(part) for part in halves(messages)]
        + [sums_of_acknowledged(part) for part in halves(latencies)]
        + [sums_of_rows(latencies, "missing")]
    )
    counted = pa.concat_tables([latency_counts(part) for part in halves(latencies)])
    for rows, who in (
        (sender_rows(sums, counted), ("channel_id", "sender_id")),
        (channel_rows(channel_sums(added_sums(sums)), counted), ("channel_id",)),
    ):
        found = {tuple(row[name] for name in who): row for row in rows.to_pylist()}
        assert len(found) == rows.num_rows

        def of(row, who=who):
            return tuple(row[name] for name in who)

        expected = {of(row) for table in (messages, latencies) for row in table.to_pylist()}
        assert found.keys() == expected
        for key, row in found.items():
            own = [one for one in messages.to_pylist() if of(one) == key]
            acks = [one for one in latencies.to_pylist() if of(one) == key]
            assert row["sync"] == sum(one["kind"] == "sync" for one in own)
            assert row["payload_bytes"] == sum(one["payload_bytes"] for one in own)
            assert row["acknowledged"] == sum(one["ackers"] > 0 for one in acks)
            assert row["missing"] == len(acks)
            assert row["delivered"] == 0
            assert row["first_seen_ns"] == min((one["timestamp_ns"] for one in own), default=None)
            assert row["last_seen_ns"] == max((one["timestamp_ns"] for one in own), default=None)
            known = sorted(one["latency_ms"] for one in acks if one["latency_ms"] is not None)
            for percent in (50, 95, 99):
                place = ceil(Fraction(len(known) * percent, 100)) - 1
                assert row[f"latency_p{percent}_ms"] == (known[place] if known else None)
            if "senders" in row:
                assert row["senders"] == len({one["sender_id"] for one in own})


@given(MESSAGES)
def test_every_byte_goes_to_one_part(messages):
    found = in_parts(bytes_by_part, added_bytes, messages)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, added_bytes(bytes_by_part(messages)).to_pylist()))
    assert all(row["messages"] for row in found.to_pylist())
    whole: Counter = Counter()
    for row in messages.to_pylist():
        whole[row["channel_id"]] += row["payload_bytes"]
    for row in found.to_pylist():
        whole[row["channel_id"]] -= row["bytes"]
    assert not +whole
    assert not -whole


@given(MESSAGES, st.integers(1, 10**7), st.one_of(st.none(), st.integers(1, 40)))
def test_transmissions_count_in_the_epoch_of_their_timestamp(messages, epoch_ms, limit):
    found = in_parts(lambda part: transmissions(part, epoch_ms), lambda table: utilisation(table, limit), messages)
    counted, signals = Counter(), defaultdict(set)
    unproven = Counter()
    for row in messages.to_pylist():
        stamp = row["timestamp_ns"]
        timestamp_ms = stamp // 10**6 if stamp >= 0 else -(-stamp // 10**6)
        key = (row["channel_id"], row["sender_id"], timestamp_ms // epoch_ms * epoch_ms)
        counted[key] += 1
        unproven[key] += row["nullifier"] is None
        if row["nullifier"] is not None:
            signals[key].add((row["nullifier"], row["share_x"]))
    assert {tuple(row[name] for name in EPOCH): row["messages"] for row in found.to_pylist()} == counted
    for row in found.to_pylist():
        key = tuple(row[name] for name in EPOCH)
        assert row["rate_limit"] == limit
        assert row["message_ids"] == len({nullifier for nullifier, _ in signals[key]})
        assert row["double_signals"] == len(signals[key]) - row["message_ids"]  # of each there are two at most here
        charged = unproven[key] + row["message_ids"]
        assert row["charged"] == charged
        expected = None if limit is None else pytest.approx(100 * charged / limit, abs=0.0051)
        assert row["pct"] == expected


@given(st.lists(st.lists(st.sampled_from(["one", "two", "three"]), unique=True), max_size=20))
def test_what_stores_had_adds_up_and_an_empty_store_has_a_row(sources):
    names = pa.list_(pa.string())
    table = pa.table({"sources": pa.array(sources, names), "damaged": pa.array([[]] * len(sources), names)})
    parts = [*map(holdings, halves(table)), named_stores(["empty", "one"])]
    found = completeness(pa.concat_tables(parts)).to_pylist()
    expected = {"empty": 0, "one": 0} | Counter(store for stores in sources for store in stores)
    assert {row["source"]: row["messages"] for row in found} == expected
    assert all((row["known"], row["missing"]) == (len(sources), len(sources) - row["messages"]) for row in found)
