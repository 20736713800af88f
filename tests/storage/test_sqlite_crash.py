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
from fairway.storage.store_reader import StoreReader
from patience import PATIENCE_S

KILLS = 10

CHANNELS = 3

# Starts a new child for every line that it reads, so that only one process loads everything. A child writes numbered
# writes, each to every table and in turn to three channels of one file. It goes on where the last one stopped, and
# prints a number when the store answered for it.
PARENT = """
import os, sys, threading
from fairway.events import MessageReceived, RequestSent
from fairway.protocol.effects import Change
from fairway.storage.channel_store import StoredRequest, TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore

ZERO = Change(table="last", key="", row=(0,))


def write(number):
    message = MessageReceived(
        message_id="m", sender_id="bob", channel_id="0", content_topic="/fairway/1/harbour/proto",
        payload=b"%d" % number, timestamp_ns=0, message_hashes=(), sds_ids=(),
    )
    return Write(
        changes=(
            Change(table="large", key=f"{number}", row=(number, b"x" * (number % 7) * 3_000)),
            Change(table="last", key="", row=(number,)),
            Change(table="large", key=f"{number - 60}", row=None),
        ),
        delivered=((number, message),),
        finished=(number - 30,),
        requests=(StoredRequest(request_id=f"r{number}", message_id="m", size_bytes=1, accepted_at_ms=number),),
        trace=(TracePoint(at_ms=number, event=RequestSent(request_id=f"r{number}", message_id="m")),),
    )


def life():
    file, room = SqliteStore(sys.argv[1]), threading.Semaphore(32)
    stores = [file.beside() for _ in range(3)]
    opened = [store.open(f"{each}", "alice", f"/fairway/1/{each}/proto") for each, store in enumerate(stores)]
    number = max(change.row[0] for stored in opened for change in (*stored.changes, ZERO) if change.table == "last")
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
        stores[number % 3].submit(write(number), answered(number))


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
def test_confirmed_writes_of_all_channels_survive_a_kill_and_every_write_is_whole(parent, path, rng):
    answered = 0
    for kill in range(KILLS):
        answered = max(answered, kill_one(parent, rng))
        file = SqliteStore(path)
        stores = [file.beside() for _ in range(CHANNELS)]
        opened = [store.open(f"{each}", "alice", f"/fairway/1/{each}/proto") for each, store in enumerate(stores)]
        tables = [{(change.table, change.key): change.row for change in stored.changes} for stored in opened]
        lasts = [(rows.pop(("last", ""), None) or (0,))[0] for rows in tables]
        told = f"kill {kill}"
        # Writes of all channels are durable in the order of their submission.
        last = max(lasts)
        assert last >= answered, told
        assert sorted(lasts) == [max(0, last - 2), max(0, last - 1), last], told
        for each, (store, stored, rows, newest) in enumerate(zip(stores, opened, tables, lasts, strict=True)):
            numbers = range(CHANNELS if each == 0 else each, newest + 1, CHANNELS)
            # What one write changes together is of one age, in every table.
            assert rows == {("large", str(n)): (n, b"x" * (n % 7) * 3_000) for n in numbers[-20:]}, told
            inbox = [(number, message.payload) for number, message in stored.inbox]
            assert inbox == [(n, b"%d" % n) for n in numbers[-10:]], told
            assert store.request(f"r{newest}") is not None, told
            assert store.request(f"r{newest + CHANNELS}") is None, told
            assert StoreReader(path, f"{each}").trace("m") == [
                TracePoint(at_ms=n, event=RequestSent(request_id=f"r{n}", message_id="m")) for n in numbers
            ], told
            store.close()
    assert answered > KILLS
