"""`MessageIds`: counts the message ids that memberships have used, so that no id proves two signals.

Invariant: an id and the hash of its signal are on the disk before the id is returned. So an id is returned again only
for the identical signal, which reveals nothing. This also holds after a crash, and for several processes on one file.

Counts are never deleted, because a clock may return to any epoch. A year of epochs of ten minutes takes 50,000 rows for
a membership. Counts are kept by membership and epoch: two networks whose epochs have the same numbers share them.

Before an id is returned, the count is compared with the recorded signals. So a file with changed bytes, which SQLite
does not detect, raises an error and returns no used id.

Never copy the file or restore it from a backup, because a copy does not have later ids. If the file is lost, create a
new one that starts with the next epoch.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

from fairway.errors import (
    ConfigurationError,
    RlnError,
    RlnErrorKind,
    StorageError,
    StoreCorruptError,
    StoreVersionError,
)
from fairway.rln.field import hash_to_field, number_of
from fairway.storage.backup import MESSAGE_IDS
from fairway.storage.sqlite_connection import (
    BUSY_TIMEOUT_S,
    GuardedConnection,
    check_structure,
    connect,
    keep_private,
    refuse_other_files,
    transaction,
    use_log,
)
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.store_lock import StoreLock

APPLICATION_ID: Final = MESSAGE_IDS
"""SQLite's application id, at offset 68 of the file."""
SCHEMA_VERSION: Final = 1
MAX_EPOCH: Final = 2**63 - 1
"""SQLite's largest number."""
RETRIED_EPOCHS: Final = 2
"""Epochs around the used one whose signals are kept; validators refuse messages of any other epoch."""


