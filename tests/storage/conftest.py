"""What the tests of channel stores put into them, how they wait for it to be durable, and a PostgreSQL server."""

from __future__ import annotations

import threading

import pytest

from fairway.events import MessageReceived
from fairway.protocol.effects import Change
from fairway.storage.channel_store import StoredRequest, Write
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from patience import PATIENCE_S
from postgres_server import running_postgres

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


@pytest.fixture(scope="session")
def postgres():
    """Start a server that lives as long as the tests of this folder."""
    with running_postgres() as server:
        yield server
