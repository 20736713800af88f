"""Google's and Azure's object stores on loopback, by two emulators: fake-gcs-server and Azurite.

They are fetched by the clients of their registries (Go, npm), once for a machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote
from urllib.request import urlopen

from pyarrow.fs import GcsFileSystem

from fairway.pipeline.azure import azure_of
from hdfs_cluster import free_port
from patience import PATIENCE_S

_GCS: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
_AZURITE: Final = "azurite@3.37.0"
_FETCH_S: Final = 900
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that Azurite has, and its key, which its documentation publishes."""


def gcs_program() -> Path | None:
    """Return the program of fake-gcs-server, which Go builds if it is missing; None if that fails."""
    folder = _cache(_GCS.rpartition("/")[2])
    program, go = folder / "fake-gcs-server", shutil.which("go")
    if not program.is_file() and go is not None:
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": ""}
        subprocess.run([go, "install", _GCS], env=environment, capture_output=True, timeout=_FETCH_S, check=False)
    return program if program.is_file() else None


def azurite_program() -> list[str]:
    """Return the words that start Azurite's blob service, which npm installs if it is missing; none if that fails."""
    folder = _cache(_AZURITE)
    program, node, npm = folder / "node_modules/.bin/azurite-blob", shutil.which("node"), shutil.which("npm")
    if not program.is_file() and npm is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Another process of the tests may do the same now: one of them gives the folder its name.
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(made), _AZURITE]
        ended = subprocess.run(words, capture_output=True, timeout=_FETCH_S, check=False)
        with suppress(OSError):
            if not ended.returncode:
                made.rename(folder)
        shutil.rmtree(made, ignore_errors=True)
    return [node, str(program)] if node is not None and program.is_file() else []


@contextmanager
def gcs_server(program: Path) -> Iterator[str]:
    """Start Google's store with one bucket, yield the URI of that with a place for a path, and stop it."""
    port = free_port()
    words = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _running([*words, "-public-host", f"127.0.0.1:{port}"], port):
        options = {"anonymous": True, "endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "project_id": "tests"}
        GcsFileSystem(**options, default_bucket_location="US").create_dir("bucket")
        yield f"gs://anonymous@bucket/{{}}?endpoint_override=127.0.0.1%3A{port}&scheme=http&retry_limit_seconds=30"


@contextmanager
def azure_store(program: Sequence[str], path: Path) -> Iterator[str]:
    """Start Azure's store with one container and its files below a path, yield a URI like `gcs_server`, and stop it."""
    port = free_port()
    words = [*program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(path)]
    with _running([*words, "--silent", "--skipApiVersionCheck", "--disableTelemetry"], port):
        uri = f"abfs://{_ACCOUNT}:{quote(_KEY, safe='')}@127.0.0.1:{port}/container/{{}}?enable_tls=false"
        azure_of(uri.format(""))[0].create_dir("container")
        yield uri


def _cache(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairway" / name


@contextmanager
def _running(words: Sequence[str], port: int) -> Iterator[None]:
    """Run a server until the block ends; the block begins when the server answers."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            ends_s = time.monotonic() + PATIENCE_S
            while not _answers(port):
                if server.poll() is not None or time.monotonic() > ends_s:
                    raise RuntimeError(f"{words[0]} did not start")
                time.sleep(0.1)
            yield
        finally:
            server.kill()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S):
            return True
    except OSError as error:
        return hasattr(error, "code")  # the server answers, with a refusal
