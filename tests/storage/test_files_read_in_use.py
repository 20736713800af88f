"""Writes survive `kill -9`, although the process and other programs read the files meanwhile."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from fairway.errors import StorageError, StoreLockedError
from fairway.rln.message_ids import MessageIds
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S

# Opens a file of each kind; carries out one command a line, and answers with a line.
PROGRAM = """
import os, shutil, sys, threading
from pathlib import Path
from fairway.rln.message_ids import MessageIds
from fairway.storage.channel_store import StoredRequest, Write
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.sqlite_store import SqliteStore
from fairway.wire.waku_message import WakuMessage

kind, path, numbers = sys.argv[1], Path(sys.argv[2]), iter(range(100))


def send(store):
    answered, number = threading.Semaphore(0), next(numbers)
    request = StoredRequest(request_id=f"{number}", message_id="m", size_bytes=1, accepted_at_ms=1)
    store.submit(Write(requests=(request,)), lambda error: answered.release())
    answered.acquire()


def archive(file):
    message = WakuMessage(payload=b"%d" % next(numbers), content_topic="/a/1/b/proto", timestamp_ns=1)
    file.append("/waku/2/rs/1/0", message)
    file.flush()


if kind == "store":
    opened, write = SqliteStore(path), send
    opened.open("harbour", "alice", "/fairway/1/harbour/proto")
elif kind == "archive":
    opened, write = NwakuArchive(path), archive
else:
    opened, write = MessageIds(path), lambda ids: ids.reserve(bytes(32), 1, 100, b"%d" % next(numbers))

for line in sys.stdin:
    match line.split():
        case ["write"]:
            write(opened)
        case ["read"]:
            for file in sorted(path.parent.iterdir()):
                file.read_bytes()
        case ["read", name]:
            path.with_name(name).read_bytes()
        case ["fork"]:
            child = os.fork()
            if child == 0:
                opened.close()
                os._exit(0)
            os.waitpid(child, 0)
    print("done", flush=True)
"""

# Another program that knows nothing of fairway.
LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM sqlite_schema").fetchall()
connection.close()
"""


class Program:
    def __init__(self, process):
        self.process = process

    def do(self, *commands):
        for command in commands:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)


@pytest.fixture
def program(path):
    started = []

    def start(kind):
        if kind == "ids":
            MessageIds.create(path, first_epoch=0).close()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, kind, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return Program(process)

    yield start
    for process in started:
        with process:
            process.kill()


def look(path):
    subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True, timeout=PATIENCE_S)


def count(kind, path):
    table = {"store": "journal", "archive": "Message", "ids": "signal"}[kind]
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.mark.parametrize("kind", ["store", "archive", "ids"])
@pytest.mark.parametrize("reads", ["read", "fork"])
def test_writes_after_a_copy_and_a_foreign_read_survive_a_kill(program, path, kind, reads):
    running = program(kind)
    running.do("write", reads)
    look(path)
    running.do("write", reads)
    look(path)
    running.do("write")
    running.kill()
    assert count(kind, path) == 3


@pytest.mark.parametrize("name", ["alice.db", "alice.db-wal", "alice.db-shm", "alice.db.lock"])
def test_each_file_of_a_store_may_be_read(program, path, name):
    running = program("store")
    running.do("write", f"read {name}")
    look(path)
    running.do("write")
    running.kill()
    assert count("store", path) == 2


@pytest.mark.parametrize("reads", ["read", "fork"])
def test_a_process_that_reads_its_store_still_has_it_alone(program, path, make, reads):
    running = program("store")
    running.do("write", reads)
    with pytest.raises(StoreLockedError, match=f"used by process {running.process.pid}"):
        SqliteStore(path).open(*make.owner)


def test_a_store_whose_log_is_removed_fails_and_has_what_it_answered_for(path, make, keeper):
    kept = keeper(SqliteStore(path))
    assert kept.keep(requests=(make.request(1),)) is None
    path.with_name("alice.db-wal").unlink()
    error = kept.keep(requests=(make.request(2),))
    assert isinstance(error, StorageError)
    assert "another program removed alice.db-wal" in str(error)
    # As after kill -9: nothing is closed, and other processes find what is in the file.
    assert count("store", path) >= 1
    kept.reopen()
    assert kept.store.request("request-1") is not None
    assert kept.keep(requests=(make.request(3),)) is None
