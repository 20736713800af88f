"""The tables of a store and their version.

A store is an SQLite database whose ``application_id`` is `APPLICATION_ID` and whose ``user_version`` is
`SCHEMA_VERSION`.

::

    channels          the channels: sender, content topic, last opening, how many messages were removed
    journal           the latest changes of all the tables below, one row for each group of writes
    state             rows of the SDS history, by place
    state_in_order    the other rows of the protocol's state
    messages          contents of received and own messages, by number
    places            the order of each channel: the place of each message
    inbox             numbers of received messages that the application has not finished
    handling          failed attempts to handle messages of the inbox
    requests, trace   outcomes of sends, and the events about each message

A commit appends one row to the journal, which changes three or four pages. `SqliteWriter.merge` moves the changes into
the tables. Rows of ``state`` have random keys (``table/key``); clustering by key saves a second tree. In that tree a
row as long as a message would need an overflow page, so such rows are in ``state_in_order``. ``trace`` has no index,
because every message writes to it and it is rarely searched.

A channel has a number in the file. It is part of the keys of all tables but ``messages``. In ``state_in_order`` and
``trace`` a channel has a range of `ROWS_PER_CHANNEL` row numbers, so that its rows are neighbours. The numbers of
messages are unique in the file, because each opening of a channel reserves numbers that no other opening has.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from fairway.errors import StoreCorruptError, StoreMismatchError, StoreVersionError
from fairway.storage.sqlite_connection import GuardedConnection, transaction

APPLICATION_ID: Final = 0x46574159
"""``FWAY``, at offset 68 of the file."""
SCHEMA_VERSION: Final = 3
ROWS_PER_CHANNEL: Final = 1 << 40
"""Row numbers of each channel in ``state_in_order`` and ``trace``."""

_RECORD: Final = "body BLOB NOT NULL, check_value INTEGER NOT NULL"
"""See `fairway.storage.records`."""
_TABLES: Final = (
    (
        "channels (number INTEGER PRIMARY KEY, channel_id TEXT NOT NULL UNIQUE, sender_id TEXT NOT NULL, "
        "content_topic TEXT NOT NULL, opening INTEGER NOT NULL DEFAULT 0, removed INTEGER NOT NULL DEFAULT 0)"
    ),
    f"journal (number INTEGER PRIMARY KEY, {_RECORD})",
    f"state (place TEXT PRIMARY KEY, {_RECORD}) WITHOUT ROWID",
    f"state_in_order (number INTEGER PRIMARY KEY, place TEXT NOT NULL, {_RECORD})",
    f"messages (number INTEGER PRIMARY KEY, is_own INTEGER NOT NULL, {_RECORD})",
    (
        "places (channel INTEGER, lamport INTEGER, sds_id TEXT, number INTEGER, size_bytes INTEGER NOT NULL, "
        "PRIMARY KEY (channel, lamport, sds_id, number)) WITHOUT ROWID"
    ),
    "inbox (channel INTEGER, number INTEGER, PRIMARY KEY (channel, number)) WITHOUT ROWID",
    f"handling (channel INTEGER, number INTEGER, {_RECORD}, PRIMARY KEY (channel, number)) WITHOUT ROWID",
    (
        f"requests (channel INTEGER, request_id TEXT, ended_at_ms INTEGER, {_RECORD}, "
        "PRIMARY KEY (channel, request_id)) WITHOUT ROWID"
    ),
    f"trace (number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL, size_bytes INTEGER, {_RECORD})",
)
_INDEX: Final = "ended_requests ON requests (channel, ended_at_ms) WHERE ended_at_ms IS NOT NULL"


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


def claim(
    connection: GuardedConnection, path: Path, channel_id: str, sender_id: str, content_topic: str, *, adds: bool
) -> tuple[int, int]:
    """Write the channel into the store, or check it; return its number, and that of this opening.

    It always writes, so that a read-only file fails here. Raises `StoreMismatchError` if the store has the channel with
    another sender or content topic. Unless ``adds``, also if it has other channels and not this one.
    """
    given = {"channel": channel_id, "sender": sender_id, "content topic": content_topic}
    with transaction(connection):
        # The row of this channel, or else of any other one.
        owner = connection.execute(
            "SELECT channel_id, sender_id, content_topic FROM channels ORDER BY channel_id = ? DESC LIMIT 1",
            (channel_id,),
        ).fetchone()
        if owner is not None and owner[0] != channel_id and adds:
            owner = None
        wrong = [
            f"{name} {kept!r}, not {wanted!r}"
            for (name, wanted), kept in zip(given.items(), owner or given.values(), strict=True)
            if kept != wanted
        ]
        if wrong:
            raise StoreMismatchError(
                f"{path} belongs to {' and '.join(wrong)}: give each channel and sender a store of its own, "
                "or create the channel with the names that the store has; fairway.Channels keeps many channels in one"
            )
        if owner is None:
            connection.execute(
                "INSERT INTO channels (channel_id, sender_id, content_topic) VALUES (?, ?, ?)", tuple(given.values())
            )
        ((number, opening),) = connection.execute(
            "UPDATE channels SET opening = (SELECT max(opening) FROM channels) + 1 WHERE channel_id = ? "
            "RETURNING number, opening",
            (channel_id,),
        )
    return int(number), int(opening)


def rows_of(channel: int) -> tuple[int, int]:
    """Return the first and the last row number of a channel in ``state_in_order`` and ``trace``."""
    return channel * ROWS_PER_CHANNEL, (channel + 1) * ROWS_PER_CHANNEL - 1
