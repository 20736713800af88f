"""A standalone cluster of Spark on this machine: a master and some workers, each a Java process of its own.

They are children of the process that starts them, so that `benchmarks.process_tree` counts what they and their
executors take.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from fairway.pipeline.java import find_java, spark_java_home
from fairway.pipeline.session import worker_environment

_HOST = "127.0.0.1"
_DAEMON_MEMORY = "256m"
_PATIENCE_S = 120
_LOOK_AGAIN_S = 0.2
_ENDING_S = 30


@contextmanager
def standalone_cluster(folder: Path, *, workers: int, cores: int, memory_mib: int) -> Iterator[str]:
    """Start a cluster whose workers have so many cores and so much memory each, and yield its address for Spark.

    What the daemons write is in ``folder``. Raises `RuntimeError` if the cluster does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"spark://{_HOST}:{port}"
    with ExitStack() as daemons:
        master = folder / "master.log"
        started = _daemon(master, "master.Master", "--host", _HOST, "--port", f"{port}", "--webui-port", "0")
        daemons.enter_context(_ending(started))
        _wait_for(master, "I have been elected leader", started)
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            own = ["--host", _HOST, "--cores", f"{cores}", "--memory", f"{memory_mib}m", "--webui-port", "0"]
            started = _daemon(log, "worker.Worker", *own, "--work-dir", f"{folder / f'worker-{number}'}", address)
            daemons.enter_context(_ending(started))
            _wait_for(log, "Successfully registered with master", started)
        yield address


def _daemon(log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark is not installed, of which a cluster is made")
    home = Path(found.origin).parent
    environment = {
        **os.environ,
        **worker_environment(spark_java_home(find_java())),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        "SPARK_NO_DAEMONIZE": "1",
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as told:
        return subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT, env=environment)


@contextmanager
def _ending(daemon: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        daemon.terminate()
        try:
            daemon.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _wait_for(log: Path, sign: str, daemon: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while sign not in (told := log.read_text(errors="replace")):
        if daemon.poll() is not None or time.monotonic() > end_s:
            raise RuntimeError(f"a standalone cluster did not start; the end of {log}: {told[-1_000:]}")
        time.sleep(_LOOK_AGAIN_S)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((_HOST, 0))
        return int(taken.getsockname()[1])
