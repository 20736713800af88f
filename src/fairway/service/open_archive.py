"""Opens the archive at an address: in memory, in an SQLite file, or in PostgreSQL."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError
from fairway.service.archives import MemoryArchive, NodeArchive, Retention, is_too_far_ahead
from fairway.service.database_archive import QUERY_LIMIT_S, DatabaseArchive
from fairway.storage.nwaku_archive import NwakuArchive, file_at
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.storage.postgres_archive import PostgresArchive
from fairway.storage.postgres_session import place_without_credentials
from fairway.storage.postgres_writer import PostgresUpkeep, PostgresWriter
from fairway.storage.store_lock import StoreLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.storage.archive import ArchiveEntry

INDEX_AT_ONCE_BYTES: Final = 16_777_216
"""A smaller file gets its index by topics before it is used, a larger one while it is used."""


async def open_archive(address: str, retention: Retention | None = None) -> NodeArchive:
    """Return the archive at an address; the caller closes it.

    - ``"memory:"``: the newest 100,000 messages, until the process ends;
    - ``"sqlite:PATH"``, nwaku's ``"sqlite://PATH"``, or a path: a file in the layout of a nwaku store;
    - ``"postgresql://user@host:5432/db"``: nwaku's tables in PostgreSQL, for which fairway is installed with
      ``[postgresql]``; give the password in libpq's environment.

    Raises `ConfigurationError` for any other address, and the errors of `open_sqlite` and `open_postgres`.
    """
    chosen = retention or Retention()
    kind, separator, place = address.partition(":")
    match kind:
        case "memory" if separator and not place:
            return MemoryArchive()
        case "sqlite" if place:
            return await open_sqlite(file_at(place), chosen)
        case "postgresql" | "postgres" if place.startswith("//"):
            return await open_postgres(address, chosen)
        case _ if address and (not separator or "/" in kind):
            return await open_sqlite(Path(address), chosen)
    shown = place_without_credentials(address) if "://" in address else address
    raise ConfigurationError(f"{shown!r} is no archive; give memory:, sqlite:PATH or postgresql://user@host/db")


async def open_sqlite(path: Path, retention: Retention) -> DatabaseArchive:
    """Open or create an archive in one SQLite file with nwaku's layout; raises the errors of `NwakuArchive`.

    One node has the file open at a time: it holds a lock, which ends with the process, and other nodes get a
    `StoreLockedError`. Programs that only read need no lock.

    Readers have connections of their own: with the write-ahead log they can read while the writer writes.
    """

    def open_upkeep() -> NwakuUpkeep:
        upkeep = NwakuUpkeep(path, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
        if upkeep.used_bytes() < INDEX_AT_ONCE_BYTES:
            upkeep.index_topics()
        return upkeep

    return await DatabaseArchive.open(
        str(path),
        tables=lambda: _SqliteTables(path),
        reader=partial(NwakuArchive, path, read_only=True, read_limit_s=QUERY_LIMIT_S),
        upkeep=open_upkeep,
        retention=retention,
    )


def _locked(path: Path) -> StoreLock:
    try:
        return StoreLock(path.resolve(), user="node", kind="archive")
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be opened as an archive: {error.strerror}; does its folder exist, and may you write there?"
        ) from error


class _SqliteTables:
    """The file as `DatabaseArchive` writes to it, and its lock."""

    def __init__(self, path: Path) -> None:
        self.added = 0
        self._lock: Final = _locked(path)
        try:
            self._file: Final = NwakuArchive(path)
        except BaseException:
            self._lock.release()
            raise

    def write(self, entries: Sequence[ArchiveEntry]) -> int:
        before = self._file.added
        kept = [entry for entry in entries if not is_too_far_ahead(entry[1])]
        for pubsub_topic, message, message_hash, received_ns in kept:
            self._file.append(pubsub_topic, message, message_hash, received_ns=received_ns)
        self._file.flush()
        self.added += self._file.added - before
        return len(entries) - len(kept)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._lock.release()


async def open_postgres(uri: str, retention: Retention) -> DatabaseArchive:
    """Open an archive in PostgreSQL; create nwaku's tables if they are missing. Several nodes may share a database.

    After a restart of the server the archive connects again. While the server is away messages wait, as many as
    `fairway.service.archive_writer.ArchiveWriter` holds, and queries raise `StorageError`. A message is not kept if its
    timestamp lies more than an hour in the future, or further back than the retention or 31 days. Messages beyond the
    largest age are removed by whole hours, so that a message may stay an hour longer.

    Raises `ConfigurationError` for an invalid URI or without psycopg, `SnapshotError` for tables of another version,
    and `StorageError` if the server cannot be reached.
    """

    def open_tables() -> PostgresWriter:
        tables = PostgresWriter(uri, max_age_s=retention.max_age_s)
        try:
            tables.prepare()
        except BaseException:
            tables.close()
            raise
        return tables

    return await DatabaseArchive.open(
        place_without_credentials(uri),
        tables=open_tables,
        reader=partial(PostgresArchive, uri, query_limit_s=QUERY_LIMIT_S),
        upkeep=partial(PostgresUpkeep, uri, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes),
        retention=retention,
    )
