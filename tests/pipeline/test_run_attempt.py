"""An attempt at a run takes the jobs that are left, and copies tables into formats that Spark writes."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from fairway.options import SegmentationConfig
from fairway.pipeline.run import run
from fairway.pipeline.run.attempt import BUCKET_BYTES, buckets_for
from fairway.pipeline.tables import TABLES
from fairway.storage.nwaku_archive import NwakuArchive
from grown_runs import assert_same

pytestmark = pytest.mark.spark

SHARD = "/waku/2/rs/1/0"


@pytest.fixture(scope="module")
def made(log, spark, tmp_path_factory):
    """A run over one store, with a message in segments of which one is lost."""
    folder = tmp_path_factory.mktemp("attempts")
    channel = log("team")
    for number in range(6):
        channel.message(("alice", "bob")[number % 2], b"message %d" % number)
    pieces = channel.file("bob", bytes(range(256)) * 4, SegmentationConfig(segment_size_bytes=384))
    with NwakuArchive(folder / "store.db") as archive:
        for message, waku in channel.sent:
            if message is not pieces[1]:
                archive.append(SHARD, waku)
    source = f"a=sqlite:{folder / 'store.db'}"
    return SimpleNamespace(source=source, out=folder / "run", summary=run([source], folder / "run", spark=spark))


def test_a_folder_that_lost_a_table_is_made_anew(made, spark, tmp_path):
    out = shutil.copytree(made.out, tmp_path / "run")
    shutil.rmtree(out / "tables" / "delivered")
    summary = run([made.source], out, spark=spark)
    assert (summary.mode, summary.because) == ("whole", "a file of the tables in the folder is gone or damaged")
    assert summary.balance == made.summary.balance
    assert_same(out, made.out)


def test_the_run_names_a_version_of_each_table_and_no_other_file_is_there(made):
    tables = json.loads((made.out / "run.json").read_text())["tables"]
    assert set(tables) == {table.name for table in TABLES}
    for name, told in tables.items():
        table = DeltaTable(made.out / "tables" / name, version=told["version"])
        there = {str(file) for file in (made.out / "tables" / name).glob("*.parquet")}
        assert there == set(table.file_uris())
        assert len(there) == told["files"]


@pytest.mark.parametrize(
    ("sizes", "cores", "wanted", "buckets"),
    [
        ([100], 4, None, 1),
        ([BUCKET_BYTES // 4], 4, None, 4),
        ([BUCKET_BYTES], 4, None, 16),
        ([20 * BUCKET_BYTES, 20 * BUCKET_BYTES], 4, None, 40),
        ([10**15], 4, None, 2_048),
        ([0, BUCKET_BYTES], 4, None, 64),
        ([0, 100 * BUCKET_BYTES], 4, None, 100),
        ([0], 100, None, 400),
        ([0], 4, 7, 7),
        ([100], 4, 10**6, 2_048),
    ],
)
def test_there_are_as_many_buckets_as_the_sources_are_large_and_the_cluster(sizes, cores, wanted, buckets):
    sources: list[Any] = [SimpleNamespace(size_bytes=lambda size=size: size) for size in sizes]
    assert buckets_for(sources, cores, wanted) == buckets
