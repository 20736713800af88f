"""After `kill -9` a store has all confirmed writes, and each write whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fairway.events import RequestSent
from fairway.storage.channel_store import TracePoint
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S

KILLS = 10

# Starts a new child for every line that it reads, so that only one process loads everything. A child writes numbered
# writes, each to every table, goes on where the last one stopped, and prints a number when the store answered for it.
PARENT = """
import os, sys, threading
from fairway.events import MessageReceived, RequestSent
from fairway.protocol.effects import Change
from fairway.storage.channel_store import StoredRequest, TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore


def write(number):
    message = MessageReceived(
        message_id="m", sender_id="bob", channel_id="harbour", content_topic="/fairway/1/harbour/proto",
        payload=b"%d" % number, timestamp_ns=0, message_hashes=(), sds_ids=(),
    )
    return Write(
        changes=(
            Change(table="large", key=f"{number}", row=(number, b"x" * (number % 7) * 3_000)),
            Change(table="last", key="", row=(number,)),
            Change(table="large", key=f"{number - 20}", row=None),
        ),
        delivered=((number, message),),
        finished=(number - 10,),
        requests=(StoredRequest(request_id=f"r{number}", message_id="m", size_bytes=1, accepted_at_ms=number),),
        trace=(TracePoint(at_ms=number, event=RequestSent(request_id=f"r{number}", message_id="m")),),
    )


def life():
    store, room = SqliteStore(sys.argv[1]), threading.Semaphore(32)
    rows = {change.table: change.row for change in store.open("harbour", "alice", "/fairway/1/harbour/proto").changes}
    number = rows.get("last", (0,))[0]
    os.write(1, b"pid %d\\n" % os.getpid())

    def answered(number):
        def done(error):
            try:
                os.write(1, b"%s\\n" % (b"%d" % number if error is None else repr(error).encode()))
            except BrokenPipeError:
                os._exit(1)
            room.release()
        return done

    while True:
        number += 1
        room.acquire()
        store.submit(write(number), answered(number))


for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            life()
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


@pytest.fixture
def parent(path):
    command = [sys.executable, "-c", PARENT, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        watchdog = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            os.killpg(process.pid, signal.SIGKILL)


def kill_one(parent, rng):
    """Let a child live for a while, kill it, and return the last number that its store answered for."""
    parent.stdin.write("\n")
    parent.stdin.flush()
    pid = int(parent.stdout.readline().removeprefix("pid "))
    last, left = 0, rng.randrange(1, 200)
    for line in parent.stdout:
        if line == "ended\n":
            return last
        last = int(line)
        left -= 1
        if left == 0:
            time.sleep(rng.random() * 0.003)
            os.kill(pid, signal.SIGKILL)
    raise AssertionError("the parent of the writing processes ended")


@pytest.mark.full
def test_confirmed_writes_survive_a_kill_and_every_write_is_whole(parent, path, make, rng):
    answered = 0
    for kill in range(KILLS):
        answered = max(answered, kill_one(parent, rng))
        store = SqliteStore(path)
        stored = store.open(*make.owner)
        rows = {(change.table, change.key): change.row for change in stored.changes}
        # What one write changes together is of one age, in every table.
        (last,) = rows.pop(("last", "")) or (0,)
        told = f"kill {kill}"
        assert last >= answered, told
        expected = range(max(1, last - 19), last + 1)
        assert rows == {("large", str(n)): (n, b"x" * (n % 7) * 3_000) for n in expected}, told
        inbox = [(number, message.payload) for number, message in stored.inbox]
        assert inbox == [(n, b"%d" % n) for n in range(max(1, last - 9), last + 1)], told
        assert store.request(f"r{last}") is not None, told
        assert store.request(f"r{last + 1}") is None, told
        assert store.trace("m") == [
            TracePoint(at_ms=n, event=RequestSent(request_id=f"r{n}", message_id="m")) for n in range(1, last + 1)
        ], told
        store.close()
    assert answered > KILLS
