"""A store says what it is, and is read by the version of fairway that made it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from fairway.errors import StoreVersionError
from fairway.storage.schema import APPLICATION_ID, SCHEMA_VERSION
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader


def execute(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchone()


@pytest.fixture
def store(path, keeper, make):
    """Make a store with something in it."""
    kept = keeper(SqliteStore(path))
    kept.keep(changes=(make.put("a", 1),), requests=(make.request(1),))
    kept.store.close()
    return kept.store


def test_a_store_says_what_it_is_and_of_which_version(store, path):
    assert path.read_bytes()[68:72] == b"FWAY" == APPLICATION_ID.to_bytes(4, "big")
    assert execute(path, "PRAGMA user_version") == (SCHEMA_VERSION,)


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_store_of_another_version_is_refused_and_not_changed(store, path, make, version):
    execute(path, f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    for read in (lambda: store.open(*make.owner), StoreReader(path).owner):
        with pytest.raises(StoreVersionError, match=f"schema version {version}.*use the fairway that made it"):
            read()
    assert path.read_bytes() == before
