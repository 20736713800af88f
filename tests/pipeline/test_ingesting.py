"""The first job of a run: from sources to the first three tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, cut, notes_of
from fairway.pipeline.run.ingesting import WRITTEN, Ingesting
from fairway.pipeline.run.ranges import bounds_of
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.sources.open_source import map_scan
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.stages import decoding_mapper
from fairway.pipeline.stages.deduplicated import DEDUPLICATED
from fairway.pipeline.tables.files import TableFiles
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS

pytestmark = pytest.mark.spark

SHARD = "/waku/2/rs/1/0"


@pytest.fixture
def archives(log, tmp_path):
    """Two stores: what one lacks the other has, with a message sent again, a forged one and garbage."""
    channel = log("team")
    for number in range(9):
        channel.message(("alice", "bob")[number % 2], b"message %d" % number)
    channel.message("alice", None)
    channel.file("bob", bytes(range(256)) * 4, SegmentationConfig(segment_size_bytes=384, parity_rate=0.5))
    original, first = channel.sent[0]
    again = replace(first, timestamp_ns=first.timestamp_ns + 5)
    forged = channel.wrapped(WAKU_SDS.encode(replace(original, content=b"what she did not say")))
    messages = [waku for _, waku in channel.sent]
    held = {"a": [*messages[:8], again], "b": [*messages[2:], forged, channel.wrapped(b"\xff garbage")]}
    for name, part in held.items():
        with NwakuArchive(tmp_path / f"{name}.db") as archive:
            for message in part:
                archive.append(SHARD, message)
    return {name: f"sqlite:{tmp_path / name}.db" for name in held}


def ingested(spark, archives, root, *, unique, buckets=3):
    """Run the job, and return the rows of each table and the files by the table's name."""
    files = TableFiles(root=str(root))
    job = Ingesting(files=files, keys=BucketKeys(bytes(32)), buckets=buckets, profile=None, channel_keys=None)
    sources = [partial(map_scan, spark, scan_of(uri, Selection(), name)) for name, uri in archives.items()]
    frame = job.frame(sources, unique=unique)
    assert frame.columns == [part.split()[0] for part in BLOBS.split(", ")]
    notes = notes_of(row.blob for row in frame.select("blob").collect())
    named: dict[str, list[str]] = {name: [] for name in WRITTEN}
    for told in notes:
        if "table" in told:
            named[told["table"]].append(told["file"])
    tables = {
        name: [row for table in files.read(name, own) for row in table.to_pylist()] for name, own in named.items()
    }
    return tables, named, [told["sample"] for told in notes if "sample" in told]


def test_two_stores_become_tables_in_which_each_message_is_once(spark, archives, tmp_path):
    tables, named, samples = ingested(spark, archives, tmp_path / "run", unique=False)
    waku, sds, repeats, quarantine = (tables[name] for name in WRITTEN if name != "contents")
    assert Counter((*row["sources"], row["copies"]) for row in waku) == {
        ("a", 1): 3,
        ("a", "b", 2): 6,
        ("b", 1): len(waku) - 9,
    }
    assert Counter(row["status"] for row in quarantine) == {"forged": 1, "not-sds": 1}
    assert all(row["sources"] == ["b"] for row in quarantine)
    assert len(sds) + len(repeats) + len(quarantine) == len(waku)
    assert len({row["message_hash"] for row in (*sds, *repeats, *quarantine)}) == len(waku)
    assert [row["reason"] for row in repeats] == ["retransmission"]
    kinds = Counter(row["kind"] for row in sds)
    assert kinds == {"content": len(waku) - 4, "sync": 1}
    assert {channel for sample in samples for channel, *_ in sample["places"]} == {"team"}
    assert bounds_of(samples, 3)
    for file in named["sds_messages"]:
        segments = pq.read_table(tmp_path / "run" / "tables" / "sds_messages" / file)["segment_hash"]
        assert segments.null_count in {0, len(segments)}, "whole messages and segments are in one file"


