"""The schema of a nwaku archive file, and how such a file is opened.

Invariant: an opened file has nwaku's message store of version `SCHEMA_VERSION`. An empty file gets its tables; a file
with any other content is refused and not changed.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError, DecodeError, SnapshotError
from fairway.storage.sqlite_connection import GuardedConnection, transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA_VERSION: Final = 10
"""``user_version`` of nwaku's message store."""

_CREATE: Final = """
CREATE TABLE IF NOT EXISTS Message (
    messageHash BLOB NOT NULL PRIMARY KEY,
    pubsubTopic BLOB NOT NULL,
    contentTopic BLOB NOT NULL,
    payload BLOB,
    version INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    meta BLOB
) WITHOUT ROWID
"""
_CREATE_INDEX: Final = "CREATE INDEX IF NOT EXISTS i_ts ON Message (timestamp)"

_COLUMNS: Final = frozenset({"messageHash", "pubsubTopic", "contentTopic", "payload", "version", "timestamp", "meta"})


def open_to_write(path: Path) -> GuardedConnection:
    """Open or create an archive; raises the errors of `NwakuArchive`."""
    return _open(path, "mode=rwc", _create_schema)


def open_to_read(path: Path) -> GuardedConnection:
    """Open an existing archive read-only; raises the errors of `NwakuArchive`."""
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no such file; give the path of a nwaku SQLite archive")
    try:
        return _open(path, "mode=ro", _check_schema)
    except ConfigurationError as error:
        # A write-ahead log needs a shared-memory file beside the archive. If that is missing and cannot be created, as
        # on a read-only medium, no process can write to the archive, and the file alone is complete.
        code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
        if code not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise
        return _open(path, "mode=ro&immutable=1", _check_schema)


def _open(path: Path, mode: str, prepare: Callable[[Path, GuardedConnection], None]) -> GuardedConnection:
    database: GuardedConnection | None = None
    try:
        database = GuardedConnection(path, f"{path.absolute().as_uri()}?{mode}")
        prepare(path, database)
        database.hold_log()
    except BaseException as error:
        if database is not None:
            database.close()
        if isinstance(error, sqlite3.OperationalError):
            raise ConfigurationError(
                f"{path}: cannot be opened as an archive: {error}; does its folder exist, and may you write there?"
            ) from error
        if isinstance(error, sqlite3.DatabaseError):
            raise DecodeError(f"{path}: not an archive of a nwaku store: {error}") from error
        raise
    return database


def _create_schema(path: Path, database: GuardedConnection) -> None:
    """Create the tables in an empty file; check the schema of any other."""
    if not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        database.execute("PRAGMA journal_mode = WAL")
        with transaction(database):
            database.execute(_CREATE)
            database.execute(_CREATE_INDEX)
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _check_schema(path, database)


def _check_schema(path: Path, database: sqlite3.Connection) -> None:
    columns = {name for (name,) in database.execute("SELECT name FROM pragma_table_info('Message')")}
    if not columns:
        raise DecodeError(f"{path}: not an archive of a nwaku store: it has no table 'Message'")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    # nwaku without migrations writes version 0 into a new file, which has the newest columns.
    lacking = ", ".join(sorted(_COLUMNS - columns))
    if version not in {0, SCHEMA_VERSION} or lacking:
        raise SnapshotError(
            f"{path}: the archive has schema version {version}{lacking and f' and no column {lacking}'}, this reads "
            f"{SCHEMA_VERSION}; a nwaku node that is started once on an older file brings it up to date"
        )
