"""The tables of a store and their version.

A store is an SQLite database whose ``application_id`` is `APPLICATION_ID` and whose ``user_version`` is
`SCHEMA_VERSION`.

::

    channel           one row: whose store it is, how often it was opened, how many messages were removed
    journal           the latest changes of all the tables below, one row for each group of writes
    state             rows of the SDS history, by place
    state_in_order    the other rows of the protocol's state
    messages          contents of received and own messages, by number
    places            the channel's order: the place of each message
    inbox             numbers of received messages that the application has not finished
    handling          failed attempts to handle messages of the inbox
    requests, trace   outcomes of sends, and the events about each message

A commit appends one row to the journal, which changes three or four pages. `SqliteWriter.merge` moves the changes into
the tables. Rows of ``state`` have random keys (``table/key``); clustering by key saves a second tree. In that tree a
row as long as a message would need an overflow page, so such rows are in ``state_in_order``. ``trace`` has no index,
because every message writes to it and it is rarely searched.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from fairway.errors import StoreCorruptError, StoreMismatchError, StoreVersionError
from fairway.storage.sqlite_connection import GuardedConnection, transaction

APPLICATION_ID: Final = 0x46574159
"""``FWAY``, at offset 68 of the file."""
SCHEMA_VERSION: Final = 2

_RECORD: Final = "body BLOB NOT NULL, check_value INTEGER NOT NULL"
"""See `fairway.storage.records`."""
_TABLES: Final = (
    (
        "channel (channel_id TEXT NOT NULL, sender_id TEXT NOT NULL, content_topic TEXT NOT NULL, "
        "openings INTEGER NOT NULL DEFAULT 0, removed INTEGER NOT NULL DEFAULT 0)"
    ),
    f"journal (number INTEGER PRIMARY KEY, {_RECORD})",
    f"state (place TEXT PRIMARY KEY, {_RECORD}) WITHOUT ROWID",
    f"state_in_order (number INTEGER PRIMARY KEY, place TEXT NOT NULL, {_RECORD})",
    f"messages (number INTEGER PRIMARY KEY, is_own INTEGER NOT NULL, {_RECORD})",
    (
        "places (lamport INTEGER, sds_id TEXT, number INTEGER, size_bytes INTEGER NOT NULL, "
        "PRIMARY KEY (lamport, sds_id, number)) WITHOUT ROWID"
    ),
    "inbox (number INTEGER PRIMARY KEY)",
    f"handling (number INTEGER PRIMARY KEY, {_RECORD})",
    f"requests (request_id TEXT PRIMARY KEY, ended_at_ms INTEGER, {_RECORD}) WITHOUT ROWID",
    f"trace (number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL, size_bytes INTEGER, {_RECORD})",
)
_INDEX: Final = "ended_requests ON requests (ended_at_ms) WHERE ended_at_ms IS NOT NULL"


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of a store; 0 for an empty database.

    Raises `StoreCorruptError` for a database of another program, `StoreVersionError` for a store of another version of
    fairway.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id == 0 and version == 0 and tables == 0:
        return 0
    if application_id != APPLICATION_ID:
        raise StoreCorruptError(
            f"{path} is an SQLite database, but of another program (application id {application_id:#x}, "
            f"not {APPLICATION_ID:#x}): give the path of a fairway store, or of a new file"
        )
    if version != SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} has schema version {version}, and this fairway reads version {SCHEMA_VERSION}: use the fairway "
            "that made it, or start with a new file"
        )
    return SCHEMA_VERSION


def create_tables(connection: GuardedConnection, path: Path) -> None:
    """Create the tables in an empty database; raise the errors of `version_of` for any other than a store."""
    if version_of(connection, path):
        return
    with transaction(connection):
        for table in _TABLES:
            connection.execute(f"CREATE TABLE {table}")
        connection.execute(f"CREATE INDEX {_INDEX}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


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
            connection.execute(
                "INSERT INTO channel (channel_id, sender_id, content_topic) VALUES (?, ?, ?)", tuple(given.values())
            )
        ((openings,),) = connection.execute("UPDATE channel SET openings = openings + 1 RETURNING openings")
    return int(openings)