class MessageIds:
    """The counts in a file, which threads and processes may share."""

    def __init__(self, path: str | os.PathLike[str], *, factory: type[GuardedConnection] = GuardedConnection) -> None:
        """Open the file. ``factory`` makes the connection, for tests.

        Raises `StorageError` if the file does not exist: only `create` makes one. Raises `StoreCorruptError` for any
        other file.
        """
        self._path = Path(path).absolute()
        if not self._path.exists():
            raise StorageError(
                f"{self._path} does not exist. If it was lost, create a new one that starts with the next epoch: "
                "an id that is used twice reveals the membership's secret"
            )
        try:
            self._connection = _opened(self._path, factory)
        except StoreCorruptError as error:
            raise StoreCorruptError(
                f"{self._path} does not count message ids. If it did before, move it away; counting then starts with "
                f"the next epoch ({error})"
            ) from error
        self._lock = Lock()

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, first_epoch: int) -> Self:
        """Create the file and open it.

        No id is returned for epochs before ``first_epoch``. Give 0 for memberships that were never used, otherwise the
        epoch after that of the last signal. Raises `ConfigurationError` if the file exists.
        """
        whole = Path(path).absolute()
        if not 0 <= first_epoch <= MAX_EPOCH:
            raise ConfigurationError(f"first_epoch is 0 to {MAX_EPOCH}, not {first_epoch}")
        with typed_errors(whole, "creating"):
            beside = whole.with_name(f"{whole.name}.new")
            beside.unlink(missing_ok=True)
            keep_private(beside)
            with closing(connect(beside)) as connection:
                _lay_out(connection, first_epoch)
            try:
                os.link(beside, whole)  # unlike a rename, this replaces no file
            except FileExistsError as error:
                raise ConfigurationError(f"{whole} exists: open it") from error
            finally:
                beside.unlink()
        return cls(whole)

    def reserve(self, commitment: bytes, epoch: int, limit: int, signal: bytes) -> int:
        """Write a message id for a signal to the disk, and return it; the identical signal gets the same id again.

        Raises `RlnError`: exhausted when the ``limit`` ids of the epoch are used, not ready in an epoch before the
        first. Raises `StorageError` if the id cannot be written.
        """
        number_of(commitment, "an identity commitment")
        if not 0 <= epoch <= MAX_EPOCH:
            raise ConfigurationError(f"an epoch is 0 to {MAX_EPOCH}, not {epoch}")
        share_x = hash_to_field(signal)
        with self._lock, typed_errors(self._path, "reserving a message id"), self._alone():
            return self._reserve(commitment, epoch, limit, share_x)

    def used(self, commitment: bytes, epoch: int) -> int:
        """Return how many ids of an epoch a membership has used. Raises `StorageError`."""
        with self._lock, typed_errors(self._path, "reading"):
            return self._used(commitment, epoch)

    def close(self) -> None:
        """Close the file."""
        with self._lock, typed_errors(self._path, "closing"):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Run the block as a transaction that excludes other processes.

        SQLite's lock is not enough: this process loses it if it copies the files during the transaction.
        """
        lock = StoreLock(self._path, user="member", kind="file of message ids", wait_s=BUSY_TIMEOUT_S)
        try:
            with transaction(self._connection):
                yield
        finally:
            lock.release()

    def _reserve(self, commitment: bytes, epoch: int, limit: int, share_x: bytes) -> int:
        execute = self._connection.execute
        used = self._used(commitment, epoch)
        signals = execute(
            "SELECT share_x, message_id FROM signal WHERE commitment = ? AND epoch = ?", (commitment, epoch)
        ).fetchall()
        # An epoch has either the signals of its last ids or no signals.
        if sorted(each for _, each in signals) != list(range(used - len(signals), used)):
            raise self._damaged(f"of epoch {epoch} the count and the signals differ")
        known = dict(signals).get(share_x)
        if known is not None:
            return int(known)
        first = execute("SELECT epoch FROM first").fetchall()
        if len(first) != 1 or not isinstance(first[0][0], int):
            raise self._damaged("the first epoch is missing")
        (first_epoch,) = first[0]
        if epoch < first_epoch:
            raise RlnError(RlnErrorKind.NOT_READY, f"{self._path} counts from epoch {first_epoch} on, it is {epoch}")
        message_id = used
        if message_id >= limit:
            raise RlnError(RlnErrorKind.BUDGET_EXHAUSTED, f"all {limit} message ids of epoch {epoch} are used")
        execute(
            "INSERT INTO counter VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET used = used + 1",
            (commitment, epoch),
        )
        execute("INSERT INTO signal VALUES (?, ?, ?, ?)", (commitment, epoch, share_x, message_id))
        execute("DELETE FROM signal WHERE commitment = ? AND abs(epoch - ?) > ?", (commitment, epoch, RETRIED_EPOCHS))
        return message_id

    def _used(self, commitment: bytes, epoch: int) -> int:
        found = self._connection.execute(
            "SELECT used FROM counter WHERE commitment = ? AND epoch = ?", (commitment, epoch)
        ).fetchone()
        used = found[0] if found else 0
        if not isinstance(used, int) or used < 0:
            raise self._damaged(f"of epoch {epoch} there is no count")
        return used

    def _damaged(self, what: str) -> StoreCorruptError:
        return StoreCorruptError(
            f"{self._path} is damaged: {what}. Move it away and create one that starts with the next epoch: "
            "an id that is used twice reveals the membership's secret"
        )


def _lay_out(connection: GuardedConnection, first_epoch: int) -> None:
    with transaction(connection):
        for table in (
            "first (epoch INTEGER NOT NULL)",
            (
                "counter (commitment BLOB, epoch INTEGER, used INTEGER NOT NULL, "
                "PRIMARY KEY (commitment, epoch)) WITHOUT ROWID"
            ),
            (
                "signal (commitment BLOB, epoch INTEGER, share_x BLOB, message_id INTEGER NOT NULL, "
                "PRIMARY KEY (commitment, epoch, share_x)) WITHOUT ROWID"
            ),
        ):
            connection.execute(f"CREATE TABLE {table}")
        connection.execute("INSERT INTO first VALUES (?)", (first_epoch,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _opened(path: Path, factory: type[GuardedConnection]) -> GuardedConnection:
    with typed_errors(path, "opening"):
        refuse_other_files(path)
        keep_private(path)
        connection = connect(path, factory=factory)
        try:
            _check(connection, path)
            use_log(connection, path)
            check_structure(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise StoreCorruptError(
            f"{path} has no message ids (application id {application_id:#x}, not {APPLICATION_ID:#x}): "
            "give the path of a file that counts them"
        )
    if version > SCHEMA_VERSION:
        raise StoreVersionError(
            f"{path} has schema version {version}, this fairway knows versions up to {SCHEMA_VERSION}: update fairway"
        )
