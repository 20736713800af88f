"""How a store gets from one schema version to the next."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from fairway.errors import StoreCorruptError, StoreVersionError
from fairway.storage.records import record_place, state_columns
from fairway.storage.schema import APPLICATION_ID, MIGRATIONS, migrate
from fairway.storage.sqlite_connection import connect
from fairway.storage.sqlite_store import SqliteStore


def add_moods(connection):
    connection.execute("ALTER TABLE requests ADD COLUMN mood TEXT")
    connection.execute("UPDATE requests SET mood = 'fair'")


NEXT = {**MIGRATIONS, max(MIGRATIONS) + 1: add_moods}


def ask(path, question):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchone()[0]


@pytest.fixture
def store(path, keeper, make):
    """Make a store of the present version with something in it."""
    kept = keeper(SqliteStore(path))
    kept.keep(changes=(make.put("a", 1),), requests=(make.request(1),))
    kept.store.close()
    return kept.store


def test_a_store_says_what_it_is_and_of_which_version(store, path):
    assert path.read_bytes()[68:72] == b"FWAY" == APPLICATION_ID.to_bytes(4, "big")
    assert ask(path, "PRAGMA user_version") == max(MIGRATIONS)


def test_migrations_are_numbered_from_one_without_gaps():
    assert list(MIGRATIONS) == list(range(1, len(MIGRATIONS) + 1))


def test_an_older_store_is_brought_up_to_date_with_its_content(store, path, make):
    with closing(connect(path)) as connection:
        migrate(connection, path, NEXT)
    assert ask(path, "PRAGMA user_version") == max(NEXT)
    assert ask(path, "SELECT mood FROM requests") == "fair"
    assert ask(path, "SELECT count(*) FROM state") == 1
    with pytest.raises(StoreVersionError, match=f"schema version {max(NEXT)}.*update fairway"):
        store.open(*make.owner)


def test_a_store_of_the_second_version_keeps_its_rows_and_they_can_be_changed(path, keeper, make):
    kept = {("history", "a/b"): (1,), ("retained", "history/c"): (2, b"x" * 5_000), ("historyx", ""): (3,)}
    with closing(connect(path)) as connection:
        migrate(connection, path, {version: MIGRATIONS[version] for version in (1, 2)})
        for (table, key), row in kept.items():
            columns = state_columns(record_place(table, key), row)
            connection.execute("INSERT INTO state VALUES (?, ?, ?)", columns)
    store = keeper(SqliteStore(path))
    assert store.rows == kept
    store.keep(changes=(make.put("history/c", 4, table="retained"), make.removed("", table="historyx")))
    store.reopen()
    assert store.rows == {("history", "a/b"): (1,), ("retained", "history/c"): (4,)}


def test_an_up_to_date_store_is_left_alone(store, path):
    before = path.read_bytes()
    with closing(connect(path)) as connection:
        migrate(connection, path)
    assert path.read_bytes() == before


def test_a_new_store_goes_through_every_migration(path):
    with closing(connect(path)) as connection:
        migrate(connection, path, NEXT)
    assert ask(path, "PRAGMA user_version") == max(NEXT)
    assert ask(path, "SELECT count(mood) FROM requests") == 0


def test_a_migration_that_does_not_finish_leaves_the_version_before(store, path, make):
    def unlucky(connection):
        add_moods(connection)
        raise KeyboardInterrupt

    with closing(connect(path)) as connection, pytest.raises(KeyboardInterrupt):
        migrate(connection, path, {**MIGRATIONS, max(NEXT): unlucky})
    assert ask(path, "PRAGMA user_version") == max(MIGRATIONS)
    assert store.open(*make.owner).changes == (make.put("a", 1),)


def test_a_foreign_database_is_not_migrated(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")
    with closing(connect(path)) as connection, pytest.raises(StoreCorruptError, match="application id 0x7"):
        migrate(connection, path)
