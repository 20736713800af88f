"""The files of a store on disk, its queued writes, and the end of its process."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from fairway.errors import StoreLockedError
from fairway.events import RequestSent
from fairway.storage.channel_store import TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader
from patience import PATIENCE_S


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


def test_only_the_owner_can_read_a_store_and_the_files_beside_it(tmp_path, make, keeper):
    before = os.umask(0o022)
    try:
        kept = keeper(SqliteStore(tmp_path / "alice.db"))
        kept.keep(delivered=((1, make.received(1)),))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        kept.store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["alice.db", "alice.db-wal", "alice.db-shm", "alice.db.lock"], 0o600)


def test_an_existing_store_loses_the_rights_of_others_and_keeps_those_of_its_group(tmp_path, keeper):
    path = tmp_path / "alice.db"
    keeper(SqliteStore(path)).store.close()
    path.chmod(0o644)
    keeper(SqliteStore(path)).store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_open_store_has_a_log_and_a_closed_one_is_one_file(path, keeper, make):
    kept = keeper(SqliteStore(path))
    kept.keep(changes=(make.put("a", 1),))
    assert names(path) == ["alice.db", "alice.db-shm", "alice.db-wal", "alice.db.lock"]
    kept.store.close()
    assert names(path) == ["alice.db", "alice.db.lock"]


def test_a_store_whose_database_another_program_holds_is_locked(path, make, keeper, monkeypatch):
    keeper(SqliteStore(path)).store.close()
    monkeypatch.setattr("fairway.storage.sqlite_connection.BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="another program holds it: close that program"):
            SqliteStore(path).open(*make.owner)


@pytest.mark.parametrize("row_bytes", [20_000, 30_000])
def test_the_log_does_not_grow_without_end(path, keeper, make, row_bytes):
    kept = keeper(SqliteStore(path))
    for number in range(60):
        kept.keep(changes=tuple(make.put(str(key), number, b"x" * row_bytes) for key in range(50)))
    assert path.with_name("alice.db-wal").stat().st_size < 30_000_000


def test_queued_writes_are_visible_before_they_are_durable(path, keeper, make):
    kept, entered, may_go_on = keeper(SqliteStore(path)), threading.Event(), threading.Event()

    def hold(error):
        entered.set()
        assert may_go_on.wait(PATIENCE_S)

    def point(number):
        return TracePoint(at_ms=number, event=RequestSent(request_id=f"r{number}", message_id="m"))

    kept.keep(trace=(point(1),), requests=(make.request(1),))
    kept.store.submit(Write(trace=(point(2),)), hold)
    assert entered.wait(PATIENCE_S)
    # The store's thread is held, so this waits.
    kept.submit(trace=(point(3), point(4)), requests=(make.request(1, size_bytes=77), make.request(2)))
    try:
        assert StoreReader(path).request("request-2") is None
        assert kept.store.request("request-1").size_bytes == 77
        assert kept.store.request("request-2") == make.request(2)
    finally:
        may_go_on.set()
    kept.wait(2)
    assert StoreReader(path).trace("m") == [point(1), point(2), point(3), point(4)]
    assert kept.store.request("request-1").size_bytes == 77


FORGETFUL = """
import sys
from fairway.protocol.effects import Change
from fairway.storage.channel_store import Write
from fairway.storage.sqlite_store import SqliteStore

store = SqliteStore(sys.argv[1])
store.open("harbour", "alice", "/fairway/1/harbour/proto")
for number in range(500):
    store.submit(Write(changes=(Change(table="history", key=str(number), row=(number,)),)), lambda error: None)


class ClosedLate:
    def __del__(self):
        store.close()


sys.closed_late = ClosedLate()
"""


def test_a_program_that_does_not_close_its_store_ends_and_loses_nothing(path, make):
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    store = SqliteStore(path)
    assert len(store.open(*make.owner).changes) == 500
    store.close()
