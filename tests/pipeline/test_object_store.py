"""The pipeline over an object store: a real server of the S3 API, which other processes reach as well."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, Selection
from iso_times import iso

HASHES = [bytes([number]) * 32 for number in range(12)]


def messages(*numbers: int) -> pa.Table:
    rows = [
        {
            "message_hash": HASHES[number],
            "pubsub_topic": "/waku/2/rs/1/0",
            "content_topic": f"/tests/1/{number % 2}/proto",
            "payload": b"%d" % number,
            "version": 0,
            "timestamp_ns": 1_000 + number,
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([*arrow_schema(WAKU_MESSAGES)][:7]))


@pytest.fixture
def archive(bucket):
    """Twelve messages in two files, in row groups of four."""
    for name, numbers in (("part-0", range(10)), ("part-1", range(10, 12))):
        pq.write_table(
            messages(*numbers),
            f"{bucket.name}/archive/{name}.parquet",
            filesystem=bucket.filesystem,
            row_group_size=4,
        )
    return bucket


def payloads(rows) -> list[int]:
    return sorted(int(row["payload"]) for row in rows)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_tasks_read_a_table_of_messages_from_a_bucket(archive, spark, scheme):
    table = open_source(spark, f"parquet:{archive.uri('archive', scheme)}", label="a", partitions=3)
    assert payloads(table.collect()) == list(range(12))
    assert {row.source for row in table.collect()} == {"a"}
    some = open_source(
        spark, f"parquet:{archive.uri('archive')}", since=iso(1_003), until=iso(1_010), topics=["/tests/1/0/proto"]
    )
    assert payloads(some.collect()) == [4, 6, 8, 10]


def test_the_name_of_a_table_has_no_secret(archive):
    scan = scan_of(f"parquet:{archive.uri('archive')}", Selection())
    assert scan.source == archive.short("archive")
    assert "not-a-secret" not in repr(scan) + scan.source
    assert "not-a-secret" not in json.dumps(RunSource.parse(f"parquet:{archive.uri('archive')}").described())


def test_a_source_that_gains_a_file_is_another_one(archive):
    source = RunSource.parse(f"a=parquet:{archive.uri('archive')}")
    before = source.fingerprint()
    assert [name for name, _, _ in before] == ["part-0.parquet", "part-1.parquet"]
    assert source.size_bytes() == sum(size for _, size, _ in before) > 0
    archive.write("archive/part-2.parquet", b"more")
    assert source.fingerprint() != before
    (single,) = RunSource.parse(f"parquet:{archive.uri('archive/part-0.parquet')}").fingerprint()
    assert single == [".", *before[0][1:]]


@pytest.mark.parametrize(
    ("key", "told"),
    [("nothing", "there is no such file or folder"), ("archive/none-*.parquet", "there is no such file or folder")],
)
def test_a_source_that_cannot_be_listed_says_why(archive, key, told):
    with pytest.raises(ConfigurationError, match=told):
        RunSource.parse(f"parquet:{archive.uri(key)}").fingerprint()


def test_what_is_no_table_of_messages_is_named(archive, spark):
    archive.write("other/part-0.parquet", b"no Parquet")
    with pytest.raises(
        ConfigurationError, match=rf"{archive.short('other/part-0.parquet')}: cannot be read as Parquet"
    ):
        open_source(spark, f"parquet:{archive.uri('other')}")
