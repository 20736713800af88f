"""Runs whose folder is in a bucket or in HDFS: the same tables as on a disk, also if they are killed and go on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from fairway.archives.export import export
from fairway.archives.restore import restore
from fairway.errors import ConfigurationError, PipelineError, StorageError
from fairway.options import SegmentationConfig
from fairway.pipeline.location import Location
from fairway.pipeline.report.findings import report_of
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.run import run
from fairway.pipeline.run.jobs import jobs
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.tables import TABLES
from fairway.storage.nwaku_archive import NwakuArchive
from grown_runs import assert_same, content
from s3_server import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHARD = "/waku/2/rs/1/0"
WAIT_S = 600
JOBS = tuple(job.name for job in jobs(RunOptions()))
ENDS = (("after", JOBS[0]), ("before", JOBS[-1]))
"""Where runs are killed, one after another."""

# Kills itself with its Java when it comes to the file that names a finished job: before it is put, or after.
DRIVER = """
import json, os, signal, sys
from contextlib import suppress
from pathlib import Path
from fairway.cli import main
from fairway.pipeline.location import Location

moment, job, *words = sys.argv[1:]
put = Location.put

def is_child(entry):
    try:
        return f"PPid:\\t{os.getpid()}\\n" in (entry / "status").read_text()
    except OSError:  # it ended since it was listed
        return False

def kill():
    children = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_child(entry)]
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

def put_or_die(self, content):
    is_reached = self.name == "attempt.json" and job in json.loads(content).get("jobs", {})
    if is_reached and moment == "before":
        kill()
    put(self, content)
    if is_reached:
        kill()

