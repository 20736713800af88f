"""What keeps a run from beginning or going on is told in one sentence, and nothing that was whole is lost."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from patience import PATIENCE_S

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import write_csv
from typer.testing import CliRunner

import fairway
from fairway.cli import app
from fairway.errors import (
    ConfigurationError,
    DecodeError,
    FairwayError,
    PipelineError,
    StorageError,
    StoreFullError,
    StoreQueryError,
)
from fairway.pipeline.run import RunTables, run
from fairway.pipeline.run.failures import SlowStartError, failure_of, failure_said
from fairway.pipeline.run.sources import RunSource
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS, SdsMessage
from fairway.wire.waku_message import WakuMessage, message_hash

SHARD = "/waku/2/rs/1/0"
START_NS = 1_760_000_000_000_000_000


def fill(path: Path, numbers, *, size: int = 20) -> Path:
    rng = random.Random(3)
    with NwakuArchive(path) as archive:
        for number in numbers:
            message = SdsMessage(
                message_id=f"m{number}",
                sender_id="alice",
                channel_id="team",
                lamport_timestamp=number + 1,
                content=rng.randbytes(size),
            )
            archive.append(
                SHARD,
                WakuMessage(
                    payload=WAKU_SDS.encode(message),
                    content_topic="/app/1/team/proto",
                    timestamp_ns=START_NS + number,
                ),
            )
    return path


@pytest.fixture
def store(tmp_path):
    return fill(tmp_path / "store.db", range(10))


def job(words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "fairway", "pipeline", "run", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **settings,
    )


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), StoreFullError, "no room is left for"),
        (
            sqlite3.OperationalError("database is locked"),
            StorageError,
            "another program has it for itself: database is",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), StoreFullError, "no room is left for"),
        (PermissionError(errno.EACCES, "Permission denied"), StorageError, "cannot be written"),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
            PipelineError,
            "Java process of Spark ended",
        ),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(tmp_path, error, kind, words):
    found = failure_of(error, tmp_path)
    assert type(found) is kind
    assert words in str(found)
    assert "it continues after the last finished table" in str(found)


def test_what_has_a_name_already_or_nobody_foresaw_stays_what_it_is(tmp_path):
    assert failure_of(DecodeError("x"), tmp_path) is None
    assert failure_of(ZeroDivisionError(), tmp_path) is None


UNANSWERED = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: ipv4:127.0.0.1:15002: Connection refused"
\tdebug_error_string = "UNKNOWN:Error received from peer {grpc_status:14}"
>"""


@pytest.mark.parametrize(
    ("name", "said", "kind", "words"),
    [
        (
            "SparkException",
            "[FAILED_READ_FILE] Encountered error while reading file x.",
            PipelineError,
            "run: [FAILED_READ_FILE] Encountered error while reading file x.; run the same command",
        ),
        (
            "SparkConnectGrpcException",
            UNANSWERED,
            PipelineError,
            "(UNAVAILABLE: failed to connect to all addresses; last error: ipv4:127.0.0.1:15002: Connection refused)",
        ),
        (
            "SparkException",
            "[X] Encountered error while reading file file:/one.db. No\nCaused by: a.TooLongException: 9 bytes\n",
            PipelineError,
            "run: a.TooLongException: 9 bytes (file:/one.db); run the same command",
        ),
        (
            "SparkConnectException",
            "Task 0 failed\n\tat org.apache.Spark\nCaused by: java.io.IOException: No space left on device\n",
            StoreFullError,
            "no room is left for",
        ),
        (
            "PythonException",
            "Traceback:\n  File 'x'\nfairway.errors.DecodeError: one.db is no archive\n",
            DecodeError,
            "one.db is no archive",
        ),
    ],
)
def test_what_a_server_of_spark_connect_says_is_told_in_a_sentence(tmp_path, name, said, kind, words):
    pytest.importorskip("grpc")
    from pyspark.errors.exceptions import connect

    found = failure_of(getattr(connect, name)(said), tmp_path / "run")
    assert type(found) is kind
    assert words in str(found)
    assert "\n" not in str(found)


@pytest.mark.full
def test_a_python_that_starts_too_slowly_is_told_from_one_that_fails(tmp_path):
    said = "org.apache.spark.SparkException: Python worker failed to connect back."
    failure = failure_said(said, tmp_path, "Spark gave up the query", "run the same command again")
    assert isinstance(failure, SlowStartError)
    assert str(failure).startswith("Spark gave up the query: this machine was too busy to start Python")
    assert str(failure).endswith("run the same command again")
    assert not isinstance(failure_said("a Python worker ended", tmp_path, "Spark", "again"), SlowStartError)


