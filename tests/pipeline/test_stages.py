"""The stages one by one, on rows made for them, in a real Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError
from fairway.options import Profile, SegmentationConfig
from fairway.pipeline import stages
from fairway.pipeline.schema import columns_of, exact_ddl
from fairway.pipeline.sources import WAKU_MESSAGES, open_source
from fairway.pipeline.stages.sds_messages import WITH_CONTENT
from fairway.pipeline.tables import table_named
from fairway.protocol.segmentation.reassembler import MAX_REMEMBERED_SENDINGS
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import MAX_SEGMENTS, WAKU_SEGMENTS
from fairway.wire.waku_message import WakuMessage, message_hash

pytestmark = pytest.mark.spark

FIRST_NS, LAST_NS = -(2**63), 2**63 - 1


@pytest.fixture
def sds(spark):
    """Return a function that makes ``sds_messages`` of some fields of each row."""
    columns = columns_of(WITH_CONTENT)

    def make(*given: dict):
        defaults = dict.fromkeys(columns) | {
            "channel_id": "team",
            "kind": "content",
            "sender_id": "alice",
            "timestamp_ns": 0,
            "payload_bytes": 100,
            "history_bytes": 0,
            "repair_bytes": 0,
            "bloom_bytes": 0,
            "content_bytes": 0,
            "causal_history": [],
        }
        rows = [defaults | {"message_hash": b"%d" % number} | row for number, row in enumerate(given)]
        return spark.createDataFrame([tuple(row[name] for name in columns) for row in rows], WITH_CONTENT)

    return make


@pytest.fixture
def repeats(spark):
    """Return a function that makes ``repeats`` of some fields of each row."""
    table = table_named("repeats")

    def make(*given: dict):
        defaults = dict.fromkeys(table.columns) | {"channel_id": "team", "payload_bytes": 100}
        rows = [defaults | {"message_hash": b"%d" % number} | row for number, row in enumerate(given)]
        return spark.createDataFrame([tuple(row[name] for name in table.columns) for row in rows], table.schema)

    return make


def cites(*message_ids: str) -> list[tuple]:
    return [(message_id, None, None) for message_id in message_ids]


def test_a_message_is_kept_once_as_it_has_its_hash_with_every_store_that_had_it(spark):
    def row(number, source, *, damage=None, topic="/topic"):
        payload = f"payload {number}".encode()
        message = WakuMessage(payload=payload, content_topic=topic, timestamp_ns=number)
        digest = message_hash("/shard", message)
        return (digest, "/shard", topic, payload if damage is None else damage, 0, number, None, None, source)

    table = spark.createDataFrame(
        [
            row(1, "b"),
            row(1, "a"),
            row(1, "a"),
            row(2, "b"),
            # Of two stores the one whose name comes first has it damaged, and then both have.
            row(3, "a", damage=b""),
            row(3, "b"),
            row(4, "a", damage=b"one"),
            row(4, "b", damage=b"other"),
        ],
        exact_ddl(WAKU_MESSAGES),
    )
    kept = {row.timestamp_ns: row for row in table.transform(stages.deduplicated).collect()}
    assert {number: (row.sources, row.damaged, row.copies) for number, row in kept.items()} == {
        1: (["a", "b"], [], 3),
        2: (["b"], [], 1),
        3: (["b"], ["a"], 2),
        4: ([], ["a", "b"], 2),
    }
    assert bytes(kept[3].payload) == b"payload 3"
    told = stages.store_completeness(table.transform(stages.deduplicated), ["a", "b", "empty"]).collect()
    assert {(row.source, row.messages, row.damaged, row.known, row.missing) for row in told} == {
        ("a", 1, 2, 3, 2),
        ("b", 3, 1, 3, 0),
        ("empty", 0, 0, 3, 3),
    }
    statuses = (
        table.transform(stages.deduplicated).transform(stages.decoded).select("timestamp_ns", "status", "sources")
    )
    assert {(row.timestamp_ns, row.status, tuple(row.sources)) for row in statuses.collect()} == {
        (1, "not-sds", ("a", "b")),
        (2, "not-sds", ("b",)),
        (3, "not-sds", ("b",)),
        (4, "hash-mismatch", ("a", "b")),
    }
    # A table of messages that was not deduplicated is checked as well.
    alone = table.transform(stages.decoded).where("status = 'hash-mismatch'").select("timestamp_ns", "sources")
    assert {(row.timestamp_ns, *row.sources) for row in alone.collect()} == {(3, "a"), (4, "a"), (4, "b")}


def test_a_session_may_have_wide_types_of_arrow(spark, log, write_archive):
    team = log("team")
    for number in range(20):
        team.message(("alice", "bob")[number % 2], b"x" * number)
    archive = write_archive([waku for _, waku in team.sent[:7] + team.sent[8:]])
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        decoded = stages.decoded(stages.deduplicated(open_source(spark, f"sqlite:{archive}")))
        unique = stages.sds_messages(decoded)
        missing = stages.missing_messages(unique)
        ordered = stages.sds_ordered(unique, missing)
        counts = [frame.count() for frame in (decoded, unique, missing, ordered)]
        evidence = stages.bloom_evidence(open_source(spark, f"sqlite:{archive}"))
        assert [*counts, evidence.count()] == [19, 19, 1, 18, 0]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def test_a_stage_that_needs_all_rows_refuses_a_stream_and_decoding_takes_one(spark, tmp_path):
    stream = spark.readStream.schema(exact_ddl(WAKU_MESSAGES)).parquet(str(tmp_path))
    decoded = stages.decoded(stream)
    assert decoded.isStreaming
    for stage, frame in ((stages.deduplicated, stream), (stages.sds_messages, decoded)):
        with pytest.raises(ConfigurationError, match="this stage needs all rows, and a stream comes in micro-batches"):
            stage(frame)


def test_what_else_stands_under_an_id_is_in_the_quarantine(spark):
    schema = stages.DECODED
    defaults: dict[str, object] = dict.fromkeys(columns_of(schema))
    defaults |= {"status": "ok", "kind": "content", "channel_id": "team", "sources": ["a"]}
    given: list[dict[str, object]] = [
        {"message_id": "m1", "sender_id": "alice", "content": b"first", "timestamp_ns": 2},
        {"message_id": "m1", "sender_id": "mallory", "content": b"first", "timestamp_ns": 3},
        {"message_id": "m1", "sender_id": "alice", "content": b"first", "timestamp_ns": 4},
        {"message_id": "m2", "sender_id": "alice", "content": b"second", "timestamp_ns": 5},
        {"status": "not-sds", "error": "garbage", "kind": None, "channel_id": None},
    ]
    rows = [defaults | {"message_hash": b"%d" % number} | row for number, row in enumerate(given)]
    decoded = spark.createDataFrame([tuple(row.values()) for row in rows], schema)
    sds_messages, repeats = decoded.transform(stages.sds_messages), decoded.transform(stages.repeats)
    assert {bytes(row.message_hash) for row in sds_messages.collect()} == {b"0", b"3"}
    assert {(bytes(row.message_hash), row.message_id) for row in repeats.collect()} == {(b"2", "m1")}
    told = stages.quarantine(decoded, sds_messages, repeats).collect()
    assert {(bytes(row.message_hash), row.status, row.error, tuple(row.sources)) for row in told} == {
        (b"1", "forged", "another message stands under the id m1", ("a",)),
        (b"4", "not-sds", "garbage", ("a",)),
    }


def test_timestamps_at_the_ends_of_time_end_nothing_else(sds, repeats):
    messages = sds(
        {"message_id": "m1", "timestamp_ns": FIRST_NS},
        {"message_id": "m2", "timestamp_ns": LAST_NS, "sender_id": "bob", "causal_history": cites("m1")},
        {"message_id": "m3", "timestamp_ns": 0, "sender_id": "bob"},
        {"message_id": "m4", "timestamp_ns": 1_500_000, "sender_id": "alice", "causal_history": cites("m2", "m3")},
    )
    latency = stages.ack_latency(messages, stages.acknowledgements(messages)).collect()
    assert {row.message_id: row.latency_ms for row in latency} == {"m1": None, "m2": 0, "m3": 1, "m4": None}
    epochs = stages.rate_utilisation(messages, repeats(), epoch_ms=1_000, limit=4).collect()
    assert all(row.epoch_start_ms % 1_000 == 0 for row in epochs)
    assert sum(row.messages for row in epochs) == 4
    assert {row.pct for row in epochs} == {25.0}


@pytest.mark.parametrize("wrong", [{"epoch_ms": 0}, {"limit": 0}])
def test_an_impossible_rate_limit_is_refused(sds, repeats, wrong):
    with pytest.raises(ConfigurationError, match="must be positive"):
        stages.rate_utilisation(sds({"message_id": "m1"}), repeats(), **wrong)


def test_segments_beyond_what_can_be_told_apart_are_counted(sds):
    limit = MAX_SEGMENTS * MAX_REMEMBERED_SENDINGS
    small = SegmentationConfig(segment_size_bytes=64, parity_rate=0.0)
    first, second = (part.content for part in Segmenter(small, WAKU_SEGMENTS).split(bytes(100)).segments)
    header = WAKU_SEGMENTS.decode(first)
    rows = [
        {
            "message_id": f"m{number:04}",
            "lamport": number,
            "timestamp_ns": number,
            "profile": "waku",
            "segment_hash": header.payload_hash,
            "segment_index": number % 2,
            "is_parity": False,
            "content": (first, second)[number % 2],
        }
        for number in range(limit + 3)
    ]
    table = sds(*rows)
    for profile in (None, Profile.WAKU):
        told = stages.reassembled(table, profile).collect()
        assert sum(row.held for row in told) == len(rows)
        assert [row.held for row in told if row.outcome == "excess"] == [3]


def test_a_limit_that_lets_nothing_through_is_refused(sds):
    messages = sds({"message_id": "m1"})
    with pytest.raises(ConfigurationError, match="max_channel_bytes must be positive, not 0"):
        stages.sds_ordered(messages, stages.missing_messages(messages), max_channel_bytes=0)


def test_a_channel_of_any_size_has_the_log_of_one_that_fits_in_memory(sds):
    def message(channel_id, number):
        clocks, lost = {700: 3}, {10: ["gone"]}  # one clock jumps back, and one message is lost
        cited = [*(f"{earlier:04}" for earlier in range(max(0, number - 2), number)), *lost.get(number, [])]
        return {
            "message_hash": f"{channel_id} {number}".encode(),
            "channel_id": channel_id,
            "message_id": f"{number:04}",
            "lamport": clocks.get(number, number),
            "causal_history": [(message_id, None, None) for message_id in cited],
        }

    table = sds(*(message(name, number) for name, count in (("a", 3), ("large", 1_000)) for number in range(count)))
    missing = stages.missing_messages(table)
    whole, parts = (
        stages.sds_ordered(table, missing, max_channel_bytes=limit).orderBy("channel_id", "position").collect()
        for limit in (2**40, 20_000)
    )
    assert parts == whole
    large = [row for row in parts if row.channel_id == "large"]
    assert [row.message_id for row in large] == [f"{number:04}" for number in range(1_000)]
    assert [row.status for row in large] == ["complete"] * 10 + ["waiting"] * 990
