"""The tables of a store, their version, and the migrations of older versions.

A store is an SQLite database whose ``application_id`` is `APPLICATION_ID` and whose ``user_version`` is the number of
its last migration. A new store runs all migrations, so that new and old files end alike. To change the schema, add a
migration with the next number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fairway.errors import StoreCorruptError, StoreMismatchError, StoreVersionError
from fairway.protocol.sds.channel import HISTORY
from fairway.storage.sqlite_connection import GuardedConnection, transaction

APPLICATION_ID: Final = 0x46574159
"""``FWAY``, at offset 68 of the file."""

Migration = Callable[[sqlite3.Connection], None]

_RECORD: Final = "body BLOB NOT NULL, check_value INTEGER NOT NULL"
"""See `fairway.storage.records`."""


def _first_schema(connection: sqlite3.Connection) -> None:
    """Create the tables.

    Rows of ``state`` have random keys (``table/key``): clustering by key saves a second tree. ``trace`` has
    no index, because every message writes to it and it is rarely searched.
    """
    for columns in (
        "channel (channel_id TEXT NOT NULL, sender_id TEXT NOT NULL, content_topic TEXT NOT NULL)",
        f"state (place TEXT PRIMARY KEY, {_RECORD}) WITHOUT ROWID",
        f"inbox (number INTEGER PRIMARY KEY, {_RECORD})",
        f"requests (request_id TEXT PRIMARY KEY, ended_at_ms INTEGER, {_RECORD}) WITHOUT ROWID",
        (
            "trace (number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL, size_bytes INTEGER, "
            f"{_RECORD})"
        ),
    ):
        connection.execute(f"CREATE TABLE {columns}")
    connection.execute("CREATE INDEX ended_requests ON requests (ended_at_ms) WHERE ended_at_ms IS NOT NULL")


def _numbers_and_attempts(connection: sqlite3.Connection) -> None:
    """Count openings, so that no number of the inbox repeats, and attempts to handle a message."""
    connection.execute("ALTER TABLE channel ADD COLUMN openings INTEGER NOT NULL DEFAULT 0")
    connection.execute(f"CREATE TABLE handling (number INTEGER PRIMARY KEY, {_RECORD})")


def _rows_in_order(connection: sqlite3.Connection) -> None:
    """Move the rows of the state into a table in the order in which they came, but for those of the history.

    A message puts several rows, some of them of its whole length. By random keys each of them changed pages of its own,
    and the long ones needed further pages for their ends; in order they share one or two. The history stays, because it
    has by far the most rows, and the writer remembers the number of each other row.
    """
    connection.execute(f"CREATE TABLE state_in_order (number INTEGER PRIMARY KEY, place TEXT NOT NULL, {_RECORD})")
    history = (f"{HISTORY}/*",)
    connection.execute(
        "INSERT INTO state_in_order (place, body, check_value) "
        "SELECT place, body, check_value FROM state WHERE place NOT GLOB ? ORDER BY place",
        history,
    )
    connection.execute("DELETE FROM state WHERE place NOT GLOB ?", history)


MIGRATIONS: Final[Mapping[int, Migration]] = {1: _first_schema, 2: _numbers_and_attempts, 3: _rows_in_order}
"""The step from the version before to each version; it runs in one transaction with the new version number."""


def version_of(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """Return the schema version of a store; 0 for an empty database.

    Raises `StoreCorruptError` for a database of another program, `StoreVersionError` for a store of a newer fairway.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id == 0 and version == 0 and tables == 0:
        return 0
    if application_id != APPLICATION_ID:
        raise StoreCorruptError(
            f"{path} is an SQLite database, but of another program (application id {application_id:#x}, "
            f"not {APPLICATION_ID:#x}): give the path of a fairway store, or one where nothing is yet"
        )
    if version > known:
        raise StoreVersionError(
            f"{path} has schema version {version}, this fairway knows versions up to {known}: update fairway"
        )
    return int(version)


def migrate(connection: GuardedConnection, path: Path, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
    """Migrate a store, or an empty database, to the newest schema. After a crash it has one of the versions whole."""
    newest = max(migrations)
    for version in range(version_of(connection, path, newest) + 1, newest + 1):
        with transaction(connection):
            migrations[version](connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version}")


def claim(connection: GuardedConnection, path: Path, channel_id: str, sender_id: str, content_topic: str) -> int:
    """Write the owner into a new store, or check it; count this opening, and return the number of openings.

    It always writes, so that a read-only file fails here. Raises `StoreMismatchError` for a store of another channel,
    sender or content topic.
    """
    given = {"channel": channel_id, "sender": sender_id, "content topic": content_topic}
    with transaction(connection):
        owner = connection.execute("SELECT channel_id, sender_id, content_topic FROM channel").fetchone()
        wrong = [
            f"{name} {kept!r}, not {wanted!r}"
            for (name, wanted), kept in zip(given.items(), owner or given.values(), strict=True)
            if kept != wanted
        ]
        if wrong:
            raise StoreMismatchError(
                f"{path} belongs to {' and '.join(wrong)}: give each channel and sender a store of its own, "
                "or create the channel with the names that the store has"
            )
        if owner is None:
            connection.execute("INSERT INTO channel VALUES (?, ?, ?, 0)", tuple(given.values()))
        ((openings,),) = connection.execute("UPDATE channel SET openings = openings + 1 RETURNING openings")
    return int(openings)
