"""The same run in Sparks that somebody else set up: a cluster of two executors, and Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

import fairway
from fairway.pipeline.java import find_java, spark_java_home
from fairway.pipeline.run.reading import RunTables

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.xdist_group("other sparks")]

PROGRAM = Path(fairway.__file__).with_name("__main__.py")
SOURCE_CODE = str(PROGRAM.parents[1])
PATIENCE_S = 300
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What a test of a hundred rows gains nothing from: compiled stages, and more tasks than cores.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def archives(log, tmp_path_factory):
    """Two stores, so that the pipeline shuffles; one message is in neither."""
    from fairway.storage.nwaku_archive import NwakuArchive

    folder = tmp_path_factory.mktemp("stores")
    channel = log("team")
    for number in range(12):
        channel.message(("alice", "bob", "carol")[number % 3], b"message %d" % number)
    messages = [waku for _, waku in channel.sent]
    del messages[4]
    held = {"a": messages[:8], "b": [*messages[3:], channel.wrapped(b"\xff garbage")]}
    for name, part in held.items():
        with NwakuArchive(folder / f"{name}.db") as archive:
            for message in part:
                archive.append("/waku/2/rs/1/0", message)
    return [f"{name}=sqlite:{folder / name}.db" for name in held]


def check(folder: Path) -> None:
    """The tables are those of the archives above."""
    tables = RunTables(folder)
    assert tables.balance.adds_up
    assert (tables.balance.rows_in, tables.balance.duplicates, tables.balance.quarantined) == (17, 5, 1)
    assert sorted(row["size_bytes"] for row in tables.all("delivered", ["size_bytes"])) == [9] * 9 + [10] * 2
    (missing,) = tables.all("missing_messages", ["channel_id", "cited_by"])
    assert missing == {"channel_id": "team", "cited_by": 2}
    stores = tables.all("store_completeness", ["source", "messages", "known"])
    assert sorted(map(tuple, map(dict.values, stores))) == [("a", 8, 12), ("b", 9, 12)]


def environment(**changes: str) -> dict[str, str]:
    """What a user's shell would have, without what this process set up for its own Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    java = str(spark_java_home(find_java()))
    return kept | {"JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": SOURCE_CODE, **changes}


def test_spark_submit_runs_the_job_on_executors_of_their_own(archives, tmp_path):
    # Executors keep their files below the home of Spark: this one is a folder of links to the installed one.
    home, events, out = tmp_path / "spark", tmp_path / "events", tmp_path / "run"
    home.mkdir()
    events.mkdir()
    installed = Path(pyspark.__file__).parent
    for part in ("bin", "jars", "python"):
        (home / part).symlink_to(installed / part)
    settings = SMALL | {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,512]", "--driver-memory", "512m"]
    command += ["--driver-java-options", QUICK_START]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += [str(PROGRAM), "pipeline", "run", "--json", *archives, "--out", str(out)]
    ran = subprocess.run(
        command,
        env=environment(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    printed = ran.stdout[ran.stdout.index("{\n") :]  # spark-submit prints progress there, too
    assert json.loads(printed)["balance"]["adds_up"] is True
    check(out)
    (events_file,) = events.iterdir()
    told = [json.loads(line) for line in events_file.read_text().splitlines()]
    by_executor = Counter(
        event["Task Info"]["Executor ID"] for event in told if event["Event"] == "SparkListenerTaskEnd"
    )
    assert set(by_executor) == {"0", "1"}, "tasks ran somewhere else than on the two executors"


CONNECT = """
import sys
from pyspark.sql import SparkSession
from fairway.errors import ConfigurationError
from fairway.pipeline import register, stages
from fairway.pipeline.run import run

spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__
out, *sources = sys.argv[1:]
for name, value in {settings}.items():
    spark.conf.set(name, value)
register(spark)
path = sources[0].partition("sqlite:")[2]
decoded = spark.read.format("waku").load(path).transform(stages.decoded)
assert decoded.where("status = 'ok'").count() == 8
print(run(sources, out).balance)  # in the active session
try:
    run(["parquet:" + path], out + "-of-no-table")
except ConfigurationError as error:
    print("refused:", error)
spark.stop()
"""


SHARED = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from pyspark.sql import SparkSession
from fairway.pipeline.run import run
from fairway.pipeline.streaming import StreamOptions, stream

kind, out, *sources = sys.argv[1:]
builder = SparkSession.builder
spark = (builder.remote("local[2]") if kind == "connect" else builder.master("local[2]")).getOrCreate()
for name, value in {settings}.items():
    spark.conf.set(name, value)
settings, together, changed = spark.conf.getAll, Barrier(4), []


def look(progress):
    now = spark.conf.getAll
    changed.extend(name for name in settings | now if settings.get(name) != now.get(name))


def work(number):
    together.wait()
    given = {{"spark": spark}} if number % 2 else {{}}
    if number < 2:
        run(sources, f"{{out}}-{{number}}", progress=look, **given)
    else:
        stream(sources, f"{{out}}-{{number}}", options=StreamOptions(once=True), progress=look, **given)


with ThreadPoolExecutor(4) as threads:
    list(threads.map(work, range(4)))
look(None)
assert not changed, changed
assert SparkSession.active() is spark
assert spark.range(3).count() == 3
spark.stop()
"""


def ran_apart(folder, *arguments):
    """Return the output of Python in a process of its own: one process has a Spark of its own or speaks to a server."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        env=environment(
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_SUBMIT_ARGS=f'--driver-memory 768m --driver-java-options "{QUICK_START}" pyspark-shell',
        ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return ran.stdout


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_two_runs_and_two_streams_at_once_leave_the_settings_of_their_session_alone(archives, tmp_path, kind):
    if kind == "connect":
        pytest.importorskip("grpc_status")
        pytest.importorskip("zstandard")
    settings = {name: value for name, value in SMALL.items() if name.startswith("spark.sql.")}
    ran_apart(tmp_path, "-c", SHARED.format(settings=settings), kind, str(tmp_path / "out"), *archives)
    for number in range(4):
        check(tmp_path / f"out-{number}")


def test_spark_connect_runs_the_stages_and_the_whole_pipeline(archives, tmp_path):
    pytest.importorskip("grpc")
    pytest.importorskip("grpc_status")
    pytest.importorskip("zstandard")
    settings = {name: value for name, value in SMALL.items() if name.startswith("spark.sql.")}
    code = CONNECT.format(settings=settings)
    printed = ran_apart(tmp_path, "-W", "error::UserWarning", "-c", code, str(tmp_path / "run"), *archives)
    assert "17 rows in =" in printed
    (sentence,) = (line for line in printed.splitlines() if line.startswith("refused: "))
    assert "a.db: cannot be read as Parquet" in sentence
    check(tmp_path / "run")
