"""Opens the SQLite file of a store, and runs transactions."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fairway.errors import StorageError, StoreCorruptError, StorePathError
from fairway.storage.log_guard import LogGuard

BUSY_TIMEOUT_S: Final = 5.0
"""Time to wait for a lock of another process."""
SMALLEST_PAGE_BYTES: Final = 512
PAGE_CACHE_KIB: Final = 16_384
COMMIT: Final = "COMMIT"
"""Syncs the writes of a transaction."""
APPEND: Final = "INSERT INTO journal VALUES (?, ?, ?)"
"""Appends a row to the journal of a store, and syncs it."""
CHECKPOINT: Final = "PRAGMA wal_checkpoint(PASSIVE)"
"""Copies the log into the file, except for parts that readers use, and syncs the file."""
_PRIVATE: Final = 0o600
STATEMENTS_CACHED: Final = 320
"""The writer has ten kinds of statements, and one of each kind for each number of rows."""


def refuse_other_files(path: Path) -> None:
    """Raise `StoreCorruptError` for files that SQLite would treat as an empty database, `StorePathError` for folders.

    The file is not opened: closing it would release locks of SQLite on the same file in this process.
    """
    if path.is_dir():
        raise StorePathError(f"{path} is a directory: give the path of a file in it")
    if path.exists() and 0 < path.stat().st_size < SMALLEST_PAGE_BYTES:
        raise StoreCorruptError(
            f"{path} is no SQLite database, for those have {SMALLEST_PAGE_BYTES} bytes at least: "
            "give the path of a fairway store, or of a new file"
        )


def keep_private(path: Path) -> None:
    """Create a file that only its owner may read; of an existing file, remove the rights of all except owner and group.

    SQLite creates the files beside it with the same rights.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE))
    except FileExistsError:
        for each in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))):
            with suppress(FileNotFoundError, PermissionError):
                mode = stat.S_IMODE(each.stat().st_mode)
                if mode & stat.S_IRWXO:
                    each.chmod(mode & ~stat.S_IRWXO)


class GuardedConnection(sqlite3.Connection):
    """A connection whose log stays in place while it is open (`LogGuard`)."""

    _guard: LogGuard | None = None

    def __init__(self, path: Path, uri: str | None = None, **options: Any) -> None:
        """Open or create a file; ``uri``, if given, replaces the path. The options are those of `sqlite3.connect`."""
        guard = LogGuard(path)
        try:
            super().__init__(uri or path, uri=uri is not None, **options)
        except BaseException:
            guard.close()
            raise
        self._guard = guard

    def hold_log(self) -> None:
        """Guard the log. Call it after the first statement that reads a file with a log."""
        if self._guard is not None:
            self._guard.hold()

    def check_log(self) -> None:
        """Raise `StorageError` if another program removed the log: the last writes may be lost."""
        if self._guard is not None:
            self._guard.check(lambda: self.execute(CHECKPOINT))

    def close(self) -> None:
        """Close the file; the last connection copies the log into the file, and removes it."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.unlock()
        try:
            super().close()
        finally:
            if guard is not None:
                guard.close()


def connect(
    path: Path, *, uri: str | None = None, factory: type[GuardedConnection] = GuardedConnection
) -> GuardedConnection:
    """Open or create a file; ``uri``, if given, replaces the path. Python begins no transactions by itself.

    A transaction is on the disk when it ends. The connection can be used from any thread, by one at a time.
    """
    connection = factory(
        path,
        uri,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_CACHED,
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS fsync leaves data in the cache of the drive; this option flushes it.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
    except BaseException:
        connection.close()
        raise
    return connection


def use_log(connection: GuardedConnection, path: Path) -> None:
    """Switch to a write-ahead log. Raises `StorageError` if the file system does not support it."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StorageError(
            f"{path} cannot have a write-ahead log (SQLite offers {mode!r}): put it on a disk of this machine, "
            "for a file system over a network may not do"
        )
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.hold_log()


@contextmanager
def transaction(connection: GuardedConnection) -> Iterator[None]:
    """Run the block as one transaction, which is rolled back if it raises.

    Raises `StorageError` if the transaction may be lost because another program removed the log.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute(COMMIT)
    except BaseException:
        # SQLite has rolled back already after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.check_log()


def check_structure(connection: sqlite3.Connection, path: Path) -> None:
    """Check all pages of a file. Raises `StoreCorruptError`."""
    (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if finding != "ok":
        raise StoreCorruptError(
            f"{path} is damaged ({finding}): put the file aside and restore a copy, or start with a new file"
        )
