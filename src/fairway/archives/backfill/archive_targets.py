"""Archives of nwaku's two layouts as targets: a SQLite file, and a PostgreSQL database.

The message hash is a key in both, so other processes may write at the same time, and no message is stored twice.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from fairway.archives.backfill.target import Offered, Settled, Target
from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.sources.waku_messages import arrow_batch
from fairway.pipeline.stages.message_hashes import Fit, fits_of
from fairway.storage.archive import ArchivedMessage
from fairway.storage.nwaku_archive import NwakuArchive, file_at
from fairway.storage.postgres_archive import PostgresArchive
from fairway.storage.postgres_layout import LATE_S
from fairway.storage.postgres_session import place_without_credentials
from fairway.storage.postgres_writer import PostgresWriter
from fairway.units import NS_PER_S

_ROWS: Final = 1_000
_READ_LIMIT_S: Final = 60.0


class SqliteTarget(Target):
    """The SQLite archive of a store node; with ``create`` a missing file is created."""

    rows_at_once = _ROWS

    def __init__(self, place: str, *, create: bool) -> None:
        if not place:
            raise ConfigurationError("'sqlite:' names no file; an example is sqlite:store.sqlite3")
        path = file_at(place).absolute()
        self.name = f"sqlite:{path}"
        is_there = path.exists()
        self._archive: Final = NwakuArchive(path, read_only=not create) if create or is_there else None
        self._before = 0

    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes that the file has."""
        return set() if self._archive is None else {place.message_hash for place in self._archive.places(hashes)}

    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes whose contents in the file have another hash."""
        return set() if self._archive is None else _damaged(self._archive.find(hashes))

    def write(self, messages: Sequence[Offered]) -> None:
        """Queue messages; the archive writes them in batches."""
        if self._archive is None:
            raise ConfigurationError(f"{self.name}: was opened to look only")
        with _written(self.name):
            for each in messages:
                routed = each.message
                self._archive.append(
                    routed.pubsub_topic,
                    routed.message,
                    routed.message_hash,
                    received_ns=each.timestamp_ns,
                    replace=each.replaces,
                )

    def settle(self, *, last: bool) -> Settled:  # noqa: ARG002 - each batch is certain at once
        """Write the queued messages."""
        if self._archive is None:
            return Settled()
        with _written(self.name):
            self._archive.flush()
        added = self._archive.added
        settled, self._before = Settled(written=added - self._before), added
        return settled

    def close(self) -> None:
        """Write the queued messages, and close the file."""
        if self._archive is not None:
            with _written(self.name):
                self._archive.close()


class PostgresTarget(Target):
    """nwaku's tables in PostgreSQL, which are created in an empty database."""

    rows_at_once = _ROWS

    def __init__(self, uri: str, *, oldest_ns: int | None, create: bool) -> None:
        self.name = place_without_credentials(uri)
        late_s = LATE_S if oldest_ns is None else max(LATE_S, (time.time_ns() - oldest_ns) / NS_PER_S)
        self._writer: Final = PostgresWriter(uri, late_s=late_s)
        self._pages: Final = PostgresArchive(uri, query_limit_s=_READ_LIMIT_S)
        self._late_days: Final = late_s / 86_400
        self._settled = Settled()
        if create:
            self._writer.prepare()

    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes that the tables have."""
        return {place.message_hash for place in self._pages.places(hashes)}

    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes whose contents in the tables have another hash."""
        return _damaged(self._pages.find(hashes))

    def write(self, messages: Sequence[Offered]) -> None:
        """Write messages in one transaction."""
        before = self._writer.added
        entries = [
            (each.message.pubsub_topic, each.message.message, each.message.message_hash, each.timestamp_ns)
            for each in messages
        ]
        replaced = {each.message.message_hash for each in messages if each.replaces}
        refused = self._writer.write(entries, replaced=replaced)
        self._settled.written += self._writer.added - before
        if refused:
            self._settled.refused[
                f"its tables have no room for messages older than {self._late_days:.0f} days or more than an hour "
                "ahead: give --since with the time from which partitions are to be made"
            ] += refused

    def settle(self, *, last: bool) -> Settled:  # noqa: ARG002 - each batch is certain at once
        """Return the counts of the messages since the last call."""
        settled, self._settled = self._settled, Settled()
        return settled

    def close(self) -> None:
        """Close both connections."""
        self._writer.close()
        self._pages.close()


def _damaged(messages: Sequence[ArchivedMessage]) -> set[bytes]:
    fits = fits_of(arrow_batch(list(messages), ""))
    return {message.message_hash for message, fit in zip(messages, fits, strict=True) if fit == Fit.DAMAGED}


@contextmanager
def _written(name: str) -> Iterator[None]:
    """Raise the errors of a write as `StorageError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageError(
            f"{name}: cannot be written: {error}; the written messages stay; run the same command to continue"
        ) from error
