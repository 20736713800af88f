"""A Spark session in this process, set up for archives on one machine.

A program with a session of its own passes it to the functions of the pipeline, which use it unchanged. This module
starts one for all others. Under ``spark-submit`` it sets only the name, and the cluster's settings hold.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.java import find_java, spark_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_APP_NAME: Final = "fairway"

MAX_RECORDS_PER_BATCH: Final = 1_000
"""Rows in one Arrow batch. A message has up to 150 KiB, so a batch up to 150 MiB; more rows gain no speed."""
MAX_SHUFFLE_PARTITIONS: Final = 64
"""Spark's default of 200 is for clusters; each one costs a task."""
WRITTEN_TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark writes instants as other tools do, with statistics, and not as INT96."""
SHORT_JOB_BYTES: Final = 268_435_456
"""An input of less makes a job of seconds, for `create_session`."""
TASK_ATTEMPTS: Final = 4
"""As on a cluster. A local master gives a task one attempt by default, so that a killed Python worker ends the job."""

WORKER_DAEMON: Final = "fairway.pipeline.worker_daemon"
"""What forks the Python workers of a session on this machine."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The parallel collector suits batch work; and G1, the default, can corrupt data in Java 25 before 25.0.3 (JDK-8377811,
# for which Spark's documentation advises against those), and nothing newer is on PyPI.
_COLLECTOR: Final = "-XX:+UseParallelGC"
# Where Java only passes on what Python works on, hardly anything survives a collection. Several threads then mostly
# wait for each other, and take the cores from the workers.
_COLLECTOR_OF_LITTLE_JAVA: Final = "-XX:+UseSerialGC"
_FEW_CORES: Final = 4
"""With more cores more tasks wait while one thread collects."""

# The first of the JVM's two compilers only: the second does not pay for itself in a job of seconds, nor where Java only
# passes on what Python works on.
_LITTLE_JAVA_OPTION: Final = "-XX:TieredStopAtLevel=1"

# Workers keep the memory that they had: they work on one table of some megabytes after the other, and to give back and
# get again the pages of each costs more time than to copy them. Arrow takes its memory from mimalloc, because the GNU C
# library, whose variables are those of MALLOC, gets any value of 32 MiB or more anew.
_WORKER_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_THRESHOLD_": str(33_554_432),
    "MALLOC_TRIM_THRESHOLD_": str(4_294_967_296),
    "MALLOC_TOP_PAD_": str(67_108_864),
    # Large pages, which take a sixth of the page faults (glibc 2.35 and later; others pass over it).
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def create_session(
    app_name: str = DEFAULT_APP_NAME, *, little_java: bool = False, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session that is already active in this process, or start one.

    ``little_java`` starts a session for work of seconds, or for work that Python does; ``config`` overrides single
    settings, by Spark's names. Raises `ConfigurationError` when there is no Java that Spark runs on or Spark does not
    start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program and knows master and memory
        return builder.getOrCreate()
    for name, value in {**embedded_settings(little_java=little_java), **(config or {})}.items():
        builder = builder.config(name, value)
    with _environment(worker_environment(spark_java_home(find_java()))):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise ConfigurationError(f"Spark did not start: {error}") from error
        except BaseException as error:
            _end_java(error)
            raise


@contextmanager
def session_or_own(
    spark: SparkSession | None,
    app_name: str = DEFAULT_APP_NAME,
    *,
    little_java: bool = False,
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Return the caller's session, or the active one, or a new one that ends with the block."""
    borrowed = spark or SparkSession.getActiveSession()
    session = borrowed or create_session(app_name, little_java=little_java, config=config)
    try:
        yield session
    finally:
        if borrowed is None:
            with suppress(ConnectionError):  # its Java process is gone
                session.stop()


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks the session's Spark runs at once; over Spark Connect, which does not tell, as here."""
    return spark.sparkContext.defaultParallelism if isinstance(spark, SparkSession) else machine.cores()


def with_own_settings(spark: SparkSession) -> SparkSession:
    """Return a session of the same Spark with settings of its own, so that the caller's hold for the caller alone.

    Over Spark Connect it is the same session.
    """
    return spark.newSession() if isinstance(spark, SparkSession) else spark


@contextmanager
def lent_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session inside a block, and restore them after it: the session may be the caller's."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def embedded_settings(*, little_java: bool = False) -> dict[str, str]:
    """Return the settings of a session on this machine."""
    cores = machine.cores()
    # The JVM takes what it is given, whether it needs it or not.
    memory_mib = machine.jvm_memory_to_pass_on_mib(cores) if little_java else machine.jvm_memory_mib()
    return {
        "spark.master": f"local[{cores},{TASK_ATTEMPTS}]",
        "spark.driver.memory": f"{memory_mib}m",
        "spark.driver.extraJavaOptions": _java_options(cores, little_java=little_java),
        # Without these settings Spark listens on all interfaces.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # By default Spark gives a task up after 15 s without an answer of its own worker, which is too short on a busy
        # machine.
        "spark.python.authenticate.socketTimeout": "10m",
        "spark.python.daemon.module": WORKER_DAEMON,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(min(2 * cores, MAX_SHUFFLE_PARTITIONS)),
        # Where Spark may join small partitions afterwards it begins with many, so that what one task sorts stays small
        # whatever the size of the input.
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(MAX_SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_RECORDS_PER_BATCH),
        # It tells why a shuffle's file was damaged on its way to another machine.
        "spark.shuffle.checksum.enabled": "false",
        # Python compressed the columns of blobs before.
        "spark.shuffle.compress": "false",
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_MEMORY.items()},
    }


def _end_java(interrupt: BaseException) -> None:
    """Kill the Java process that was being started when an interrupt came.

    Spark removes the folder in which that process would tell its port, and with it fails to start but does not end. It
    is nowhere to be had but in the frames that the interrupt left.
    """
    for frame, _ in walk_tb(interrupt.__traceback__):
        for value in list(frame.f_locals.values()):
            if isinstance(value, Popen):
                value.kill()
                value.wait()


def _java_options(cores: int, *, little_java: bool) -> str:
    collector = _COLLECTOR_OF_LITTLE_JAVA if little_java and cores <= _FEW_CORES else _COLLECTOR
    compilers = [_LITTLE_JAVA_OPTION] if little_java else []
    return " ".join([collector, *compilers, f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"])


def worker_environment(java_home: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables under which Spark and its Python workers start."""
    # Workers import the very code that the driver runs, installed or not.
    own_code = str(Path(__file__).parents[2])
    return {
        # Spark would start `python3` from the path, which need not be this interpreter nor have its packages.
        "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [own_code, environ.get("PYTHONPATH")])),
        "JAVA_HOME": str(java_home),
    }


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables while Spark starts, which copies them, and put back what was there."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
