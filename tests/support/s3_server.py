"""An object store of Amazon's interface on loopback: moto's server, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from pyarrow.fs import FileSelector, FileSystem

_LISTENS: Final = re.compile(r"Running on http://(127\.0\.0\.1:\d+)")
_NUMBERS: Final = count(1)


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server."""

    name: str
    address: str
    """HOST:PORT of the server."""
    key: str = "tests"
    secret: str = "not-a-secret"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which any client finds the server and may use it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }

    def uri(self, key: str, scheme: str = "s3") -> str:
        """A URI with the secret and the endpoint; other processes need no environment."""
        return f"{scheme}://{self.key}:{self.secret}@{self.name}/{key}?endpoint_override={self.address}&scheme=http"

    def short(self, key: str, scheme: str = "s3") -> str:
        """A URI without the secret, for display; a client that uses it needs `environment`."""
        return f"{scheme}://{self.name}/{key}"

    @property
    def filesystem(self) -> FileSystem:
        return FileSystem.from_uri(self.uri(""))[0]

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of the objects below a prefix, relative to it."""
        folder = f"{self.name}/{prefix}".rstrip("/")
        found = self.filesystem.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
        return sorted(one.path.removeprefix(f"{folder}/") for one in found if one.is_file)

    def read(self, key: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.name}/{key}") as file:
            return bytes(file.read())

    def write(self, key: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.name}/{key}") as file:
            file.write(content)

    def remove(self, key: str) -> None:
        self.filesystem.delete_file(f"{self.name}/{key}")


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    address: str

    def new_bucket(self) -> Bucket:
        bucket = Bucket(f"bucket-{next(_NUMBERS)}", self.address)
        FileSystem.from_uri(f"{bucket.uri('')}&allow_bucket_creation=true")[0].create_dir(bucket.name)
        return bucket


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server on a free port, and stop it."""
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        told: list[str] = []
        try:
            for line in server.stderr:
                told.append(line)
                if listens := _LISTENS.search(line):
                    break
            else:
                raise RuntimeError(f"the S3 server did not start: {''.join(told)}")
            # The server prints a line for each request, and blocks if the pipe is full.
            reader = threading.Thread(target=lambda: [None for _ in server.stderr or ()], daemon=True)
            reader.start()
            yield S3Server(listens[1])
        finally:
            server.kill()
        reader.join()
