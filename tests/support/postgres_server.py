"""A PostgreSQL server for tests, if the machine has its programs."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairway.storage.archive import ArchivedMessage
from patience import PATIENCE_S

SCHEMA = """
CREATE TABLE messages (
    pubsubTopic VARCHAR NOT NULL, contentTopic VARCHAR NOT NULL, payload VARCHAR, version INTEGER NOT NULL,
    id VARCHAR NOT NULL, messageHash VARCHAR NOT NULL, timestamp BIGINT NOT NULL, meta VARCHAR DEFAULT NULL,
    CONSTRAINT messageIndex PRIMARY KEY (messageHash, timestamp)
)
"""
INSERT = (
    "INSERT INTO messages (id, messageHash, pubsubTopic, contentTopic, payload, version, timestamp, meta)"
    " VALUES ('0', %s, %s, %s, %s, %s, %s, %s)"
)


@contextmanager
def postgres_archive() -> Iterator[tuple[str, Callable[[Iterable[ArchivedMessage]], None]]]:
    """Start a server with nwaku's table; yield its URI, and a function that puts messages into the table."""
    psycopg = pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")
    with running_postgres() as server, psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(SCHEMA)

        def put(messages: Iterable[ArchivedMessage]) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(INSERT, [_columns(kept) for kept in messages])

        yield server.uri, put


def _columns(kept: ArchivedMessage) -> tuple[object, ...]:
    return (
        kept.message_hash.hex(),
        kept.pubsub_topic,
        kept.content_topic,
        kept.payload.hex(),
        kept.version,
        kept.timestamp_ns,
        kept.meta.hex() if kept.meta else None,
    )


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server for the block; skip the test if the machine has none."""
    pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")
    programs, user = server_programs(), server_user()
    if programs is None or user is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql (its programs and the user 'postgres')")
    folder = Path(tempfile.mkdtemp(prefix="fairway-pg-"))
    server = None
    try:
        shutil.chown(folder, user)
        server = PostgresServer(programs, folder, user)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder)


def server_programs() -> Path | None:
    candidates = [Path(found).parent] if (found := shutil.which("initdb")) else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "postgres").exists()), None)


def server_user() -> str | None:
    """PostgreSQL refuses to run as root; Debian's package brings the user for it."""
    if os.geteuid() != 0:
        return getpass.getuser()
    pwd = pytest.importorskip("pwd")
    try:
        return str(pwd.getpwnam("postgres").pw_name)
    except KeyError:
        return None


class PostgresServer:
    """A server of our own, reached by a socket in its folder; it can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path, user: str) -> None:
        self.uri = f"postgresql://fairway@/postgres?host={folder}"
        self._programs, self._folder = programs, folder
        run_as: dict[str, Any] = {"user": user} if os.geteuid() == 0 else {}
        self._quiet: dict[str, Any] = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "cwd": folder,
            **run_as,
        }
        self._process: subprocess.Popen[Any] | None = None
        # The locale may sort text in another order than by bytes; hashes must still sort by bytes.
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "fairway", "-E", "UTF8", "--no-sync"],
            check=True,
            timeout=PATIENCE_S,
            **self._quiet,
        )

    def start(self) -> None:
        psycopg = pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")
        settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(self._folder)]
        self._process = process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._folder / "data", *settings], **self._quiet
        )
        ends_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_s:
            try:
                psycopg.connect(self.uri).close()
            except psycopg.OperationalError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
            else:
                return
        pytest.fail("the server did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # SIGTERM would wait for connections that a failed test left open
            self._process.wait(timeout=PATIENCE_S)
            self._process = None