Location.put = put_or_die
sys.argv[1:] = ["pipeline", "run", *words]
main()
"""


@pytest.fixture(scope="module")
def made(log, spark, tmp_path_factory):
    """Two stores of a few channels, and the folder of a run over them on this machine."""
    folder = tmp_path_factory.mktemp("stores")
    rng = random.Random(4)
    channels = [log(f"channel-{number}") for number in range(3)]
    for number in range(60):
        rng.choice(channels).message(rng.choice(["alice", "bob", "carol"]), b"said %d" % number)
    channels[0].file("alice", rng.randbytes(1_000), SegmentationConfig(segment_size_bytes=128))
    sent = [waku for channel in channels for _, waku in channel.sent] + [channels[1].wrapped(b"\xff\xff garbage")]
    for name, left_out in (("a", 17), ("b", 13)):
        with NwakuArchive(folder / f"{name}.db") as archive:
            for number, waku in enumerate(sent):
                if number % left_out:
                    archive.append(SHARD, waku)
    sources = [f"{name}=sqlite:{folder / name}.db" for name in "ab"]
    summary = run(sources, folder / "run", spark=spark)
    assert summary.balance.adds_up
    return SimpleNamespace(folder=folder, sources=sources, summary=summary, tables=RunTables(folder / "run"))


@pytest.fixture(scope="module")
def stored(made, s3, spark):
    """The same run into a bucket."""
    bucket = s3.new_bucket()
    out = bucket.uri("runs/one")
    return SimpleNamespace(bucket=bucket, out=out, summary=run(made.sources, out, spark=spark))


def test_a_run_into_a_bucket_has_the_tables_of_one_on_a_disk(made, stored):
    assert_same(stored.out, made.folder / "run")
    assert stored.summary.balance == made.summary.balance
    assert str(stored.summary.folder) == stored.bucket.short("runs/one")


def test_the_bucket_has_the_run_and_its_tables_and_no_secret(stored):
    folders = {key.split("/")[0] for key in stored.bucket.keys("runs/one")}
    assert folders == {"run.json", "tables"}
    for key in stored.bucket.keys("runs/one"):
        if key.endswith(".json"):
            assert b"not-a-secret" not in stored.bucket.read(f"runs/one/{key}")


def test_a_file_that_no_commit_names_is_no_part_of_a_table(made, stored):
    one = stored.bucket
    name = RunTables(stored.out).files("delivered")[0].name
    one.write("runs/one/tables/delivered/part-99999-000-stray.parquet", one.read(f"runs/one/tables/delivered/{name}"))
    try:
        assert content(RunTables(stored.out), "delivered") == content(made.tables, "delivered")
    finally:
        one.remove("runs/one/tables/delivered/part-99999-000-stray.parquet")


def test_reports_exports_and_restored_stores_are_made_of_a_run_in_a_bucket(made, stored, tmp_path):
    tables = RunTables(stored.out)
    assert report_of(tables) == report_of(made.tables)
    write_html_report(stored.out, stored.bucket.uri("runs/report.html"))
    assert stored.bucket.short("runs/one").encode() in stored.bucket.read("runs/report.html")
    for form in ("files", "jsonl", "parquet"):
        export(made.tables, tmp_path / form, format=form)
        done = export(tables, stored.bucket.uri(f"exported/{form}"), format=form)
        assert done.messages == made.tables.rows("delivered")
        here = {str(path.relative_to(tmp_path / form)): path for path in (tmp_path / form).rglob("*") if path.is_file()}
        assert stored.bucket.keys(f"exported/{form}") == sorted(here)
        for key, path in here.items():
            assert stored.bucket.read(f"exported/{form}/{key}") == path.read_bytes()
    with pytest.raises(ConfigurationError, match="is there already"):
        export(tables, stored.bucket.uri("exported/files"))
    told = [
        restore(each, tmp_path / name, channel_id="channel-0", sender_id="dave")
        for each, name in ((tables, "bucket.db"), (made.tables, "disk.db"))
    ]
    assert told[0] == told[1]


def test_tables_in_a_bucket_are_dataframes_and_sources_as_well(made, stored, spark):
    tables = RunTables(stored.out)
    assert tables.dataframe(spark, "delivered").count() == tables.rows("delivered")
    assert len(tables.pandas("delivered")) == tables.rows("delivered")
    table = open_source(spark, f"parquet:{stored.bucket.uri('runs/one/tables/waku_messages')}")
    assert table.count() == made.summary.balance.rows_in


def test_a_finished_run_in_a_bucket_is_not_repeated(made, stored, spark):
    before = stored.bucket.keys()
    again = run(made.sources, stored.out, spark=spark)
    assert again.resumed == len(TABLES)
    assert stored.bucket.keys() == before


def test_a_folder_in_a_bucket_that_cannot_be_used_is_refused(made, stored, spark, bucket):
    bucket.write("other/notes.txt", b"mine")
    with pytest.raises(ConfigurationError, match=r"holds something else \(notes.txt\)"):
        run(made.sources, bucket.uri("other"), spark=spark)
    with pytest.raises(ConfigurationError, match=r"^s3://nowhere: there is no bucket 'nowhere'"):
        run(made.sources, bucket.uri("run").replace(bucket.name, "nowhere"), spark=spark)
    assert bucket.keys() == ["other/notes.txt"]


def test_a_store_that_answers_no_more_ends_the_run_in_one_sentence(made, spark):
    with ExitStack() as running:
        bucket = running.enter_context(s3_server()).new_bucket()

        def stop_the_server(progress):
            if progress.number == 2 and progress.results is None:
                running.close()

        with pytest.raises((PipelineError, StorageError), match=bucket.name) as ended:
            run(made.sources, bucket.uri("run"), spark=spark, progress=stop_the_server)
    assert "\n" not in str(ended.value)
    assert "not-a-secret" not in str(ended.value)


@pytest.fixture(params=["s3", "hdfs"])
def storage(request):
    """A folder on each storage: its URIs, the environment in which they need no secret, and where runs are killed."""
    if request.param == "hdfs":
        root = f"{request.getfixturevalue('hdfs')}/{request.node.originalname}"
        return SimpleNamespace(
            uri=lambda key: f"{root}/{key}", short=lambda key: f"{root}/{key}", environment={}, ends=ENDS[1:]
        )
    bucket = request.getfixturevalue("bucket")
    return SimpleNamespace(
        uri=bucket.uri, short=lambda key: bucket.short(key, "s3a"), environment=bucket.environment, ends=ENDS
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="finds processes in /proc")
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_tables(made, storage, spark, tmp_path):
    """The archive is there too."""
    for name in "ab":
        table = open_source(spark, f"sqlite:{made.folder / name}.db", label=name).toArrow()
        place = Location.of(storage.uri(f"stores/{name}"), "the archive")
        place.make_folder()
        with (place / "part-0.parquet").opened() as file:
            pq.write_table(table, file)
    words = [f"{name}=parquet:{storage.short(f'stores/{name}')}" for name in "ab"]
    words = ["--source", *words, "--out", storage.short("run")]
    environment = {**os.environ, **storage.environment}
    out = Location.of(storage.uri("run"), "--out")
    for attempt, (moment, job) in enumerate(storage.ends, 1):
        # Not a pipe: workers of Spark hold it open for a while when their driver and its Java are gone.
        with (tmp_path / "said").open("wb") as said:
            driver = [sys.executable, "-c", DRIVER, moment, job, *words]
            ended = subprocess.run(driver, env=environment, stdout=said, stderr=said, timeout=WAIT_S, check=False)
        assert ended.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()
        assert not (out / "run.json").is_file()
        begun = json.loads((out / "work/attempt.json").read())
        assert (begun["state"], begun["attempts"]) == ("running", attempt)
        there = files_in(out)
        for name, told in begun["tables"].items():
            folder = "work" if told["work"] else "tables"
            assert there >= {f"{folder}/{name}/{part['name']}" for part in told["parts"]}
        assert (job in begun["jobs"]) == (moment == "after")
    command = [sys.executable, "-m", "fairway", "pipeline", "run", *words]
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    ended_run = json.loads((out / "run.json").read())
    assert ended_run["attempts"] == len(storage.ends) + 1
    assert_same(storage.uri("run"), made.folder / "run")


def files_in(folder: Location) -> set[str]:
    return {folder.beneath(found) for found in folder.files(recursive=True)}


# The emulator of Google's store lacks the XML API, by which delta-rs commits.
@pytest.mark.parametrize("storage", ["hdfs", "azure"])
def test_reports_exports_and_dataframes_are_made_of_a_run_elsewhere(request, made, spark, storage):
    root = request.getfixturevalue(storage)

    def place(name: str) -> str:
        return f"{root}/whole/{name}" if storage == "hdfs" else root.format(f"whole/{name}")

    out, page = place("run"), place("report.html")
    summary = run(made.sources, out, spark=spark)
    assert summary.balance == made.summary.balance
    assert_same(out, made.folder / "run")
    tables = RunTables(out)
    write_html_report(out, page)
    assert str(tables.place).encode() in Location.of(page, "--html").read()
    for form in ("files", "parquet"):
        assert export(tables, place(form), format=form).messages == tables.rows("delivered")
    assert tables.dataframe(spark, "delivered").count() == tables.rows("delivered")
    assert run(made.sources, out, spark=spark).resumed == len(TABLES)
