"""The first job of a run: from sources to the first three tables."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import cut, notes_of
from fairway.pipeline.run.ingesting import WRITTEN, Ingesting
from fairway.pipeline.schema import exact_schema
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
