"""The outgoing stages on Spark: the schedule against a plain one, and everything through the incoming stages."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.pipeline import stages
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing import composed, outgoing_messages, refused, scheduled
from fairway.pipeline.outgoing.outgoing_messages import REASONS
from fairway.pipeline.outgoing.tables import OUTGOING_MESSAGES, PAYLOADS, SCHEDULED
from fairway.wire.waku_message import WakuMessage, message_hash

pytestmark = pytest.mark.spark

START_MS = 1_760_000_000_500
OPTIONS = replace(
    ReliableChannelOptions(),
    segmentation=SegmentationConfig(segment_size_bytes=128, parity_rate=0.25),
    bloom_filter_size=100,
)
KEYS = ChannelKeys.from_mapping(
    {name: {"cipher": "aes-256-gcm", "key": f"{number:02x}" * 32} for number, name in enumerate(("team", "files"))}
)


@pytest.mark.full
def test_a_schedule_keeps_the_one_limit_of_all_senders_and_lets_nothing_ephemeral_wait(spark):
    dice = random.Random(2)
    limit, epoch_ms = 40, 1_000
    rows = []
    for sender in range(40):
        for channel in range(dice.randint(1, 3)):
            release_ms = START_MS
            for number in range(dice.randint(1, 9)):
                release_ms += dice.choice([0, 0, 0, 400, 5_000, 60_000])
                chunks = dice.choice([1, 1, 3])
                rows += [
                    (f"c{channel}", f"s{sender}", number, chunk, f"{sender}-{channel}-{number}-{chunk}", release_ms)
                    for chunk in range(chunks)
                ]
    ephemeral = {row[4] for row in rows if row[3] == 0 and dice.random() < 0.1}  # sent whole, so chunk 0 alone
    rows = [row for row in rows if row[3] == 0 or f"{row[4][:-1]}0" not in ephemeral]
    told = {"channel_id": 0, "sender_id": 1, "payload_number": 2, "chunk_index": 3, "message_id": 4, "release_ms": 5}
    names = [part.split()[0] for part in OUTGOING_MESSAGES.split(", ")]
    others = {"seq": 0, "content_topic": "/a/1/b/proto", "pubsub_topic": "/waku/2/rs/1/0", "meta": None}
    whole = [
        tuple(
            row[told[name]]
            if name in told
            else row[4].encode()
            if name == "payload"
            else row[4] in ephemeral
            if name == "ephemeral"
            else others.get(name)
            for name in names
        )
        for row in rows
    ]
    table = spark.createDataFrame(dice.sample(whole, len(whole)), OUTGOING_MESSAGES)

    expected = {}
    used: Counter[int] = Counter()
    in_turn = sorted(rows, key=lambda row: (row[5], row[2], row[0], row[1], row[3]))
    epoch = 0
    for _, _, _, _, message_id, release_ms in in_turn:
        if message_id not in ephemeral:
            epoch = max(epoch, release_ms // epoch_ms)
            while used[epoch] >= limit:
                epoch += 1
            used[epoch] += 1
            expected[message_id] = (epoch, False)
    for _, _, _, _, message_id, release_ms in in_turn:
        if message_id in ephemeral:
            epoch = release_ms // epoch_ms
            expected[message_id] = (epoch, used[epoch] >= 0.9 * limit)
            used[epoch] += not expected[message_id][1]
    found = scheduled(table, limit, epoch_ms=epoch_ms, start_ms=START_MS).collect()
    assert {row.message_id: (row.epoch, row.dropped is not None) for row in found} == expected
    assert len({dropped for message_id, (_, dropped) in expected.items() if message_id in ephemeral}) == 2
    for row in found:
        assert row.not_after_ms == (row.epoch_start_ms + epoch_ms if row.ephemeral else None)
        assert row.not_before_ms >= row.epoch_start_ms == row.epoch * epoch_ms
        assert row.not_before_ms < row.epoch_start_ms + epoch_ms
    by_sender = defaultdict(list)
    for row in found:
        by_sender[row.sender_id].append(row)
    for own in by_sender.values():
        own.sort(key=lambda row: row.place)
        assert [row.place for row in own] == list(range(len(own)))
        stamps = [row.timestamp_ns for row in own]
        assert stamps == sorted(set(stamps))


@pytest.mark.full
def test_no_task_gets_all_messages_of_a_schedule(spark, capsys):
    scheduled(spark.createDataFrame([], OUTGOING_MESSAGES), 10, epoch_ms=1_000).explain("formatted")
    told = capsys.readouterr().out
    steps = [
        step for step in re.split(r"\n\n+", told) if re.search(r"hashpartitioning\(ephemeral#\d+, \d+\)|Single", step)
    ]
    assert steps
    assert not any("message_id" in step or "payload#" in step for step in steps)


@pytest.mark.full
def test_channels_are_composed_in_parallel_and_each_sender_of_one_in_order(spark):
    dice = random.Random(3)
    rows = [(f"c{number % 8}", "alice", number, dice.randbytes(4_000)) for number in range(1_200)]
    payloads = spark.createDataFrame(rows, "channel_id string, sender_id string, seq bigint, payload binary")
    made = outgoing_messages(composed(payloads, start_ms=START_MS)).withColumn("task", F.spark_partition_id())
    tasks = defaultdict(set)
    order = defaultdict(list)
    for row in made.select("channel_id", "task", "seq", "lamport").orderBy("lamport").collect():
        tasks[row.channel_id].add(row.task)
        order[row.channel_id].append(row.seq)
    assert all(len(own) == 1 for own in tasks.values())
    assert len(set.union(*tasks.values())) > 1
    assert all(own == sorted(own) for own in order.values())


@pytest.mark.parametrize(("given", "why"), [({"rate_limit": 0}, "rate_limit"), ({"epoch_ms": 0}, "epoch_ms")])
def test_a_schedule_that_cannot_be_is_refused(given, why):
    with pytest.raises(ConfigurationError, match=why):
        scheduled(None, **given)


@pytest.mark.full
def test_what_goes_out_comes_in_again_as_it_was_and_bad_rows_say_why(spark):
    dice = random.Random(5)
    good = [
        (channel, sender, 10 * number, dice.randbytes(dice.choice([1, 90, 500, 1_400])))
        for channel in ("team", "files")
        for sender in ("alice", "bob")
        for number in range(6)
    ]
    bad = [
        ("team", "alice", 1, b""),
        ("team", "alice", 2, None),
        ("team", "alice", 3, bytes(2_000_000)),
        ("team", "alice", None, b"x"),
        (None, "alice", 4, b"x"),
        ("team", "", 5, b"x"),
        ("team", "alice", 6, b"one"),
        ("team", "alice", 6, b"another"),
        ("team", "alice", 10, next(row[3] for row in good if row[:3] == ("team", "alice", 10))),
        ("secret", "alice", 7, b"x"),
        ("team", "a" * 300, 8, b"x"),
    ]
    rows = dice.sample([*good, *bad], len(good) + len(bad))
    payloads = spark.createDataFrame(rows, ", ".join(PAYLOADS.split(", ")[:4]))

    made = composed(payloads, OPTIONS, start_ms=START_MS, keys=KEYS).localCheckpoint()
    outgoing = outgoing_messages(made)
    planned = scheduled(outgoing, 5, epoch_ms=1_000, start_ms=START_MS).localCheckpoint()
    assert planned.schema.simpleString() == spark.createDataFrame([], SCHEDULED).schema.simpleString()
    for row in planned.limit(5).collect():
        waku = WakuMessage(payload=bytes(row.payload), content_topic=row.content_topic, timestamp_ns=row.timestamp_ns)
        assert bytes(row.message_hash) == message_hash(row.pubsub_topic, waku)

    decoded = stages.decoded(planned, keys=KEYS)
    assert decoded.where("status <> 'ok'").count() == 0
    unique = stages.sds_messages(decoded)
    missing = stages.missing_messages(unique)
    assert missing.count() == 0
    delivered = stages.delivered(unique, stages.reassembled(unique, config=_reading()))
    found = delivered.select("channel_id", "sender_id", "lamport", "payload").collect()
    in_order = defaultdict(list)
    for row in sorted(found, key=lambda row: row.lamport):
        in_order[row.channel_id, row.sender_id].append(bytes(row.payload))
    expected = defaultdict(list)
    for channel, sender, _, data in good:
        expected[channel, sender].append(data)
    assert in_order == expected

    why = Counter(row.reason for row in refused(made).collect())
    assert why == {
        "empty": 2,
        "too-large": 1,
        "no-seq": 1,
        "no-id": 2,
        "seq-twice": 3,
        "not-sealed": 1,
        "not-usable": 1,
    }
    assert set(why) <= set(REASONS)
    ids = outgoing_messages(composed(payloads, OPTIONS, start_ms=START_MS, keys=KEYS)).select("message_id", "payload")
    assert sorted(map(tuple, ids.collect())) == sorted(map(tuple, outgoing.select("message_id", "payload").collect()))


def _reading() -> SegmentationConfig:
    from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION

    return replace(ARCHIVE_SEGMENTATION, parity_rate=0.25)


def test_payloads_without_their_columns_are_refused(spark):
    table = spark.createDataFrame([("team", b"x")], "channel_id string, payload binary")
    with pytest.raises(ConfigurationError, match="no column sender_id, seq"):
        composed(table, start_ms=START_MS)
