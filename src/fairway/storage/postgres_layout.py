"""The layout of nwaku's message store in PostgreSQL: its tables and partitions, how they are created and dropped.

Invariants: the layout is that of nwaku's schema version 7 (its migrations 1 to 7), so that nwaku can use the database
without a migration:

- The table ``messages`` is partitioned by ``timestamp``; hash, payload and meta are hexadecimal text; the table
  ``messages_lookup`` has every message hash.
- Partitions are named ``messages_<from>_<to>`` in seconds and have at most an hour. There is no default partition, and
  none further in the future than `AHEAD_S`, because nwaku creates the next one only after the newest.
- The index by topics is an addition of fairway.

A timestamp creates at most one partition, and at most one for each hour of `LATE_S` lies in the past, whatever
timestamps senders choose.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairway.errors import SnapshotError
from fairway.units import NS_PER_S

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION: Final = 7
"""The version in nwaku's table ``version``."""
HOUR_S: Final = 3_600
AHEAD_S: Final = HOUR_S
"""Time of the future for which partitions are created."""
LATE_S: Final = 31 * 24 * HOUR_S
"""Time of the past for which partitions are created; older messages are kept only if their partition exists."""
_LOCK: Final = 7_263_018
"""The advisory lock of PostgreSQL that is held while tables are created."""

_CREATE: Final = """
CREATE TABLE messages (
    pubsubTopic VARCHAR NOT NULL,
    contentTopic VARCHAR NOT NULL,
    payload VARCHAR,
    version INTEGER NOT NULL,
    id VARCHAR NOT NULL,
    messageHash VARCHAR NOT NULL,
    timestamp BIGINT NOT NULL,
    meta VARCHAR DEFAULT NULL,
    CONSTRAINT messageIndex PRIMARY KEY (messageHash, timestamp)
) PARTITION BY RANGE (timestamp);
CREATE TABLE messages_lookup (
    timestamp BIGINT NOT NULL,
    messageHash VARCHAR NOT NULL,
    CONSTRAINT messageIndexLookupTable PRIMARY KEY (messageHash, timestamp)
);
CREATE INDEX idx_messages_messagehash ON messages (messagehash);
CREATE INDEX idx_messages_timestamp ON messages (timestamp);
CREATE INDEX idx_messages_lookup_messagehash ON messages_lookup (messagehash);
CREATE INDEX idx_messages_lookup_timestamp ON messages_lookup (timestamp);
CREATE INDEX idx_query_pubsubtopic ON messages (pubsubTopic);
CREATE INDEX idx_query_contenttopic ON messages (contentTopic);
CREATE TABLE version (version INTEGER NOT NULL);
INSERT INTO version (version) VALUES (7);
"""
_TOPIC_COLUMNS: Final = "(contentTopic, timestamp)"
_TOPIC_INDEX: Final = "i_fairway_topics"
_PARTITIONS: Final = """
SELECT child.relname::text, pg_get_expr(child.relpartbound, child.oid) FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid WHERE inhparent = to_regclass('messages') AND NOT inhdetachpending
"""
_DETACHING: Final = """
SELECT child.relname::text FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = to_regclass('messages') AND inhdetachpending
"""
_UNINDEXED: Final = """
SELECT child.relname::text FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = to_regclass('messages') AND NOT EXISTS (
    SELECT FROM pg_index AS mine JOIN pg_inherits AS part ON part.inhrelid = mine.indexrelid
    WHERE mine.indrelid = child.oid AND part.inhparent = to_regclass('i_fairway_topics'))
"""
_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint + pg_total_relation_size('messages_lookup')
FROM pg_inherits WHERE inhparent = to_regclass('messages')
"""
_BOUND: Final = re.compile(r"FROM \('?(-?\d+)'?\) TO \('?(-?\d+)'?\)")


class TablePartition(NamedTuple):
    """The messages of a range of time; ``end_ns`` is not included."""

    start_ns: int
    end_ns: int
    name: str


def prepare(connection: psycopg.Connection[Any]) -> bool:
    """Create the tables in an empty database and return True; check the version of others and return False.

    Raises `SnapshotError` for another version than `SCHEMA_VERSION`.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        (kind,) = _one(connection, "SELECT (SELECT relkind::text FROM pg_class WHERE oid = to_regclass('messages'))")
        if kind is None:
            for statement in filter(str.strip, _CREATE.split(";")):
                connection.execute(statement.encode())
            connection.execute(f"CREATE INDEX {_TOPIC_INDEX} ON messages {_TOPIC_COLUMNS}".encode())
            return True
        (versioned,) = _one(connection, "SELECT to_regclass('version') IS NOT NULL")
        version = _one(connection, "SELECT max(version) FROM version")[0] if versioned else None
    if kind != "p" or version != SCHEMA_VERSION:
        raise SnapshotError(
            f"the database has messages of schema version {version}, this node writes {SCHEMA_VERSION}; a nwaku node "
            "that is started once on an older database brings it up to date"
        )
    return False


