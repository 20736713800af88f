"""Many channels in one file: one transaction for all that waits, and each channel keeps to itself."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from fairway.errors import (
    ConfigurationError,
    StoreCorruptError,
    StoreFullError,
    StoreLockedError,
    StoreMismatchError,
)
from fairway.events import RequestSent
from fairway.storage.backup import back_up
from fairway.storage.channel_store import TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader
from fairway.testing import DiskFault, SimulatedDisk, virtual_time
from patience import PATIENCE_S

MANY = 300


def owner(number):
    return f"room-{number}", "alice", f"/fairway/1/room-{number}/proto"


@pytest.fixture
def rooms(path, keeper):
    """Open so many channels of one file."""
    file = SqliteStore(path)
    return lambda count: [keeper(file.beside(), owner(number)) for number in range(count)]


def test_all_writes_that_wait_are_one_transaction(path, rooms, make):
    kept, entered, may_go_on = rooms(MANY), threading.Event(), threading.Event()

    def hold(error):
        entered.set()
        assert may_go_on.wait(PATIENCE_S)

    kept[0].store.submit(Write(changes=(make.put("a", 1),)), hold)
    assert entered.wait(PATIENCE_S)
    for each in kept:
        each.submit(changes=(make.put("a", 2),))
    may_go_on.set()
    for each in kept:
        each.wait(1)
    with closing(sqlite3.connect(path)) as reading:
        assert reading.execute("SELECT count(*) FROM journal").fetchone() == (2,)
    for each in kept:
        each.reopen()
        assert each.rows == {("history", "a"): (2,)}


def test_a_channel_is_opened_and_closed_while_others_write(rooms, make):
    steady, other = rooms(2)
    for number in range(20):
        steady.submit(changes=(make.put("a", number),))
        other.submit(changes=(make.put("b", number),))
        assert other.reopen().inbox == ()
        assert other.rows == {("history", "b"): (number,)}
    steady.wait(20)
    assert steady.answers == other.answers == [None] * 20


def test_every_opening_gives_numbers_of_its_own(rooms):
    kept = rooms(3)
    numbers = [each.stored.first_number for each in kept] + [each.reopen().first_number for each in kept]
    assert len(set(numbers)) == 6
    assert sorted(numbers) == numbers


def test_a_file_stays_locked_until_its_last_channel_closes(path, rooms, make):
    one, two = rooms(2)
    one.store.close()
    with pytest.raises(StoreLockedError, match="is open already in this process"):
        SqliteStore(path).open(*owner(1))
    script = f"from fairway.storage.sqlite_store import SqliteStore; SqliteStore({str(path)!r}).open(*{owner(0)!r})"
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "StoreLockedError" in other.stderr
    assert two.keep(changes=(make.put("a", 1),)) is None
    two.store.close()
    with closing(SqliteStore(path)) as store:
        assert store.open(*owner(1)).changes == (make.put("a", 1),)


def test_one_channel_of_a_file_is_opened_once_at_a_time(rooms):
    one, _ = rooms(2)
    with pytest.raises(StoreLockedError, match=r"room-0.*open already"):
        one.store.beside().open(*owner(0))
    with pytest.raises(StoreLockedError, match="open already"):
        one.store.open(*owner(1))


def test_only_a_store_beside_others_adds_a_channel(path, rooms):
    for each in rooms(2):
        each.store.close()
    store = SqliteStore(path)
    with pytest.raises(StoreMismatchError, match=r"not 'room-7'.*fairway\.Channels keeps many channels in one"):
        store.open(*owner(7))
    with pytest.raises(StoreMismatchError, match="sender 'alice', not 'bob'"):
        store.beside().open("room-0", "bob", owner(0)[2])
    with closing(store):
        store.open(*owner(1))


def test_a_copy_has_all_channels(path, rooms, make, tmp_path):
    for number, each in enumerate(rooms(3)):
        each.keep(delivered=((number, make.received(number)),))
    copy = tmp_path / "copy.db"
    back_up(path, copy)
    file = SqliteStore(copy)
    for number in range(3):
        with closing(file.beside()) as store:
            message = replace(make.received(number), redelivered=True)
            assert store.open(*owner(number)).inbox == ((number, message),)


def test_a_reader_names_the_channel_if_there_are_several(path, rooms, make):
    for number, each in enumerate(rooms(2)):
        each.keep(
            requests=(make.request(1, size_bytes=number),),
            trace=(TracePoint(at_ms=number, event=RequestSent(request_id="request-1", message_id="m")),),
        )
    assert StoreReader(path).owners() == [owner(0), owner(1)]
    for number in range(2):
        reader = StoreReader(path, f"room-{number}")
        assert reader.owner() == owner(number)
        assert reader.request("request-1").size_bytes == number
        assert [point.at_ms for point in reader.trace("m")] == [number]
    for channel_id, text in ((None, "none was named"), ("room-9", "not 'room-9'")):
        with pytest.raises(ConfigurationError, match=f"'room-0', 'room-1' .*{text}: name one"):
            StoreReader(path, channel_id).request("request-1")


@pytest.mark.parametrize("table", ["history", "segments"])
def test_a_damaged_row_of_one_channel_leaves_the_others(path, rooms, make, table):
    for number, each in enumerate(rooms(3)):
        each.keep(changes=(make.put("a", f"content of {number}", table=table),))
        each.store.close()
    path.write_bytes(path.read_bytes().replace(b"content of 1", b"content of 2"))
    file = SqliteStore(path)
    with pytest.raises(StoreCorruptError, match=f"'2/{table}/a' is damaged"):
        file.beside().open(*owner(1))
    for number in (0, 2):
        with closing(file.beside()) as store:
            assert store.open(*owner(number)).changes == (make.put("a", f"content of {number}", table=table),)


def test_a_channel_with_many_messages_removes_none_of_another(path, keeper, make):
    file = SqliteStore(path, kept_messages=10)
    quiet, busy = keeper(file.beside(), owner(0)), keeper(file.beside(), owner(1))
    quiet.keep(delivered=((1, make.received(1)),), finished=(1,))
    for number in range(1_000, 1_500):
        busy.submit(delivered=((number, make.received(number)),), finished=(number,))
    busy.wait(500)
    busy.reopen()
    assert len(busy.store.history(None, 1_000).messages) < 200
    (only,) = quiet.store.history(None, 1_000).messages
    assert only[1] == make.received(1)


@virtual_time()
async def test_after_a_failed_write_each_channel_is_opened_again_whether_the_others_are_closed_or_not(make):
    with SimulatedDisk() as disk:
        file = disk.store("alice")
        stores = [file.beside() for _ in range(3)]
        for number, store in enumerate(stores):
            store.open(*owner(number))
        disk.strike("alice", DiskFault.FULL)
        answers = []
        for store in stores:
            store.submit(Write(changes=(make.put("a", 1),)), answers.append)
        stores[0].close()
        assert [type(answer) for answer in answers] == [StoreFullError] * 3
        assert stores[0].open(*owner(0)).changes == ()
        stores[1].submit(Write(changes=(make.put("a", 2),)), answers.append)
        for store in stores:
            store.close()
        assert isinstance(answers[-1], Exception)
        for number, store in enumerate(stores):
            assert store.open(*owner(number)).changes == ()
            store.submit(Write(changes=(make.put("a", 3),)), answers.append)
            store.close()
        assert answers[-3:] == [None] * 3
