"""`back_up`: copies a store or an archive in SQLite into a new file, also while programs use it.

The copy is the state at one moment. Programs can write to the source meanwhile.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError, StorageError
from fairway.storage.sqlite_connection import (
    GuardedConnection,
    check_structure,
    connect,
    keep_private,
    refuse_other_files,
)
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.whole_file import BESIDE, make_durable

MESSAGE_IDS: Final = 0x4657524C
"""``FWRL``, the application id of a file of RLN message ids (`fairway.rln.message_ids`)."""
_PAGES_PER_STEP: Final = 4_096
"""Pages after which an interrupt ends the copy."""


def back_up(source: Path, target: Path) -> None:
    """Copy a file of SQLite; only its owner may read the copy. On return the copy is whole and on the disk.

    Raises `ConfigurationError` if ``target`` exists, or if ``source`` counts RLN message ids, because a copy of them is
    dangerous. Raises `StorageError` if ``source`` is missing, `StoreCorruptError` if it is no database or damaged, and
    `StoreFullError` if the copy cannot be written.
    """
    source, target = source.resolve(), target.resolve()
    if not source.exists():
        raise StorageError(f"there is no file {source}: give the path of a store or an archive")
    for each in (target, target.with_name(f"{target.name}-wal")):
        if each.exists():
            raise ConfigurationError(f"{each} exists: give the path of a new file, or move it away first")
    refuse_other_files(source)
    beside = target.with_name(f".{target.name}{BESIDE}")
    with typed_errors(target, "writing"):
        beside.unlink(missing_ok=True)
        keep_private(beside)
    try:
        with typed_errors(source, "reading"), closing(_opened(source)) as reading:
            _copy(source, reading, beside, target)
        with typed_errors(target, "writing"):
            beside.replace(target)
            make_durable(target.parent)
    finally:
        beside.unlink(missing_ok=True)


def _opened(source: Path) -> GuardedConnection:
    """Open a file, also on a read-only medium, without leaving files beside it."""
    try:
        connection = connect(source, uri=f"{source.as_uri()}?mode=rw")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise
        connection = connect(source, uri=f"{source.as_uri()}?mode=ro&immutable=1")
    return connection


def _copy(source: Path, reading: GuardedConnection, beside: Path, target: Path) -> None:
    # In a transaction the source does not change between two steps.
    reading.execute("BEGIN")
    if reading.execute("PRAGMA application_id").fetchone() == (MESSAGE_IDS,):
        raise ConfigurationError(
            f"{source}: a copy of a file of RLN message ids gives ids a second time, which gives away the secret of "
            "the membership: do not back it up; without it a new one begins with the next epoch"
        )
    with typed_errors(source, f"copying into {target}"), closing(connect(beside)) as writing:
        reading.backup(writing, pages=_PAGES_PER_STEP, progress=lambda *_: None)
    with closing(connect(beside, uri=f"{beside.as_uri()}?mode=ro&immutable=1")) as copied:
        check_structure(copied, target)