def test_spark_connect_and_what_it_needs_may_be_missing():
    program = (
        "import sys; sys.modules['grpc'] = None\n"
        "from pathlib import Path; from fairway.pipeline.run.failures import failure_of\n"
        "print(failure_of(ZeroDivisionError(), Path()), type(failure_of(ConnectionError(), Path())).__name__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ran.stdout.split() == ["None", "PipelineError"]


def folder(path):
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("uri", "kind", "words"),
    [
        ("sqlite:{}/none.db", ConfigurationError, "cannot be read: No such file"),
        ("parquet:{}/none", ConfigurationError, "/none: cannot be read as Parquet: there is no such file"),
        ("parquet:{}/*.none", ConfigurationError, "none: cannot be read as Parquet: there is no such file"),
        ("lip76:{}/none?cluster=2", ConfigurationError, "none: has no file 'index'; a LIP-76 folder has"),
        ("sqlite:{}", ConfigurationError, "is a folder"),
        ("sqlite:{}/store.db/in-a-file", ConfigurationError, "cannot be read: Not a directory"),
    ],
)
def test_a_source_that_is_not_there_is_named_before_spark_starts(store, tmp_path, uri, kind, words):
    with pytest.raises(kind, match=words):
        run([uri.format(store.parent)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_named(store, tmp_path):
    done = CliRunner().invoke(app, ["pipeline", "run", "--source", str(store), "--out", str(store / "run")])
    assert isinstance(done.exception, ConfigurationError)
    assert "give --out a folder that you may write to" in str(done.exception)


def test_what_is_behind_a_question_mark_is_no_path(tmp_path, monkeypatch):
    for name in ("data", "index"):
        (tmp_path / name).write_bytes(b"1")
    plain = RunSource.parse(f"lip76:{tmp_path}")
    sharded = RunSource.parse(f"lip76:{tmp_path}?cluster=2&shards=4")
    assert sharded.fingerprint() == plain.fingerprint() != []
    assert sharded.described() != plain.described()
    assert sharded.uri.endswith("?cluster=2&shards=4")
    monkeypatch.chdir(tmp_path)
    assert RunSource.parse("parquet:.").size_bytes() == 2
    named = RunSource.parse(f"parquet:file://{tmp_path}/data")
    pattern = RunSource.parse(f"parquet:{tmp_path}/d*")
    assert [[name for name, _, _ in source.fingerprint()] for source in (named, pattern)] == [["."], ["data"]]


@pytest.mark.full
@pytest.mark.spark
def test_sources_that_cannot_be_read_end_a_run_with_their_own_error(spark, store, tmp_path):
    damaged = fill(tmp_path / "damaged.db", range(2_000))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = b"\x07" * 20_000
    damaged.write_bytes(content)
    (tmp_path / "text.db").write_text("not a database " * 1_000)
    (tmp_path / "text.parquet").write_text("not a table")
    pq.write_table(pa.table({"number": [1]}), tmp_path / "other.parquet")
    (tmp_path / "empty").mkdir()
    cases = {
        "sqlite:damaged.db": DecodeError,
        "sqlite:text.db": DecodeError,
        "parquet:text.parquet": FairwayError,
        "parquet:other.parquet": ConfigurationError,
        "parquet:empty": ConfigurationError,
        "lip76:empty": ConfigurationError,
    }
    for number, (uri, kind) in enumerate(cases.items()):
        scheme, _, place = uri.partition(":")
        with pytest.raises(kind) as raised:
            run([f"{scheme}:{tmp_path / place}"], tmp_path / f"run-{number}", spark=spark)
        assert len(str(raised.value)) < 500, uri
        assert place in str(raised.value), uri


@pytest.mark.spark
@pytest.mark.parametrize("damage", ["cut off", "in the middle"])
def test_the_tables_of_a_finished_run_stay_when_its_source_cannot_be_read_any_more(spark, tmp_path, damage):
    store = fill(tmp_path / "store.db", range(300), size=400)
    run([f"a={store}"], tmp_path / "run", spark=spark)
    before = sorted(map(repr, RunTables(tmp_path / "run").all("sds_messages")))
    assert len(before) == 300
    content = store.read_bytes()
    begin = len(content) // 2
    store.write_bytes(
        content[:50] if damage == "cut off" else content[:begin] + b"\x07" * 20_000 + content[begin + 20_000 :]
    )
    for options in ({}, {"rate_limit": 5}):
        with pytest.raises(FairwayError):
            run([f"a={store}"], tmp_path / "run", spark=spark, **options)
        assert sorted(map(repr, RunTables(tmp_path / "run").all("sds_messages"))) == before
    store.write_bytes(content)
    assert run([f"a={store}"], tmp_path / "run", spark=spark, rate_limit=5).balance.adds_up
    assert RunTables(tmp_path / "run").rows("sds_messages") == 300


@pytest.mark.full
@pytest.mark.spark
def test_an_archive_that_a_node_writes_to_is_read_and_one_that_somebody_has_for_himself_is_not(spark, store, tmp_path):
    writer = sqlite3.connect(store)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM Message")
    assert run([f"a={store}"], tmp_path / "run", spark=spark).balance.rows_in == 10
    writer.rollback()
    writer.execute("PRAGMA journal_mode = DELETE")
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ConfigurationError, match="database is locked"):
        run([f"a={store}"], tmp_path / "other", spark=spark)
    writer.close()


@pytest.mark.full
@pytest.mark.spark
def test_a_source_that_grows_while_it_is_read_is_read_again_by_the_next_run(spark, tmp_path):
    store = fill(tmp_path / "store.db", range(50))

    def grow(progress):
        if progress.number == 1 and progress.results is None:
            fill(store, range(50, 60))

    first = run([f"a={store}"], tmp_path / "run", spark=spark, progress=grow)
    assert first.balance.adds_up
    assert 50 <= first.balance.rows_in <= 60
    again = run([f"a={store}"], tmp_path / "run", spark=spark)
    assert (again.resumed, again.balance.rows_in) == (0, 60)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "by"),
    [("parquet", "other bytes"), ("csv", "another file"), ("sqlite", "another file")],
)
def test_a_source_that_is_replaced_while_it_is_read_ends_the_run_whatever_its_size_and_time(spark, tmp_path, kind, by):
    file, other = (tmp_path / f"{name}.{kind}" for name in ("store", "other"))
    for path, sign in ((file, b"a"), (other, b"b")):
        messages = [WakuMessage(payload=sign * 9, content_topic="/a/1/b/proto", timestamp_ns=START_NS)]
        if kind == "sqlite":
            with NwakuArchive(path) as archive:
                archive.append(SHARD, messages[0])
            continue
        rows = {"message_hash": [message_hash(SHARD, messages[0]).hex()], "pubsub_topic": [SHARD]}
        rows |= {"content_topic": ["/a/1/b/proto"], "payload": ["YWFhYWFhYWFh" if sign == b"a" else "YmJiYmJiYmJi"]}
        table = pa.table(rows | {"timestamp": pa.array([START_NS])})
        write_csv(table, path) if kind == "csv" else pq.write_table(table, path, compression="none")
    before = file.stat()
    assert other.stat().st_size == before.st_size

    def replace(progress):
        if progress.number == 1 and progress.results is None:
            if by == "another file":
                other.replace(file)
            else:
                file.write_bytes(other.read_bytes())
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    if kind == "sqlite" and by == "other bytes":
        pytest.skip("a node writes to its archive, too")
    with pytest.raises(
        ConfigurationError, match=rf"store\.{kind}: was changed or removed after it was listed; run again"
    ):
        run([f"a={kind}:{file}"], tmp_path / "run", spark=spark, progress=replace)
    assert run([f"a={kind}:{file}"], tmp_path / "run", spark=spark).balance.rows_in == 1


