"""`PostgresWriter` writes messages to nwaku's tables in PostgreSQL; `PostgresUpkeep` removes old ones.

Invariants: a batch is written whole or not at all, and can be written again. A message hash is kept once. Messages that
PostgreSQL or nwaku's layout cannot hold are sorted out before the batch is written, so that they do not fail the
others. Whole partitions are removed, the oldest first, but not the present one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from fairway.storage import postgres_layout as layout
from fairway.storage.archive import ArchiveEntry
from fairway.storage.postgres_session import PostgresSession, psycopg_driver
from fairway.units import NS_PER_S

if TYPE_CHECKING:
    import psycopg

MAX_TOPIC_BYTES: Final = 2_000
"""Longest pubsub topic and content topic: an entry of nwaku's indexes has at most a third of a page, 2,704 bytes."""
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

_REMOVE: Final = """
WITH gone AS (DELETE FROM messages_lookup WHERE messagehash = ANY(%(hashes)s) RETURNING messagehash, timestamp)
DELETE FROM messages USING gone WHERE messages.messagehash = gone.messagehash AND messages.timestamp = gone.timestamp
"""

_Row = tuple[str, str, str, str, int, int, str | None]


class PostgresWriter:
    """Writes to one database; used in one thread. It connects at the first use.

    Partitions are created for times of the last ``late_s`` seconds, and not beyond ``max_age_s``, if that is given.
    """

    def __init__(self, uri: str, *, max_age_s: float | None = None, late_s: float = layout.LATE_S) -> None:
        self._session: Final = PostgresSession(uri)
        self._late_s: Final = late_s if max_age_s is None else min(late_s, max_age_s)
        self._known: list[layout.TablePartition] = []
        self.added = 0
        """Number of new messages written."""

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._session.close()

    def prepare(self) -> None:
        """Create the tables if they are missing; raises `SnapshotError` for those of another version."""
        self._session.run(layout.prepare)

    def write(self, entries: Sequence[ArchiveEntry], *, replaced: Collection[bytes] = ()) -> int:
        """Write messages except ephemeral ones, and return how many the tables cannot hold; raises `StorageError`.

        Messages with the hashes ``replaced`` overwrite the existing rows.
        """
        held = [entry for entry in entries if _holds(entry) and not entry[1].ephemeral]
        refused = len(entries) - len(held) - sum(1 for entry in entries if entry[1].ephemeral)
        rows = {row[0]: row for row in map(_row, reversed(held))}
        kept = self._session.run(lambda connection: self._write(connection, list(rows.values()), replaced))
        return refused + len(rows) - kept

    def _write(self, connection: psycopg.Connection[Any], rows: list[_Row], replaced: Collection[bytes]) -> int:
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
                with connection.transaction():
                    if replaced:
                        hashes = [row[0] for row in rows if bytes.fromhex(row[0]) in replaced]
                        connection.execute(_REMOVE, {"hashes": hashes})
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    self.added += connection.execute(_INSERT, columns).rowcount
            except driver.IntegrityError:
                # A partition was dropped meanwhile: the next attempt reads the partitions again.
                self._known = []
                raise
        return len(rows)


class PostgresUpkeep:
    """The upkeep of one database; used in one thread."""

    def __init__(self, uri: str, *, max_age_s: float | None, max_bytes: int | None) -> None:
        self._session: Final = PostgresSession(uri)
        self._max_age_s: Final = max_age_s
        self._max_bytes: Final = max_bytes

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._session.close()

    def unindexed(self) -> list[str]:
        """Return the partitions without the index by topics."""
        return self._session.run(layout.unindexed, again=True)

    def index_topics(self, partition: str) -> None:
        """Create the index by topics of one partition."""
        self._session.run(lambda connection: layout.index_topics(connection, partition))

    def size(self) -> tuple[int, int]:
        """Count the messages, and return their number and their size in bytes."""
        return self._session.run(
            lambda connection: (layout.count(connection), layout.size_bytes(connection)), again=True
        )

    def used_bytes(self) -> int:
        """Return the size of the messages and their indexes in bytes."""
        return self._session.run(layout.size_bytes, again=True)

    def beyond_age(self, now_ns: int) -> tuple[int, int]:
        """Return how many messages are in partitions beyond ``max_age_s``, and when the first of these begins."""
        return self._session.run(lambda connection: self._beyond_age(connection, now_ns), again=True)

    def enforce(self, now_ns: int) -> int:
        """Remove partitions beyond ``max_age_s`` and ``max_bytes``, and return the number of their messages."""
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

    def _beyond_age(self, connection: psycopg.Connection[Any], now_ns: int) -> tuple[int, int]:
        old = [each for each in layout.partitions(connection) if self._is_old(each, now_ns)]
        return sum(layout.count(connection, each) for each in old), old[0].start_ns if old else 0

    def _is_old(self, partition: layout.TablePartition, now_ns: int) -> bool:
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
