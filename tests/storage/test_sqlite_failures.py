"""Files that are no stores, damaged ones, and disks that are full: each a typed error that says what to do."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fairway.errors import StorageError, StoreCorruptError, StorePathError, StoreVersionError
from fairway.storage.channel_store import TracePoint, Write
from fairway.storage.schema import SCHEMA_VERSION
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader
from patience import PATIENCE_S

NOBODY = 65_534


@contextmanager
def without_privileges():
    """Let permissions count, which they do not for the superuser."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """Make a folder that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def fill(path, make, rows=300):
    """Write a store with several pages of everything, and close it."""
    store, answers = SqliteStore(path), []
    store.open(*make.owner)
    numbers = range(rows)
    write = Write(
        changes=tuple(make.put(f"key-{number}", number, b"x" * 200) for number in numbers),
        delivered=tuple((number, make.received(number)) for number in numbers),
        requests=tuple(make.request(number) for number in numbers),
        trace=tuple(TracePoint(at_ms=number, event=make.received(number)) for number in numbers),
    )
    store.submit(write, answers.append)
    store.close()
    assert answers == [None]


@pytest.mark.parametrize(
    "content",
    [b"x", b"hello world", b"x" * 99, b"x" * 100, b"x" * 5_000, bytes(4_096), b"SQLite format 3\x00" + b"y" * 4_080],
    ids=lambda content: f"{len(content)} bytes from {content[:8]!r}",
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path, make, content):
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=r"alice\.db.* (give the path of|put it aside)"):
        SqliteStore(path).open(*make.owner)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path, make):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE Message (id BLOB)")
    before = path.read_bytes()
    with pytest.raises(StoreCorruptError, match=r"of another program.*give the path of a fairway store"):
        SqliteStore(path).open(*make.owner)
    assert path.read_bytes() == before


@pytest.mark.parametrize("tenth", range(10))
def test_a_damaged_page_is_refused(path, make, tenth):
    fill(path, make)
    with closing(sqlite3.connect(path)) as connection:
        # A damaged page without content would do no harm.
        connection.execute("VACUUM")
    pages = path.stat().st_size // 4_096
    damaged = 1 + tenth * (pages - 1) // 10
    with path.open("r+b") as file:
        file.seek(damaged * 4_096)
        file.write(b"\xa5" * 4_096)
    with pytest.raises(StoreCorruptError, match="restore a copy"):
        SqliteStore(path).open(*make.owner)


def test_a_flipped_bit_in_a_record_raises_an_error(path, make):
    fill(path, make)
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"request_id\xa9request-5\xaamessage_id", b"request_id\xa9request-5\xaamessage_ie")
    )
    store = SqliteStore(path)
    store.open(*make.owner)
    assert store.request("request-6") == make.request(6)
    with pytest.raises(StoreCorruptError, match="requests/1/request-5' is damaged"):
        store.request("request-5")
    store.close()


def test_a_directory_is_no_store(tmp_path, make):
    with pytest.raises(StorePathError, match="is a directory: give the path of a file in it"):
        SqliteStore(tmp_path).open(*make.owner)


def test_a_file_that_cannot_be_written_is_refused(open_folder, make):
    path = open_folder / "alice.db"
    fill(path, make)
    path.chmod(0o444)
    path.with_name("alice.db.lock").chmod(0o666)
    with without_privileges(), pytest.raises(StorePathError, match="cannot be written: see its permissions"):
        SqliteStore(path).open(*make.owner)


def test_a_directory_that_cannot_be_written_is_refused(open_folder, make):
    open_folder.chmod(0o555)
    with without_privileges(), pytest.raises(StorePathError, match="its permissions and those of its directory"):
        SqliteStore(open_folder / "alice.db").open(*make.owner)


def test_a_value_that_cannot_be_stored_fails_the_store_and_not_the_caller(path, keeper, make):
    kept = keeper(SqliteStore(path))
    failure = kept.keep(changes=(make.put("a", 2**64),))
    assert type(failure) is StorageError
    assert "cannot be stored" in str(failure)
    kept.reopen()
    assert kept.rows == {}


LIMITED = """
import resource, sys, threading
from fairway.protocol.effects import Change
from fairway.storage.channel_store import Write
from fairway.storage.sqlite_store import SqliteStore

store = SqliteStore(sys.argv[1])
store.open("harbour", "alice", "/fairway/1/harbour/proto")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
answers = []
for number in range(400):
    row = Change(table="history", key=str(number), row=(b"x" * 10_000,))
    answered = threading.Event()
    store.submit(Write(changes=(row,)), lambda error: (answers.append(error), answered.set()))
    answered.wait(120)
store.close()
print([type(answer).__name__ for answer in answers].index("StoreFullError"), len({*map(type, answers[-100:])}))
"""


def test_confirmed_writes_survive_a_file_that_cannot_grow(path, make):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    answered, kinds_at_the_end = map(int, done.stdout.split())
    assert 0 < answered < 300
    assert kinds_at_the_end == 1
    store = SqliteStore(path)
    keys = {change.key for change in store.open(*make.owner).changes}
    store.close()
    assert keys == {str(number) for number in range(answered)}


def test_a_store_of_another_version_is_refused_and_not_changed(path, make):
    fill(path, make)
    assert path.read_bytes()[68:72] == b"FWAY"
    for version in (SCHEMA_VERSION - 1, SCHEMA_VERSION + 1):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        before = path.read_bytes()
        for read in (lambda: SqliteStore(path).open(*make.owner), StoreReader(path).owner):
            with pytest.raises(StoreVersionError, match=f"schema version {version}.*use the fairway that made it"):
                read()
        assert path.read_bytes() == before
