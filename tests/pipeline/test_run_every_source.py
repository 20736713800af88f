"""The same messages behind every kind of URI: ``fairway pipeline run`` makes the same tables of them.

PostgreSQL is a real server that lives as long as these tests, where its programs are; the store node is one that
answers as nwaku does, over HTTP.
"""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest

from patience import PATIENCE_S

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from fairway import pipeline
from fairway.cli import app
from fairway.options import SegmentationConfig
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.sources import open_source
from fairway.pipeline.tables import TABLES
from fairway.storage.archive import ArchivedMessage
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash
from grown_runs import assert_same, content
from iso_times import iso
from lip76_writing import write_lip76
from postgres_server import postgres_archive
from rest_store import rest_store

pytestmark = [pytest.mark.spark, pytest.mark.full]

KINDS = ("lip76", "http", "parquet", "postgresql")


@pytest.fixture(scope="module")
def messages(log):
    """Two channels, a file in segments, something that is no message, and a loss; as archives keep them."""
    rng = random.Random(5)
    channels = [log("team"), log("other")]
    for number in range(40):
        rng.choice(channels).message(rng.choice(["alice", "bob"]), b"said %d" % number)
    channels[0].file("alice", rng.randbytes(900), SegmentationConfig(segment_size_bytes=128))
    channels[0].message("bob", b"thanks")
    sent = [waku for channel in channels for number, (_, waku) in enumerate(channel.sent) if number != 5]
    sent.append(channels[1].wrapped(b"\xff\xff garbage"))
    kept = []
    for waku in sent:
        shard = autoshard(waku.content_topic, 1, 8)
        told = {name: getattr(waku, name) for name in ("content_topic", "payload", "timestamp_ns")}
        hashed = message_hash(shard, waku)
        kept.append(ArchivedMessage(message_hash=hashed, pubsub_topic=shard, version=0, meta=None, **told))
    return sorted(kept, key=lambda message: message.cursor)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("every-source")


@pytest.fixture(scope="module")
def sqlite(messages, folder):
    with NwakuArchive(folder / "store.db") as archive:
        for kept in messages:
            told = {name: getattr(kept, name) for name in ("content_topic", "payload", "timestamp_ns")}
            archive.append(kept.pubsub_topic, WakuMessage(**told))
    return f"sqlite:{folder / 'store.db'}"


@pytest.fixture(scope="module")
def lip76(messages, folder):
    write_lip76(folder / "lip76", messages)
    return f"lip76:{folder / 'lip76'}?cluster=1&shards=8"


@pytest.fixture(scope="module")
def parquet(sqlite, spark, folder):
    open_source(spark, sqlite, label="whoever").write.parquet(str(folder / "rows"))
    return f"parquet:{folder / 'rows'}"


@pytest.fixture(scope="module")
def http(messages):
    """A store node that gives pages of seven messages."""
    with rest_store(messages) as store:
        yield store.uri


@pytest.fixture(scope="module")
def postgresql(messages):
    """A PostgreSQL with nwaku's table."""
    with postgres_archive() as (uri, put):
        put(messages)
        yield uri


def pipeline_run(out, *sources):
    """Let the command do its work, in the session of the tests, and return what it prints."""
    words = [word for source in sources for word in ("--source", source)]
    done = CliRunner().invoke(app, ["pipeline", "run", *words, "--out", str(out), "--json"])
    assert done.exit_code == 0, (done.exception, done.output)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(spark, sqlite, folder, messages):
    told = pipeline_run(folder / "expected", f"store={sqlite}")
    return SimpleNamespace(out=folder / "expected", balance=told["balance"], tables=told["tables"])


