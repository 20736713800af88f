"""Reading a store from another process does not change it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from fairway.errors import StorageError
from fairway.events import RequestSent
from fairway.storage.channel_store import SendOutcome, TracePoint
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader
from patience import PATIENCE_S

POINT = TracePoint(at_ms=1, event=RequestSent(request_id="request-1", message_id="message-1"))

WRITER = """
import sys, threading
from fairway.events import RequestSent
from fairway.storage.channel_store import StoredRequest, TracePoint, Write
from fairway.storage.sqlite_store import SqliteStore

store, kept = SqliteStore(sys.argv[1]), threading.Event()
store.open("harbour", "alice", "/fairway/1/harbour/proto")
point = TracePoint(at_ms=1, event=RequestSent(request_id="request-1", message_id="message-1"))
request = StoredRequest(
    request_id="request-1", message_id="message-1", size_bytes=5, accepted_at_ms=1_760_000_000_001
)
store.submit(Write(trace=(point,), requests=(request,)), lambda error: kept.set())
kept.wait(120)
print("kept", flush=True)
sys.stdin.read()
store.close()
"""


def files(path):
    """Return every file beside the store and its content, but for the index that readers share with the writer."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


@pytest.fixture
def writer(path):
    """Let another process use the store."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "kept\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def closed(path, keeper, make):
    """Make a store that nobody uses."""
    kept = keeper(SqliteStore(path))
    kept.keep(trace=(POINT,), requests=(make.request(1), make.request(2, message_id="message-1")))
    kept.store.close()
    return kept.store


def check(path, make):
    before, names_before = files(path), names(path)
    reader = StoreReader(path)
    assert reader.owner() == make.owner
    assert reader.trace("message-1") == reader.trace("request-1") == [POINT]
    assert reader.trace("message-2") == []
    assert reader.request("request-1") == make.request(1)
    assert reader.request("request-3") is None
    assert reader.requests("message-1")[0] == reader.requests("request-1")[0] == make.request(1)
    assert (files(path), names(path)) == (before, names_before)


def test_a_store_is_read_while_another_process_uses_it(path, make, writer):
    check(path, make)


def test_a_store_is_read_after_its_process_was_killed(path, make, writer):
    writer.kill()
    writer.wait(PATIENCE_S)
    check(path, make)
    store = SqliteStore(path)
    store.open(*make.owner)
    assert StoreReader(path).trace("message-1") == [POINT]
    store.close()


def test_a_store_is_read_while_no_process_uses_it(path, make, closed):
    assert names(path) == ["alice.db", "alice.db.lock"]
    check(path, make)


def test_a_store_is_read_in_the_process_that_uses_it(path, make, closed, keeper):
    kept = keeper(closed)
    check(path, make)
    kept.keep(requests=(make.request(9, outcome=SendOutcome.FAILED, ended_at_ms=3),))
    assert StoreReader(path).request("request-9").outcome is SendOutcome.FAILED
    # Reading did not take away the locks that the store has on its file.
    assert kept.keep(changes=(make.put("a", 1),)) is None


def test_all_sends_of_a_message_are_found_in_order(path, make, closed):
    assert StoreReader(path).requests("message-1") == [make.request(1), make.request(2, message_id="message-1")]


def test_a_copy_of_a_store_in_use_that_is_not_whole_says_how_to_copy(path, tmp_path, writer):
    copy = tmp_path / "copy" / "alice.db"
    copy.parent.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    with pytest.raises(StorageError, match=r"alice\.db-shm.* 'fairway backup"):
        StoreReader(copy).owner()
    assert names(copy) == ["alice.db", "alice.db-wal"]


def test_a_path_with_characters_of_uris_is_read(tmp_path, keeper, make):
    path = tmp_path / "50% of what? #1 & more.db"
    kept = keeper(SqliteStore(path))
    kept.keep(trace=(POINT,))
    assert StoreReader(path).trace("request-1") == [POINT]
    kept.store.close()
    assert StoreReader(path).trace("request-1") == [POINT]
