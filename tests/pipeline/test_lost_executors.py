"""Executors that die at random moments of a run or a stream: its tables are those of a run in which none died."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark

from fairway.archives.backfill import BackfillOptions, backfill
from fairway.pipeline.run import RunTables, run
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.streaming import deliveries
from fairway.pipeline.tables import TABLES
from fairway.storage.archive import ArchivedMessage
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from grown_runs import PLAN, content, generated
from patience import PATIENCE_S
from postgres_server import running_postgres
from rest_store import rest_store

pytestmark = [pytest.mark.spark, pytest.mark.full]

CLUSTER = textwrap.dedent("""
    import os, random, signal, subprocess, sys, threading, time

    from fairway.pipeline.session import create_session

    out, seed, *sources = sys.argv[1:]
    checksum = "spark.sql.shuffle.orderIndependentChecksum"
    config = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "768m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Spark compares the outputs of each attempt at a task.
        "spark.shuffle.checksum.enabled": "true",
        f"{checksum}.enabled": "true",
        f"{checksum}.enableFullRetryOnMismatch": "true",
        f"{checksum}.enableQueryLevelRollbackOnMismatch": "true",
    }
    spark = create_session("lost executors", little_java=True, config=config)
    tracker, rng = spark.sparkContext.statusTracker(), random.Random(int(seed))


    def executors():
        listed = subprocess.run(["ps", "-eww", "-o", "pid,ppid,args"], capture_output=True, text=True).stdout
        children = {}
        for line in listed.splitlines()[1:]:
            pid, parent, *words = line.split(None, 2)
            children.setdefault(int(parent), []).append((int(pid), " ".join(words)))
        left, found = [os.getpid()], []
        while left:
            for pid, words in children.get(left.pop(), []):
                left.append(pid)
                if "CoarseGrainedExecutorBackend" in words and words.split()[0].endswith("java"):
                    found.append(pid)
        return found


    def kill_one(moment):
        if len(victims := executors()) < 2:
            return False
        os.kill(rng.choice(victims), signal.SIGKILL)
        print("killed", moment, flush=True)
        return True


    def kill():
        # One in the last stage of a job, after some of its tasks, and one in another stage at any moment.
        killed = set()
        while len(killed) < 2:
            for job in tracker.getActiveJobsIds():
                stages = getattr(tracker.getJobInfo(job), "stageIds", [])
                for stage in stages:
                    told = tracker.getStageInfo(stage)
                    if told is None or stage in killed or not told.numActiveTasks:
                        continue
                    is_late = len(stages) > 1 and stage == max(stages) and told.numCompletedTasks
                    is_chosen = rng.random() < (0.1 if killed else 0.5)
                    if (is_late or killed) and is_chosen and kill_one(f"in stage {stage} after {told}"):
                        killed.add(stage)
            time.sleep(0.005)
""")

RUN = CLUSTER + textwrap.dedent("""
    from deltalake import DeltaTable

    from fairway.pipeline.run import RunTables, run


    def read():
        # Readers see one whole run: the earlier one, then the new one.
        while not ended.is_set():
            tables = RunTables(out)
            for name, told in tables.manifest["tables"].items():
                table = DeltaTable(f"{out}/tables/{name}", version=told["version"])
                found = sum(batch.num_rows for batch in tables.batches(name))
                if not found == len(table.to_pandas()) == told["rows"]:
                    faults.append((name, found, told))


    ended, faults = threading.Event(), []
    reader = threading.Thread(target=read)
    reader.start()
    threading.Thread(target=kill, daemon=True).start()
    try:
        summary = run(sources, out, spark=spark, partitions=8)
        assert summary.because, summary
        assert summary.balance.adds_up, summary.balance
    finally:
        ended.set()
        reader.join()
    assert not faults, faults
    spark.stop()
""")

LIVE = CLUSTER + textwrap.dedent("""
    from fairway.pipeline.run import run
    from fairway.storage.nwaku_archive import NwakuArchive
    from fairway.wire.waku_message import WakuMessage


    def write():
        # A node adds messages of all times to its archive.
        place, more = (source.removeprefix("sqlite:") for source in sources)
        with NwakuArchive(more, read_only=True) as archive:
            left = list(archive.read())
        while left:
            with NwakuArchive(place) as archive:
                for each in [left.pop() for _ in range(min(10, len(left)))]:
                    message = WakuMessage(
                        payload=each.payload,
                        content_topic=each.content_topic,
                        timestamp_ns=each.timestamp_ns,
                        meta=each.meta,
                    )
                    archive.append(each.pubsub_topic, message, each.message_hash)
            time.sleep(0.1)


    threading.Thread(target=kill, daemon=True).start()
    threading.Thread(target=write, daemon=True).start()
    summary = run(sources[:1], out, spark=spark, partitions=8)
    assert summary.balance.adds_up, summary.balance
    spark.stop()
