"""HDFS on loopback: the mini cluster of Hadoop's own tests, a name node and a data node in one Java process.

Maven downloads its jars, 90 MB, once for a machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairway.pipeline.java import find_java
from patience import PATIENCE_S

HADOOP: Final = "3.4.1"
_ARTIFACTS: Final = (
    f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "org.slf4j:slf4j-api:1.7.36",
    "commons-logging:commons-logging:1.2",
    "junit:junit:4.13.2",
)
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_FETCH_S: Final = 900


def jars() -> list[Path]:
    """Return the jars of the mini cluster, which Maven fetches if they are missing; none without Maven."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairway" / f"hadoop-{HADOOP}"
    maven = shutil.which("mvn")
    for artifact in _ARTIFACTS:
        group, name, version = artifact.split(":")
        if (cache / f"{name}-{version}.jar").is_file():
            continue
        if maven is None:
            return []
        words = [maven, "-q", "-B", _PLUGIN, f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={cache}"]
        ended = subprocess.run(words, capture_output=True, timeout=_FETCH_S, check=False)
        if ended.returncode:
            return []
    return sorted(cache.glob("*.jar"))


@contextmanager
def hdfs_cluster(path: Path, classes: list[Path]) -> Iterator[str]:
    """Start a cluster that keeps its files below a path, yield its URI, and stop it."""
    names, pages = free_port(), free_port()
    words = [str(find_java().executable), "-Xmx512m", "-cp", os.pathsep.join(map(str, classes))]
    words += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    words += ["-nnport", str(names), "-httpport", str(pages)]
    words += [f"-Dhadoop.tmp.dir={path / 'tmp'}", f"-Dhdfs.minidfs.basedir={path / 'dfs'}"]
    words += ["-writeDetails", str(path / "started.json")]
    path.mkdir(parents=True, exist_ok=True)
    with (path / "log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log, cwd=path) as cluster:
        try:
            ends_s = time.monotonic() + 4 * PATIENCE_S
            while not (path / "started.json").is_file():
                if cluster.poll() is not None or time.monotonic() > ends_s:
                    raise RuntimeError(f"the HDFS cluster did not start: {(path / 'log').read_text()}")
                time.sleep(0.1)
            yield f"hdfs://127.0.0.1:{names}"
        finally:
            cluster.kill()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
