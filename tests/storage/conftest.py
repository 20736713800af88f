"""What the tests of channel stores put into them, how they wait for it to be durable, and a PostgreSQL server."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairway.events import MessageReceived
from fairway.protocol.effects import Change
from fairway.storage.channel_store import StoredRequest, Write
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S

OWNER = ("harbour", "alice", "/fairway/1/harbour/proto")


class Keeper:
    """An open store, and the answers that it gave."""

    def __init__(self, store, owner=OWNER):
        self.store = store
        self.owner = owner
        self.stored = store.open(*owner)
        self.answers = []
        self._answered = threading.Condition()

    def submit(self, **parts):
        self.store.submit(Write(**parts), self._done)

    def _done(self, error):
        with self._answered:
            self.answers.append(error)
            self._answered.notify_all()

    def wait(self, count):
        """Wait until so many writes were answered."""
        with self._answered:
            assert self._answered.wait_for(lambda: len(self.answers) >= count, PATIENCE_S), "a write was not answered"

    def keep(self, **parts):
        """Make something durable, and return the store's answer."""
        expected = len(self.answers) + 1
        self.submit(**parts)
        self.wait(expected)
        return self.answers[-1]

    def reopen(self):
        """Close the store and open it again, as the next life of its program would."""
        self.store.close()
        self.stored = self.store.open(*self.owner)
        return self.stored

    @property
    def rows(self):
        return {(change.table, change.key): change.row for change in self.stored.changes}


def put(key, *row, table="history"):
    return Change(table=table, key=key, row=row)


def removed(key, table="history"):
    return Change(table=table, key=key, row=None)


def received(number=1, **fields):
    return MessageReceived(
        **{
            "message_id": f"message-{number}",
            "sender_id": "bob",
            "channel_id": "harbour",
            "content_topic": OWNER[2],
            "payload": f"payload {number}".encode(),
            "timestamp_ns": 1_760_000_000_000_000_000 + number,
            "message_hashes": (bytes([number % 256]) * 32,),
            "sds_ids": (f"sds-{number}-0", f"sds-{number}-1"),
            **fields,
        }
    )


def request(number=1, **fields):
    ids = {"request_id": f"request-{number}", "message_id": f"message-{number}"}
    return StoredRequest(**{**ids, "size_bytes": 5, "accepted_at_ms": 1_760_000_000_000 + number, **fields})


class Make:
    """Makes the parts of writes."""

    owner = OWNER
    put = staticmethod(put)
    removed = staticmethod(removed)
    received = staticmethod(received)
    request = staticmethod(request)


@pytest.fixture(scope="session")
def make():
    return Make


@pytest.fixture
def path(tmp_path):
    return tmp_path / "alice.db"


@pytest.fixture
def keeper():
    """Open stores, and close them when the test ends."""
    kept = []

    def of(store, owner=OWNER):
        kept.append(store)
        return Keeper(store, owner)

    yield of
    for store in kept:
        store.close()


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request, path):
    """Make a store of each kind."""
    return MemoryStore if request.param == "memory" else lambda **bounds: SqliteStore(path, **bounds)


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
        return pwd.getpwnam("postgres").pw_name
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
        # A locale whose order is not that of bytes, where there is one, is what the order of hashes must survive.
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "fairway", "-E", "UTF8", "--no-sync"],
            check=True,
            timeout=PATIENCE_S,
            **self._quiet,
        )

    def start(self):
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

    def stop(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # SIGTERM would wait for connections that a failed test left open
            self._process.wait(timeout=PATIENCE_S)
            self._process = None


@pytest.fixture(scope="session")
def postgres():
    """Start a server that lives as long as the tests of this folder."""
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
