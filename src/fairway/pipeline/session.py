"""A Spark session in this process, configured for archives on one machine.

A program with its own session passes it to the functions of the pipeline, which work in a clone of it. For other
programs this module starts a session. Under ``spark-submit`` the cluster's settings hold.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.java import Java, archive_classes, find_java, spark_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyarrow import RecordBatch

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

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SILENT_JAVA: Final = "-Xlog:disable"
"""Java prints warnings and errors of an archive of classes that it does not use."""
_CLASS_LIST: Final = "-XX:DumpLoadedClassList="
_EXIT_S: Final = 60
"""Longest wait for the end of Java."""

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
    java = find_java()
    home = spark_java_home(java)
    settings = embedded_settings(little_java=little_java)
    archive = _class_archive(java, home)
    if archive.is_file():
        settings[_JAVA_OPTIONS] += f" -XX:SharedArchiveFile={shlex.quote(str(archive))} {_SILENT_JAVA}"
    for name, value in {**settings, **(config or {})}.items():
        builder = builder.config(name, value)
    with _environment(worker_environment(home)):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise ConfigurationError(f"Spark did not start: {error}") from error
        except BaseException as error:
            _end_java(error)
            raise


def prepare() -> Path:
    """Let later sessions on this machine start in about half the time, and return the file that they use.

    Of 7 CPU-seconds until the first result, Java needs 3 to load and verify the classes of Spark. This function starts
    a session, lists its classes, and archives them: 20 to 40 CPU-seconds, and 180 MB in the user's cache directory. It
    is needed once for each version of Java and PySpark. Raises `ConfigurationError` if this process already has a
    session, if no suitable Java is found, or if Java cannot write the archive.
    """
    if present_session() is not None:
        raise ConfigurationError("this process already has a Spark session; call 'prepare' in a new process")
    java = find_java()
    archive = _class_archive(java, spark_java_home(java))
    archive.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        names = Path(folder, "classes")
        options = f"{embedded_settings(little_java=True)[_JAVA_OPTIONS]} {_CLASS_LIST}{shlex.quote(str(names))}"
        session = create_session("fairway prepare", little_java=True, config={_JAVA_OPTIONS: options})
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no public way to its Java
        _load_classes(session)
        class_path = str(gateway.jvm.System.getProperty("java.class.path"))
        runtime = gateway.jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        arguments = [str(each) for each in runtime.getInputArguments() if not str(each).startswith(_CLASS_LIST)]
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_S)  # Java writes the end of the list when it ends
        archive_classes(java, archive, [*arguments, _SILENT_JAVA], class_path, names)
    return archive


def _class_archive(java: Java, home: Path) -> Path:
    """Return the file of the classes for sessions on ``java`` (its "CDS archive"), in the result of `spark_java_home`.

    Another Java or PySpark has another file. Java itself rejects a file that does not match its version or the jars.
    """
    key = f"{java.executable} {java.executable.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    return home / f"spark-{sha256(key.encode()).hexdigest()[:12]}.jsa"


def _load_classes(session: SparkSession) -> None:
    """Do what the jobs of a run do: tasks in Python, a shuffle, and results."""

    def same(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        yield from batches

    numbers = session.range(0, 4, 1, 4)
    shuffled = (
        numbers.mapInArrow(same, "id long").repartitionById(2, F.col("id").cast("int")).mapInArrow(same, "id long")
    )
    shuffled.unionAll(numbers).collect()
    shuffled.toArrow()


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
        _JAVA_OPTIONS: _java_options(cores, little_java=little_java),
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
