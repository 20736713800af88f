"""Messages on their way into nwaku's layout in PostgreSQL, and out of it when they are too old or too many.

Invariants: a batch is written whole or not at all, and writing it again does no harm; a message hash is kept once; a
message that PostgreSQL or nwaku's layout cannot hold is refused before anything is written, so that it never costs
another its place. Whole partitions go, the oldest first, and never the one of the present.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from fairway.storage import postgres_layout as layout
from fairway.storage.archive import ArchiveEntry
from fairway.storage.postgres_session import PostgresSession, psycopg_driver
from fairway.units import NS_PER_S

if TYPE_CHECKING:
    import psycopg

MAX_TOPIC_BYTES: Final = 2_000
"""Of pubsub topic and of content topic: entries of nwaku's indexes have a third of a page, 2,704 bytes."""
_MAX_INTEGER: Final = 2**31 - 1

_INSERT: Final = """
WITH given AS (
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::int[], %s::bigint[], %s::text[])
        AS row (messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta)
    WHERE NOT EXISTS (SELECT FROM messages_lookup AS known WHERE known.messagehash = row.messagehash)
), kept AS (
    INSERT INTO messages (id, messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta)
    SELECT '0', messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta FROM given
    ON CONFLICT DO NOTHING
)
INSERT INTO messages_lookup (messagehash, timestamp) SELECT messagehash, timestamp FROM given ON CONFLICT DO NOTHING
"""

_Row = tuple[str, str, str, str, int, int, str | None]


class PostgresWriter:
    """Writes one database; used in one thread. Its connection comes with the first use."""

    def __init__(self, uri: str, *, max_age_s: float | None = None) -> None:
        self._session: Final = PostgresSession(uri)
        self._late_s: Final = layout.LATE_S if max_age_s is None else max_age_s
        self._known: list[layout.Partition] = []
        self.added = 0
        """How many messages were written that were not there before."""

    def close(self) -> None:
        """Close the connection; more than once does no harm."""
        self._session.close()

    def prepare(self) -> None:
        """Make the tables where there are none; raises `SnapshotError` for those of another version."""
        self._session.run(layout.prepare)

    def write(self, entries: Sequence[ArchiveEntry]) -> int:
        """Keep messages but ephemeral ones, and return how many could not be held; raises `StorageError`."""
        held = [entry for entry in entries if _holds(entry) and not entry[1].ephemeral]
        refused = len(entries) - len(held) - sum(1 for entry in entries if entry[1].ephemeral)
        rows = {row[0]: row for row in map(_row, reversed(held))}
        kept = self._session.run(lambda connection: self._write(connection, list(rows.values())))
        return refused + len(rows) - kept

    def _write(self, connection: psycopg.Connection[Any], rows: list[_Row]) -> int:
        wanted = layout.uncovered(self._known, (row[5] for row in rows), time.time_ns(), self._late_s)
        if wanted:
            self._known = layout.partitions(connection)
            for partition in layout.uncovered(self._known, (row[5] for row in rows), time.time_ns(), self._late_s):
                layout.make(connection, partition)
            self._known = layout.partitions(connection)
        rows = [row for row in rows if layout.covers(self._known, row[5])]
        if rows:
            driver = psycopg_driver()
            try:
                self.added += connection.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)]).rowcount
            except driver.IntegrityError:
                # A partition went meanwhile: look again when the batch comes again.
                self._known = []
                raise
        return len(rows)


class PostgresUpkeep:
    """Looks after one database; used in one thread."""

    def __init__(self, uri: str, *, max_age_s: float | None, max_bytes: int | None) -> None:
        self._session: Final = PostgresSession(uri)
        self._max_age_s: Final = max_age_s
        self._max_bytes: Final = max_bytes

    def close(self) -> None:
        """Close the connection; more than once does no harm."""
        self._session.close()

    def unindexed(self) -> list[str]:
        """Return the partitions that lack the index by topics."""
        return self._session.run(layout.unindexed, again=True)

    def index_topics(self, partition: str) -> None:
        """Make that index for one of them."""
        self._session.run(lambda connection: layout.index_topics(connection, partition))

    def size(self) -> tuple[int, int]:
        """Return how many messages there are, by counting them, and the bytes that they take."""
        return self._session.run(
            lambda connection: (layout.count(connection), layout.size_bytes(connection)), again=True
        )

    def used_bytes(self) -> int:
        """Return the bytes that the messages take."""
        return self._session.run(layout.size_bytes, again=True)

    def enforce(self, now_ns: int) -> int:
        """Remove the partitions that may not stay, and return how many messages those had."""
        return self._session.run(lambda connection: self._enforce(connection, now_ns))

    def _enforce(self, connection: psycopg.Connection[Any], now_ns: int) -> int:
        removed = 0
        for partition in layout.partitions(connection):
            if partition.end_ns > now_ns:
                break
            if self._is_old(partition, now_ns) or self._is_too_much(connection):
                removed += layout.drop(connection, partition)
            else:
                break
        return removed

    def _is_old(self, partition: layout.Partition, now_ns: int) -> bool:
        return self._max_age_s is not None and partition.end_ns <= now_ns - round(self._max_age_s * NS_PER_S)

    def _is_too_much(self, connection: psycopg.Connection[Any]) -> bool:
        return self._max_bytes is not None and layout.size_bytes(connection) > self._max_bytes


def _holds(entry: ArchiveEntry) -> bool:
    pubsub_topic, message, _, _ = entry
    topics = (pubsub_topic, message.content_topic)
    return (
        not any("\0" in topic for topic in topics)
        and max(len(topic.encode()) for topic in topics) <= MAX_TOPIC_BYTES
        and (message.version or 0) <= _MAX_INTEGER
    )


def _row(entry: ArchiveEntry) -> _Row:
    pubsub_topic, message, message_hash, received_ns = entry
    return (
        message_hash.hex(),
        pubsub_topic,
        message.content_topic,
        message.payload.hex(),
        message.version or 0,
        message.timestamp_ns or received_ns,
        message.meta.hex() if message.meta else None,
    )
