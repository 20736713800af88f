"""Source and sink in a real Spark session: what only Spark can show."""

from __future__ import annotations

import time

import pytest

from nodes_in_threads import NodeInThread
from patience import PATIENCE_S

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway import pipeline
from fairway.errors import ConfigurationError
from fairway.pipeline import exchange
from fairway.pipeline.exchange import task_number
from fairway.pipeline.sinks import read_receipts
from fairway.pipeline.sources import open_source
from fairway.pipeline.sources.open_source import map_scan
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import Selection
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from iso_times import iso

pytestmark = pytest.mark.spark

SHARD = "/waku/2/rs/1/0"
START_NS = 1_760_000_000_000_000_000


def fill(path, numbers) -> str:
    with NwakuArchive(path) as archive:
        for number in numbers:
            archive.append(
                SHARD,
                WakuMessage(
                    payload=b"%d" % number,
                    content_topic=f"/app/1/{number % 2}/proto",
                    timestamp_ns=START_NS + number,
                ),
            )
    return f"sqlite:{path}"


def numbers(table) -> list[int]:
    return sorted(int(row.payload) for row in table.select("payload").collect())


def test_conditions_of_a_query_are_asked_of_the_archive(spark, tmp_path, capsys):
    pipeline.register(spark)
    reader = spark.read.format("waku").option("partitions", 2).option("label", "north")
    table = reader.load(fill(tmp_path / "a.db", range(20)))
    for times in (
        f"timestamp_ns >= {START_NS + 15}",
        f"timestamp >= '{iso(START_NS)}' AND timestamp_ns > {START_NS + 14}",
    ):
        found = table.where(f"{times} AND content_topic IN ('/app/1/1/proto', '/x') AND version = 0")
        assert numbers(found) == [15, 17, 19]
        capsys.readouterr()
        found.explain()
        left = capsys.readouterr().out.partition("Filter")[2].partition("\n")[0]
        assert "version" in left
        assert not any(name in left for name in ("timestamp_ns", "content_topic", ">", str(START_NS)))
    assert {row.source for row in found.collect()} == {"north"}


def test_a_pattern_of_topics_is_an_option_of_every_way_to_open_an_archive(spark, tmp_path):
    pipeline.register(spark)
    uri, pattern = fill(tmp_path / "a.db", range(6)), "/app/./1/.*"
    assert numbers(spark.read.format("waku").option("topicsPattern", pattern).load(uri)) == [1, 3, 5]
    assert numbers(open_source(spark, uri, topics_pattern=pattern)) == [1, 3, 5]


def test_several_archives_load_as_one_table(spark, tmp_path):
    pipeline.register(spark)
    one, other = fill(tmp_path / "a.db", range(5)), fill(tmp_path / "b.db", range(5, 9))
    table = spark.read.format("waku").load([one, other])
    assert numbers(table) == list(range(9))
    assert numbers(table.where(f"timestamp_ns > {START_NS + 3}")) == [4, 5, 6, 7, 8]
    assert {row.source for row in table.select("source").distinct().collect()} == {
        str(tmp_path / "a.db"),
        str(tmp_path / "b.db"),
    }