def test_the_tables_of_sqlite_hold_what_was_put_in(expected, messages):
    assert expected.balance["rows_in"] == len(messages)
    assert expected.balance["quarantined"] == 1
    assert expected.tables["delivered"]["rows"] == 40 + 2 - 2
    assert expected.tables["missing_messages"]["rows"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_gives_the_tables_of_sqlite(request, expected, tmp_path, kind):
    uri = request.getfixturevalue(kind)
    told = pipeline_run(tmp_path / "run", f"store={uri}")
    assert told["balance"] == expected.balance
    assert_same(tmp_path / "run", expected.out)


def test_several_stores_at_once_are_one_archive_that_remembers_who_had_what(
    sqlite, lip76, http, parquet, expected, messages, tmp_path
):
    uris = {"a": sqlite, "b": lip76, "c": http, "d": parquet}
    told = pipeline_run(tmp_path / "run", *(f"{label}={uri}" for label, uri in uris.items()))
    assert told["balance"] == expected.balance | {
        "rows_in": 4 * len(messages),
        "duplicates": 3 * len(messages),
        "formula": expected.balance["formula"]
        | {"in": 4 * len(messages), "duplicates": 3 * len(messages) + expected.balance["retransmissions"]},
    }
    tables = RunTables(tmp_path / "run")
    with_sources = {"waku_messages", "quarantine", "store_completeness"}
    for table in TABLES:
        if table.name not in with_sources:
            assert content(tables, table.name) == content(RunTables(expected.out), table.name), table.name
    stores = tables.all("store_completeness")
    assert {row["source"]: (row["messages"], row["missing"]) for row in stores} == dict.fromkeys(
        uris, (len(messages), 0)
    )
    assert {tuple(row["sources"]) for row in tables.all("waku_messages")} == {tuple(uris)}


@pytest.mark.parametrize("kind", ["sqlite", *KINDS])
def test_every_kind_of_source_is_a_stream_that_gives_each_message_once(request, spark, messages, tmp_path, kind):
    pipeline.register(spark)

    def follow(most: int) -> list[int]:
        rows = spark.readStream.format("waku").option("maxOffsetsPerTrigger", most).load(request.getfixturevalue(kind))
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(PATIENCE_S), "the query did not end"
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    taken = follow(30)
    assert sum(taken) == len(messages)
    assert max(taken) <= 30
    assert follow(30) == []
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.message_hash) for row in found) == sorted(kept.message_hash for kept in messages)


def test_every_option_of_the_format_selects_what_it_says(spark, sqlite, parquet, messages, folder):
    pipeline.register(spark)

    def read(**options):
        found = spark.read.format("waku").options(**options).load(sqlite)
        return sorted(
            (row.timestamp_ns, bytes(row.message_hash))
            for row in found.select("timestamp_ns", "message_hash").collect()
        )

    def offset(message):
        return json.dumps({"timestamp": message.timestamp_ns, "hash": message.message_hash.hex()})

    places = [(message.timestamp_ns, message.message_hash) for message in messages]
    first, last = messages[4], messages[30]
    assert read(
        since=iso(first.timestamp_ns),
        UNTIL=iso(last.timestamp_ns),
        partitions=3,
        label="north",
    ) == [place for place in places if first.timestamp_ns <= place[0] <= last.timestamp_ns]
    assert read(startingOffsets=offset(first), endingOffsets=offset(last), failOnDataLoss="false") == places[5:31]
    topic = "/tests/1/team/proto"
    of_team = [(kept.timestamp_ns, kept.message_hash) for kept in messages if kept.content_topic == topic]
    assert (
        read(
            topics=f"{topic}, /none",
            pubsubTopic=autoshard(topic, 1, 8),
            channels="team",
            startingOffsets="earliest",
        )
        == of_team
    )
    for uri in (sqlite, parquet):
        found = open_source(spark, uri, channels=["team", "none"]).select("timestamp_ns", "message_hash").collect()
        assert sorted((row.timestamp_ns, bytes(row.message_hash)) for row in found) == of_team
    gone = json.dumps({"timestamp": 1, "hash": "ab" * 32})
    assert read(startingOffsets=gone, failOnDataLoss="false") == places
    with pytest.raises(Exception, match="dropped unread"):
        read(startingOffsets=gone)
