"""A store belongs to one process at a time; the lock ends with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairway.errors import StoreLockedError
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S

HOLDER = """
import os, sys
from pathlib import Path
from fairway.storage.store_lock import StoreLock

lock = StoreLock(Path(sys.argv[1]))
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    # A child that outlives its parent, until its input ends.
    os.close(1)
    os.write(writing, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(reading, 1)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(path):
    """Let another process hold the lock of the store."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert int(process.stdout.readline()) == process.pid
            yield process
        finally:
            process.kill()


def test_another_process_is_named_with_what_to_do(path, make, holder):
    with pytest.raises(
        StoreLockedError, match=rf"alice\.db is used by process {holder.pid}: end that process or close"
    ):
        SqliteStore(path).open(*make.owner)
    assert not path.exists()


def test_the_lock_of_a_killed_process_ends_even_if_its_child_lives(path, make, holder):
    holder.kill()
    holder.wait(PATIENCE_S)
    store = SqliteStore(path)
    store.open(*make.owner)
    store.close()


def test_another_name_of_the_same_file_is_the_same_store(path, make, keeper):
    keeper(SqliteStore(path))
    alias = path.with_name("alias.db")
    alias.symlink_to(path)
    with pytest.raises(StoreLockedError, match="open already"):
        SqliteStore(alias).open(*make.owner)


def test_an_opening_that_failed_releases_the_lock(path, make):
    path.write_bytes(b"no database at all" * 100)
    for _ in range(2):
        with pytest.raises(Exception, match="no SQLite database"):
            SqliteStore(path).open(*make.owner)
    path.unlink()
    store = SqliteStore(path)
    store.open(*make.owner)
    store.close()