def test_of_a_large_plan_each_task_gets_its_own_part(spark, tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text("{}\n" * (number + 1))

    def counted(batches):
        yield pa.RecordBatch.from_pydict({"task": [task_number()], "rows": [sum(batch.num_rows for batch in batches)]})

    scan = scan_of(f"json:{tmp_path}/*.jsonl", Selection())
    for plan_bytes in (exchange.PLAN_BYTES, 0):
        monkeypatch.setattr(exchange, "PLAN_BYTES", plan_bytes)
        found = map_scan(spark, scan, counted, "task bigint, rows bigint", partitions=4).collect()
        assert sorted(map(tuple, found)) == [(0, 3), (1, 3), (2, 4)]


def test_a_schema_that_is_given_chooses_columns_or_is_refused(spark, tmp_path):
    pipeline.register(spark)
    uri = fill(tmp_path / "a.db", range(5))
    chosen = spark.read.format("waku").schema("payload binary, timestamp_ns bigint").load(uri)
    assert sorted((int(row.payload), row.timestamp_ns - START_NS) for row in chosen.collect()) == [
        (number, number) for number in range(5)
    ]
    for schema in ("payload string", "payload binary, name string"):
        with pytest.raises(AnalysisException, match=r"the source 'waku' has no column (payload|name) string"):
            spark.read.format("waku").schema(schema).load(uri).count()


@pytest.mark.full
def test_archives_open_by_uri_and_a_written_table_opens_again(spark, tmp_path):
    uri = fill(tmp_path / "a.db", range(20))
    table = open_source(spark, uri, label="a", since=iso(START_NS + 3), until=iso(START_NS + 8), partitions=2)
    table.write.parquet(str(tmp_path / "messages"))
    again = open_source(spark, f"parquet:{tmp_path}/messages", since=iso(START_NS + 5), topics=["/app/1/0/proto"])
    assert (numbers(table), numbers(again)) == ([3, 4, 5, 6, 7, 8], [6, 8])
    assert again.schema.simpleString() == table.schema.simpleString()
    assert {row.source for row in again.collect()} == {"a"}
    pipeline.register(spark)
    by_format = spark.read.format("waku").option("since", iso(START_NS + 5)).load(f"parquet:{tmp_path}/messages")
    assert sorted(by_format.collect()) == sorted(table.where(f"timestamp_ns >= {START_NS + 5}").collect())
    relabelled = open_source(spark, f"parquet:{tmp_path}/messages", label="b")
    assert {row.source for row in relabelled.collect()} == {"b"}
    spark.range(1).write.parquet(str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match="no column content_topic"):
        open_source(spark, f"parquet:{tmp_path}/other")
    with pytest.raises(ConfigurationError, match="known are sqlite"):
        open_source(spark, "kafka:topic")


def test_the_columns_in_the_names_of_folders_are_those_that_spark_writes(spark, tmp_path):
    rows = [(b"1", "/a/1/b/proto", "07", None), (b"2", "/a/1/b/proto", "a/b=1 %", 3), (b"3", "/a/1/b/proto", None, -1)]
    schema = "payload binary, content_topic string, source string, timestamp_ns bigint"
    table = spark.createDataFrame(rows, schema)
    table.write.partitionBy("source", "timestamp_ns").parquet(f"{tmp_path}/table")
    found = open_source(spark, f"parquet:{tmp_path}/table").select("payload", "source", "timestamp_ns").collect()
    assert sorted((bytes(row.payload), row.source, row.timestamp_ns) for row in found) == [
        (b"1", "07", 0),
        (b"2", "a/b=1 %", 3),
        (b"3", f"{tmp_path}/table", -1),
    ]


@pytest.mark.full
def test_a_stream_goes_on_where_its_checkpoint_ended(spark, tmp_path):
    pipeline.register(spark)
    uri = fill(tmp_path / "a.db", range(10))

    def run() -> list[int]:
        stream = (
            spark.readStream.format("waku")
            .option("maxOffsetsPerTrigger", 4)
            .option("minOffsetsPerTrigger", 4)
            .load(uri)
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120), "the query did not end"
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    assert run() == [4, 4, 2]
    fill(tmp_path / "a.db", range(10, 13))
    assert run() == [3]
    written = spark.read.parquet(str(tmp_path / "out"))
    assert numbers(written) == list(range(13))
    # A message that comes late is in a table.
    fill(tmp_path / "a.db", [-1])
    assert run() == []
    late = spark.read.format("waku").load(uri).join(written, "message_hash", "left_anti")
    assert numbers(late) == [-1]


@pytest.mark.full
def test_a_stream_of_files_goes_on_within_the_file_where_its_checkpoint_ended(spark, tmp_path):
    pipeline.register(spark)
    rows = open_source(spark, fill(tmp_path / "a.db", range(10)), partitions=1)
    rows.coalesce(1).write.parquet(str(tmp_path / "rows"))

    def follow(batches: int | None) -> list[int]:
        """Take some micro-batches, or all."""
        stream = spark.readStream.format("waku").option("maxOffsetsPerTrigger", 4).load(f"parquet:{tmp_path}/rows")
        sizes = []

        def write(batch, number) -> None:
            if batches is not None and number >= batches:
                raise InterruptedError
            batch.write.mode("overwrite").parquet(str(tmp_path / f"out/{number}"))
            sizes.append(batch.count())

        query = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if batches is None:
            assert query.awaitTermination(PATIENCE_S), "the query did not end"
        else:
            with pytest.raises(Exception, match="InterruptedError"):
                query.awaitTermination(PATIENCE_S)
        return sizes

    assert follow(2) == [4, 4]
    late = open_source(spark, fill(tmp_path / "b.db", range(10, 13)), partitions=1)
    late.coalesce(1).write.mode("append").parquet(str(tmp_path / "rows"))
    assert follow(None) == [2, 3]
    assert numbers(spark.read.parquet(str(tmp_path / "out/*"))) == list(range(13))


@pytest.mark.full
def test_tables_and_streams_are_sent_once_with_a_receipt_for_each_row(spark, tmp_path):
    pipeline.register(spark)
    old_ns = time.time_ns() - 600_000_000_000  # a stream leaves the newest messages for later
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number in range(12):
            archive.append(
                "/waku/2/rs/16/0",
                WakuMessage(payload=b"%d" % number, content_topic="/app/1/0/proto", timestamp_ns=old_ns + number),
            )
    table = open_source(spark, f"sqlite:{tmp_path}/a.db", partitions=2)
    with NodeInThread(archive=f"sqlite:{tmp_path / 'node.db'}") as served, NwakuArchive(tmp_path / "node.db") as kept:
        options = {"node": str(served.node.addresses[0]), "receipts": str(tmp_path / "receipts.db")}
        table.where("payload < '5'").write.format("waku").options(**options).mode("append").save()
        first = kept.count()
        stream = spark.readStream.format("waku").load(f"sqlite:{tmp_path}/a.db")
        query = (
            stream.writeStream.format("waku")
            .options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120), "the query did not end"
        assert (first, kept.count()) == (7, 12)
    receipts = read_receipts(spark, tmp_path / "receipts.db")
    assert {row.status for row in receipts.collect()} == {"sent"}
    assert receipts.join(table, "message_hash").count() == receipts.count() == 12


@pytest.mark.full
def test_a_stream_has_the_event_time_of_watermarks(spark, tmp_path):
    pipeline.register(spark)
    minute_ns = 60_000_000_000
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number in range(10):
            archive.append(
                SHARD, WakuMessage(payload=b"x", content_topic="/a/1/b/proto", timestamp_ns=number * minute_ns)
            )
    stream = spark.readStream.format("waku").option("maxOffsetsPerTrigger", 3).load(f"sqlite:{tmp_path / 'a.db'}")
    counted = stream.withWatermark("timestamp", "90 seconds").groupBy(F.window("timestamp", "1 minute")).count()
    sink = counted.selectExpr("unix_seconds(window.start) div 60 AS minute", "count").writeStream
    query = (
        sink.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "windows"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "windows")).collect()
    # The watermark is at the newest message less 90 seconds: of the later windows more may come.
    assert sorted((row.minute, row["count"]) for row in found) == [(number, 1) for number in range(7)]


def test_a_stream_that_cannot_be_ends_in_the_sentence_that_says_so(spark, tmp_path):
    """Spark has an error of its own where the reader of a stream cannot be made, and shows it last."""
    pipeline.register(spark)

    def followed(**options):
        return spark.readStream.format("waku").options(**options).load(str(tmp_path / "none.db"))

    with pytest.raises(AnalysisException, match="settleMs is a length of time") as refused:
        followed(settleMs="soon")
    query = followed().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match=r"none\.db: there is no such file") as ended:
        query.awaitTermination(PATIENCE_S)
    for error in (refused, ended):
        assert "another exception occurred" not in str(error.value)
