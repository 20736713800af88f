"""Executors that die at random moments of a run: its tables are those of a run in which none died."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
import pyspark

from fairway.archives.backfill import BackfillOptions, backfill
from fairway.pipeline.run import RunTables, run
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.tables import TABLES
from fairway.storage.archive import ArchivedMessage
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from grown_runs import PLAN, content, generated
from patience import PATIENCE_S
from postgres_server import running_postgres
from rest_store import rest_store

pytestmark = pytest.mark.spark

PROGRAM = textwrap.dedent("""
    import os, random, signal, subprocess, sys, threading, time

    from fairway.pipeline.run import run
    from fairway.pipeline.session import create_session

    out, seed, *sources = sys.argv[1:]
    config = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "768m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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


    def kill():
        # One in each of two stages, at random moments.
        killed = set()
        while len(killed) < 2:
            for job in tracker.getActiveJobsIds():
                for stage in (tracker.getJobInfo(job) or type("none", (), {"stageIds": []})).stageIds:
                    told = tracker.getStageInfo(stage)
                    if told is None or stage in killed or not told.numActiveTasks or (killed and rng.random() > 0.5):
                        continue
                    if len(victims := executors()) == 2:
                        os.kill(rng.choice(victims), signal.SIGKILL)
                        killed.add(stage)
                        print("killed in stage", stage, "after", told.numCompletedTasks, "tasks", flush=True)
            time.sleep(0.005)


    threading.Thread(target=kill, daemon=True).start()
    summary = run(sources, out, spark=spark)
    assert summary.balance.adds_up, summary.balance
    spark.stop()
""")


@pytest.fixture(scope="module")
def rows():
    return generated(replace(PLAN, messages=2_000))


@pytest.fixture(
    scope="module",
    params=[("sqlite", "sqlite"), pytest.param(("postgresql", "http", "parquet"), marks=pytest.mark.full)],
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


def test_executors_may_die_in_any_stage(sources, spark, tmp_path, seed):
    run(sources, tmp_path / "quiet", spark=spark)
    home = tmp_path / "spark"  # executors keep their files below it
    home.mkdir()
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    left_out = ("SPARK_", "PYSPARK_")
    shell = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    for attempt in range(5):  # the stages of a quick run may all end before a kill
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), str(seed + attempt), *sources],
            env=shell | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4_000:]
        if "killed in stage" in ran.stdout:
            break
    assert "killed in stage" in ran.stdout
    quiet, killed = RunTables(tmp_path / "quiet"), RunTables(tmp_path / "killed")
    for table in TABLES:
        assert content(killed, table.name) == content(quiet, table.name), table.name
