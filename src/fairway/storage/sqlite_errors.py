"""Turns errors of SQLite and the operating system into typed errors that name the action, the file and the remedy."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairway.errors import StorageError, StoreCorruptError, StoreFullError, StoreLockedError, StorePathError

# By primary result code (the low byte of what SQLite returns): https://sqlite.org/rescode.html
_KINDS: Final[dict[int, tuple[type[StorageError], str]]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "the disk is full: free some space, then start the channel again"),
    sqlite3.SQLITE_IOERR: (
        StoreFullError,
        "an operation on the disk failed: check the disk, its free space and its quotas",
    ),
    sqlite3.SQLITE_READONLY: (StorePathError, "it cannot be written: see its permissions and those of its directory"),
    sqlite3.SQLITE_PERM: (StorePathError, "it cannot be written: see its permissions and those of its directory"),
    sqlite3.SQLITE_CANTOPEN: (
        StorePathError,
        "it cannot be opened or created: see that its directory exists and can be written",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreCorruptError,
        "the file is damaged: put it aside and restore a copy, or start with a new file",
    ),
    sqlite3.SQLITE_NOTADB: (
        StoreCorruptError,
        "the file is no SQLite database: give the path of a fairway store, or of a new file",
    ),
    sqlite3.SQLITE_BUSY: (StoreLockedError, "another program holds it: close that program"),
    sqlite3.SQLITE_LOCKED: (StoreLockedError, "another program holds it: close that program"),
}
_UNKNOWN: Final = (StorageError, "see what SQLite says about it")
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
# A read that fails or returns too few bytes means that the file is damaged.
_DAMAGED_READS: Final = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}


def storage_error(error: sqlite3.Error, path: Path, doing: str) -> StorageError:
    """Return the typed error for an error of SQLite; ``doing`` names the action that failed, such as "writing"."""
    code = getattr(error, "sqlite_errorcode", -1)
    kind, advice = _KINDS[sqlite3.SQLITE_CORRUPT] if code in _DAMAGED_READS else _KINDS.get(code & 0xFF, _UNKNOWN)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return kind(f"{path}: {doing} failed; {advice} ({name}: {error})")


@contextmanager
def typed_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of SQLite or the operating system inside the block into typed errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(error, path, doing) from error
    except UnicodeDecodeError as error:  # of what SQLite quotes from a damaged schema
        kind, advice = _KINDS[sqlite3.SQLITE_CORRUPT]
        raise kind(f"{path}: {doing} failed; {advice} ({error})") from error
    except OSError as error:
        kind, advice = _of_system(error, path)
        raise kind(f"{path}: {doing} failed; {advice} ({error})") from error


def _of_system(error: OSError, path: Path) -> tuple[type[StorageError], str]:
    if error.errno in _FULL:
        return StoreFullError, "free some space, and see that the disk is sound and no quota is used up"
    if error.errno == errno.ENOENT and not path.parent.exists():
        return StorePathError, f"there is no directory {path.parent}: make it, or give another path"
    return StorePathError, "see that the path is right, and its permissions and those of its directory"