""")

STREAM = CLUSTER + textwrap.dedent("""
    from fairway.pipeline.streaming import StreamOptions, stream
    from fairway.pipeline.streaming.batch_table import BatchTable

    compact, killed = BatchTable.compact, []


    def compact_and_kill(table, many):
        # One while files are joined, one at any moment of a micro-batch.
        before = len(table.files(-1, table.last()))
        is_chosen = before >= many if not killed else len(killed) < 2 and rng.random() < 0.2
        if is_chosen and kill_one(f"with {before} files of {table.place}"):
            killed.append(table)
        compact(table, many)


    BatchTable.compact = compact_and_kill
    stream(sources, out, options=StreamOptions(once=True, rows_per_batch=150, join_batches=2), spark=spark)
    spark.stop()
""")


@pytest.fixture(scope="module")
def rows():
    return generated(replace(PLAN, messages=2_000))


@pytest.fixture(
    scope="module",
    params=[("sqlite", "sqlite"), ("postgresql", "http", "parquet")],
    ids=" ".join,
)
def sources(request, rows, tmp_path_factory):
    """Archives of some kinds; half of the messages of each are in another one, too."""
    folder = tmp_path_factory.mktemp("stores")
    step = rows.num_rows // (1 + len(request.param))
    with ExitStack() as left_open:
        yield [
            f"s{number}={kept(kind, folder / str(number), rows.slice(number * step, 2 * step), left_open)}"
            for number, kind in enumerate(request.param)
        ]


@pytest.fixture(scope="module")
def quiet(sources, spark, tmp_path_factory):
    """A run in which no executor dies."""
    out = tmp_path_factory.mktemp("quiet") / "run"
    run(sources, out, spark=spark)
    return RunTables(out)


def kept(kind, path, rows, left_open):
    """Return the URI of an archive with some rows."""
    if kind == "parquet":
        path.mkdir()
        pq.write_table(rows, path / "part.parquet", row_group_size=200)
        return f"parquet:{path}"
    messages = [row for row in rows.to_pylist() if row["source"] == "store-0"]
    if kind == "http":
        fields = [field.name for field in dataclasses.fields(ArchivedMessage)]
        archived = [ArchivedMessage(**{name: row[name] for name in fields}) for row in messages]
        return left_open.enter_context(rest_store(archived, page=100)).uri
    with NwakuArchive(f"{path}.db") as archive:
        for row in messages:
            message = WakuMessage(
                payload=row["payload"],
                content_topic=row["content_topic"],
                timestamp_ns=row["timestamp_ns"],
                meta=row["meta"],
            )
            archive.append(row["pubsub_topic"], message, row["message_hash"])
    if kind == "sqlite":
        return f"sqlite:{path}.db"
    server = left_open.enter_context(running_postgres())
    options = BackfillOptions(selection=Selection(start_ns=messages[0]["timestamp_ns"]))
    assert backfill(f"sqlite:{path}.db", server.uri, options=options).written
    return server.uri


def test_executors_may_die_in_any_stage_of_a_run_over_new_sources(sources, quiet, spark, tmp_path, seed):
    run(sources[:1], tmp_path / "earlier", spark=spark, partitions=8)

    def begin(out):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "earlier", out)

    run_and_kill(RUN, tmp_path, seed, sources, begin)
    assert_same(RunTables(tmp_path / "killed"), quiet)


def test_executors_may_die_while_a_node_adds_messages_to_its_archive(rows, spark, tmp_path, seed):
    is_later = pa.array([number % 2 == 1 for number in range(rows.num_rows)])
    sources = [kept("sqlite", tmp_path / "a", rows.filter(pc.invert(is_later)), ExitStack())]
    sources.append(kept("sqlite", tmp_path / "more", rows.filter(is_later), ExitStack()))
    run_and_kill(LIVE, tmp_path, seed, sources, partial(shutil.rmtree, ignore_errors=True))
    run(sources[:1], tmp_path / "killed", spark=spark)
    run(sources[:1], tmp_path / "quiet", spark=spark)
    assert_same(RunTables(tmp_path / "killed"), RunTables(tmp_path / "quiet"))


def test_executors_may_die_while_a_stream_joins_its_files(sources, quiet, tmp_path, seed):
    run_and_kill(STREAM, tmp_path, seed, sources, partial(shutil.rmtree, ignore_errors=True))
    assert_same(RunTables(tmp_path / "killed"), quiet)
    said = [row for _, table in deliveries(tmp_path / "killed") for row in table.to_pylist()]
    delivered = Counter((row["channel_id"], name) for row in said for name in row["sds_ids"])
    assert set(delivered.values()) == {1}


def assert_same(killed, quiet):
    for table in TABLES:
        assert content(killed, table.name) == content(quiet, table.name), table.name


def run_and_kill(program, folder, seed, sources, begin):
    """Run a program of two executors that kills them, into the folder ``killed``."""
    home = folder / "spark"  # executors keep their files below it
    home.mkdir()
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    left_out = ("SPARK_", "PYSPARK_")
    shell = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    for attempt in range(5):  # the stages of a quick run may all end before a kill
        begin(folder / "killed")
        ran = subprocess.run(
            [sys.executable, "-c", program, str(folder / "killed"), str(seed + attempt), *sources],
            env=shell | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4_000:]
        if "killed " in ran.stdout:
            return
    raise AssertionError("no executor was killed")