def unindexed(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the partitions without the index by topics."""
    return [name for (name,) in connection.execute(_UNINDEXED)]


def index_topics(connection: psycopg.Connection[Any], partition: str) -> None:
    """Create the index by topics of one partition, without a lock for readers and writers."""
    name = f"{partition}_{_TOPIC_INDEX}"
    connection.execute(f"CREATE INDEX IF NOT EXISTS {_TOPIC_INDEX} ON ONLY messages {_TOPIC_COLUMNS}".encode())
    # An interrupted creation leaves an index that PostgreSQL does not use.
    connection.execute(f"DROP INDEX IF EXISTS {_quoted(name)}".encode())
    connection.execute(f"CREATE INDEX CONCURRENTLY {_quoted(name)} ON {_quoted(partition)} {_TOPIC_COLUMNS}".encode())
    connection.execute(f"ALTER INDEX {_TOPIC_INDEX} ATTACH PARTITION {_quoted(name)}".encode())


def partitions(connection: psycopg.Connection[Any]) -> list[TablePartition]:
    """Return the partitions in their order."""
    found = []
    for name, bound in connection.execute(_PARTITIONS):
        if match := _BOUND.search(bound):
            found.append(TablePartition(int(match[1]), int(match[2]), name))
    return sorted(found)


def uncovered(
    known: list[TablePartition], timestamps_ns: Iterable[int], now_ns: int, late_s: float = LATE_S
) -> set[TablePartition]:
    """Return the partitions to create for messages of these times, from ``late_s`` ago to `AHEAD_S` ahead."""
    oldest_ns, newest_ns = now_ns - round(late_s * NS_PER_S), now_ns + AHEAD_S * NS_PER_S
    wanted = set()
    for timestamp_ns in {*timestamps_ns, now_ns, newest_ns}:
        if oldest_ns <= timestamp_ns <= newest_ns and not covers(known, timestamp_ns):
            hour_s = timestamp_ns // NS_PER_S // HOUR_S * HOUR_S
            wanted.add(_between(known, timestamp_ns, hour_s, hour_s + HOUR_S))
    return wanted


def covers(known: list[TablePartition], timestamp_ns: int) -> bool:
    """Return whether a partition covers a time."""
    place = bisect_right(known, timestamp_ns, key=lambda partition: partition.start_ns)
    return place > 0 and timestamp_ns < known[place - 1].end_ns


def make(connection: psycopg.Connection[Any], partition: TablePartition) -> None:
    """Create a partition, unless an existing one covers some of its time. Readers and writers are not blocked."""
    name = _quoted(partition.name)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Another node may have created one for this time.
        if any(
            known.start_ns < partition.end_ns and partition.start_ns < known.end_ns for known in partitions(connection)
        ):
            return
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name} (LIKE messages INCLUDING DEFAULTS INCLUDING CONSTRAINTS)".encode()
        )
        connection.execute(
            f"ALTER TABLE messages ATTACH PARTITION {name} "
            f"FOR VALUES FROM ({partition.start_ns}) TO ({partition.end_ns})".encode()
        )


def drop(connection: psycopg.Connection[Any], partition: TablePartition) -> int:
    """Drop a partition, and return the number of its messages."""
    name = _quoted(partition.name)
    messages = count(connection, partition)
    for (pending,) in connection.execute(_DETACHING).fetchall():
        connection.execute(f"ALTER TABLE messages DETACH PARTITION {_quoted(pending)} FINALIZE".encode())
        connection.execute(f"DROP TABLE {_quoted(pending)}".encode())
    connection.execute(f"ALTER TABLE messages DETACH PARTITION {name} CONCURRENTLY".encode())
    connection.execute(f"DROP TABLE {name}".encode())
    connection.execute(
        "DELETE FROM messages_lookup WHERE timestamp >= %s AND timestamp < %s", (partition.start_ns, partition.end_ns)
    )
    return messages


def size_bytes(connection: psycopg.Connection[Any]) -> int:
    """Return the size of the messages and their indexes."""
    return int(_one(connection, _SIZE)[0])


def count(connection: psycopg.Connection[Any], partition: TablePartition | None = None) -> int:
    """Count the messages, or those of one partition."""
    table = "messages" if partition is None else _quoted(partition.name)
    return int(_one(connection, f"SELECT count(*) FROM {table}")[0])  # noqa: S608 - quoted


def _between(known: list[TablePartition], timestamp_ns: int, start_s: int, end_s: int) -> TablePartition:
    """Return the longest partition within an hour that holds a time and overlaps no other.

    nwaku's partitions begin at any second.
    """
    for partition in known:
        if partition.end_ns <= timestamp_ns:
            start_s = max(start_s, -(-partition.end_ns // NS_PER_S))
        else:
            end_s = min(end_s, partition.start_ns // NS_PER_S)
            break
    return TablePartition(start_s * NS_PER_S, end_s * NS_PER_S, f"messages_{start_s}_{end_s}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query.encode()).fetchone()