@pytest.mark.full
@pytest.mark.spark
def test_of_two_runs_into_one_folder_the_second_is_refused_and_the_first_goes_on(spark, store, tmp_path):
    refused = []

    def begin_another(progress):
        if progress.number == 2 and progress.results is None:
            refused.append(job(["--source", store, "--out", tmp_path / "run"]))

    assert run([f"a={store}"], tmp_path / "run", spark=spark, progress=begin_another).balance.adds_up
    assert refused[0].returncode == 2
    assert refused[0].stderr.startswith("fairway: another run works on")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 KB."""
    disk = folder(tmp_path / "disk")
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)  # at once, whatever still has a file of it open


@pytest.mark.full
@pytest.mark.spark
def test_without_room_a_run_ends_and_goes_on_when_there_is_some(spark, small_disk, tmp_path):
    store = fill(tmp_path / "store.db", range(200), size=700)
    with pytest.raises(StoreFullError, match="no room is left for"):
        run([f"a={store}"], small_disk / "run", spark=spark)
    begun = json.loads((small_disk / "run" / "work" / "attempt.json").read_text())
    assert not (small_disk / "run" / "run.json").exists()
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    summary = run([f"a={store}"], small_disk / "run", spark=spark)
    assert summary.resumed == len([name for name, told in begun["tables"].items() if not told["work"]])
    assert summary.balance.delivered == 200


def test_an_error_of_a_task_is_shown_as_its_text_whatever_its_class():
    class BusyError(StoreQueryError):
        """An error of another module."""

    BusyError.__module__, BusyError.__qualname__ = "fairway.nodes.rest.store_client", "BusyError"
    said = "".join(traceback.format_exception(BusyError("http://127.0.0.1:8645: the node answers 500: busy")))
    error = failure_said(f"{said}\n\tat org.apache.spark.Task", Path("run"), "Spark ended", "go on")
    assert (type(error), str(error)) == (PipelineError, "http://127.0.0.1:8645: the node answers 500: busy")


def test_an_error_that_only_java_names_is_shown_with_its_cause():
    said = (
        "An error occurred while calling o613.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 7 has no place\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)\n"
    )
    error = failure_said(said, Path("run"), "Spark ended", "go on")
    assert "Task 7 has no place; go on" in str(error)


@pytest.mark.spark
def test_executors_with_another_version_of_fairway_are_refused_by_name(spark, tmp_path, monkeypatch):
    archive = fill(tmp_path / "a.db", range(3))
    there = fairway.__version__  # which the workers imported before
    monkeypatch.setattr(fairway, "__version__", "9.9.9")
    told = f"an executor has fairway {there}, and the driver 9.9.9: install the same version on all"
    with pytest.raises(PipelineError, match=re.escape(told)):
        run([f"sqlite:{archive}"], tmp_path / "run", spark=spark)