def test_a_store_alone_gives_the_same_without_the_exchange_by_hash(spark, archives, tmp_path):
    alone = {"b": archives["b"]}
    straight, _, _ = ingested(spark, alone, tmp_path / "straight", unique=True)
    cut, _, _ = ingested(spark, alone, tmp_path / "cut", unique=False, buckets=1)

    def rows(tables):
        return {name: sorted(tables[name], key=repr) for name in WRITTEN}

    assert rows(straight) == rows(cut)
    assert pa.Table.from_pylist(straight["waku_messages"])["copies"].unique().to_pylist() == [1]


@pytest.mark.full
def test_a_message_that_is_nearly_all_of_an_archive_takes_no_more_memory_than_others(log, tmp_path):
    """30,000 copies of 1 KB each: the bucket is in a file, and a megabyte of it is worked on at once."""
    channel = log("team")
    channel.message("alice", bytes(1_000))
    (_, waku) = channel.sent[0]
    rows = pa.RecordBatch.from_pylist(
        [{"payload": waku.payload, "content_topic": waku.content_topic, "timestamp_ns": 0, "message_hash": b""}] * 100,
        schema=pa.schema([field for field in exact_schema(DEDUPLICATED) if field.name != "copies"]),
    )
    (decoded,) = decoding_mapper(Profile.WAKU)(iter([rows]))
    copies = pa.Table.from_batches([decoded]).drop_columns(["status", "error"])
    place = copies.column_names.index

    def blobs():
        for number in range(300):
            table = copies.set_column(place("timestamp_ns"), "timestamp_ns", pa.array([number % 7] * 100, pa.int64()))
            hashes = pa.array([b"%05d" % (number * 100 + each) for each in range(100)], pa.binary())
            table = table.set_column(place("message_hash"), "message_hash", hashes)
            yield from cut(table, np.zeros(100, np.uint16), 1, "whole")

    files = TableFiles(root=str(tmp_path))
    job = Ingesting(
        files=files,
        keys=BucketKeys(bytes(32)),
        buckets=1,
        profile=None,
        channel_keys=None,
        spill_bytes=1 << 20,
        piece_bytes=1 << 20,
    )
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        notes = notes_of(batch.column("blob")[0].as_py() for batch in job.sight(blobs()))
    finally:
        pa.set_memory_pool(before)
    assert 0 < pool.max_memory() < 16 << 20
    named = {name: [told["file"] for told in notes if told.get("table") == name] for name in WRITTEN}
    (first,) = (row for table in files.read("sds_messages", named["sds_messages"]) for row in table.to_pylist())
    assert (first["timestamp_ns"], first["message_hash"]) == (0, b"00000")
    assert sum(table.num_rows for table in files.read("repeats", named["repeats"])) == 29_999
    (sample,) = (told["sample"] for told in notes if "sample" in told)
    assert {tuple(place[:2]) for place in sample["places"]} == {("team", channel.lamport)}


def test_a_task_gives_the_same_bytes_whatever_the_order_of_its_input(archives, tmp_path, rng):
    """Spark compares checksums of what a task gives when it runs again, and ends a job if they differ."""
    job = Ingesting(
        files=TableFiles(root=str(tmp_path)), keys=BucketKeys(bytes(32)), buckets=1, profile=None, channel_keys=None
    )
    blobs = []
    for name, uri in archives.items():
        scan = scan_of(uri, Selection(), name)
        blobs += [blob for part in scan.plan(3) for blob in job.cut_by_hash(scan.read(part))]
    assert len(blobs) > 4

    def given(rows, work):
        rng.shuffle(rows)
        return [bytes(blob) for row in work(iter(rows)) for blob in row["blob"].to_pylist()]

    for work in (job.decode_bucket, job.sight):
        found = given(blobs, work)
        files = set(tmp_path.rglob("*.*"))
        assert given(blobs, work) == found
        assert set(tmp_path.rglob("*.*")) == files
        blobs = list(work(iter(blobs)))
