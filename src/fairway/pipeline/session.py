"""A Spark session in this process, configured for archives on one machine.

A program with its own session passes it to the functions of the pipeline, which work in a clone of it. For other
programs this module starts a session. Under ``spark-submit`` the cluster's settings hold.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
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
"""Largest number of shuffle partitions, each of which costs a task; Spark's default of 200 is for clusters."""
WRITTEN_TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Setting for instants in microseconds, with statistics, as other tools write them, instead of INT96."""
SHORT_JOB_BYTES: Final = 268_435_456
"""Size of the input below which a job takes seconds (``little_java`` of `create_session`)."""
TASK_ATTEMPTS: Final = 4
"""Attempts at a task, as on a cluster. The default of a local master is one, so a killed worker would end the job."""

WORKER_DAEMON: Final = "fairway.pipeline.worker_daemon"
"""Module that forks the Python workers of a session on this machine."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The parallel collector suits batch work. G1, the default, can corrupt data in Java 25 before 25.0.3 (JDK-8377811;
# Spark's documentation advises against these versions), and PyPI has no newer one.
_COLLECTOR: Final = "-XX:+UseParallelGC"
# If Java only passes on the data of Python, few objects survive a collection. Several collector threads then mostly
# wait for each other, and take the cores from the workers.
_COLLECTOR_OF_LITTLE_JAVA: Final = "-XX:+UseSerialGC"
_FEW_CORES: Final = 4
"""Most cores for the serial collector; with more cores, more tasks wait for its single thread."""

# Only the first of the JVM's two compilers: the second one costs more than it saves in a job of seconds, or if Java
# only passes on the data of Python.
_LITTLE_JAVA_OPTION: Final = "-XX:TieredStopAtLevel=1"

# Workers keep their memory: they process one table of some megabytes after the other, and returning and requesting the
# pages of each table costs more time than copying it. Arrow uses mimalloc, because the GNU C library, which the MALLOC
# variables configure, requests memory anew for any value of 32 MiB or more.
_WORKER_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_THRESHOLD_": str(33_554_432),
    "MALLOC_TRIM_THRESHOLD_": str(4_294_967_296),
    "MALLOC_TOP_PAD_": str(67_108_864),
    # Large pages, with a sixth of the page faults (glibc 2.35 and later; others ignore it).
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def create_session(
    app_name: str = DEFAULT_APP_NAME, *, little_java: bool = False, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session of this process, or start one.

    ``little_java`` starts a session for jobs of seconds, or for jobs that run mostly in Python; ``config`` overrides
    settings, by Spark's names. Raises `ConfigurationError` if no suitable Java is found or Spark does not start.
    """
    present = present_session()
    if present is not None:
        return present
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program, and sets master and memory
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
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Yield a session with ``settings`` (of Spark SQL) for the block alone.

    It is a clone of the caller's session, or else of the session of this process, which stay as they are; without
    either, it is a new one. Raises the errors of `create_session`.
    """
    given = spark or present_session()
    session = create_session(app_name, little_java=little_java) if given is None else _clone_of(given)
    try:
        for name, value in (settings or {}).items():
            session.conf.set(name, value)
        yield session
    finally:
        with suppress(ConnectionError, Py4JError):  # its Java process is gone
            if given is None:
                session.stop()
            else:
                _end_clone(session, given)


def present_session() -> SparkSession | None:
    """Return the active session of this thread, or else the default one of this process; None if none is running."""
    with suppress(PySparkRuntimeError):
        session = SparkSession.active()
        if not isinstance(session, SparkSession) or session.sparkContext._jsc is not None:  # noqa: SLF001 - else stopped
            return session
    return None


def _clone_of(session: Any) -> SparkSession:
    if isinstance(session, SparkSession):
        # PySpark has a method only for the clone of a session of Spark Connect.
        return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001
    session.conf.get("spark.sql.session.timeZone")  # the server creates a session at its first call
    clone: SparkSession = session.cloneSession()
    return clone


def _end_clone(clone: Any, session: SparkSession) -> None:
    if not isinstance(clone, SparkSession):
        # Its method ``stop`` would end an embedded server.
        clone.client.release_session()
        clone.client.close()
    elif SparkSession.getActiveSession() is clone:
        session.createDataFrame([], "nothing int")  # makes the session active again


def cores_of(spark: SparkSession) -> int:
    """Return the number of concurrent tasks of the session; for Spark Connect, which hides it, this machine's cores."""
    return spark.sparkContext.defaultParallelism if isinstance(spark, SparkSession) else machine.cores()


def embedded_settings(*, little_java: bool = False) -> dict[str, str]:
    """Return the settings of a session on this machine."""
    cores = machine.cores()
    # The JVM uses all memory that it gets, so a session with little work in Java gets less.
    memory_mib = machine.jvm_memory_to_pass_on_mib(cores) if little_java else machine.jvm_memory_mib()
    return {
        "spark.master": f"local[{cores},{TASK_ATTEMPTS}]",
        "spark.driver.memory": f"{memory_mib}m",
        "spark.driver.extraJavaOptions": _java_options(cores, little_java=little_java),
        # Without these settings Spark listens on all interfaces.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # By default Spark fails a task after 15 s without an answer of its worker, which is too short on a busy
        # machine.
        "spark.python.authenticate.socketTimeout": "10m",
        "spark.python.daemon.module": WORKER_DAEMON,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(min(2 * cores, MAX_SHUFFLE_PARTITIONS)),
        # Adaptive queries start with many partitions and coalesce small ones, so that one task never sorts much data.
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(MAX_SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_RECORDS_PER_BATCH),
        # Shuffle checksums only diagnose files damaged on the way to another machine.
        "spark.shuffle.checksum.enabled": "false",
        # To compare the outputs of repeated tasks, Spark hashes every shuffled byte: 8 % of the CPU of a run. Here no
        # executor can be lost with its outputs.
        **{
            f"spark.sql.shuffle.orderIndependentChecksum.{name}": "false"
            for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch")
        },
        # The columns of blobs are compressed in Python.
        "spark.shuffle.compress": "false",
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_MEMORY.items()},
    }


def _end_java(interrupt: BaseException) -> None:
    """Kill the Java process whose start was interrupted.

    Spark removes the folder into which this process writes its port; the process then fails to start but does not end.
    Only the frames in the traceback of the interrupt still reference it.
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
    # Workers import the same code as the driver, installed or not.
    own_code = str(Path(__file__).parents[2])
    return {
        # By default Spark starts `python3` from the path, which may be another interpreter without these packages.
        "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [own_code, environ.get("PYTHONPATH")])),
        "JAVA_HOME": str(java_home),
    }


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables while Spark starts and copies them, then restore the old values."""
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
