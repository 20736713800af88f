"""Nwaku's message store in PostgreSQL as a service node keeps it: its tables, its partitions, what goes and when.

Invariants: the layout is that of nwaku's schema version 7 (its migrations 1 to 7), so that nwaku itself, started on
such a database, finds nothing to do: table ``messages`` partitioned by ``timestamp``, hexadecimal text for hash,
payload and meta, ``messages_lookup`` with every hash, partitions named ``messages_<from>_<to>`` in seconds and never
longer than an hour, none of them a default one, and none in the future beyond `AHEAD_S`, for nwaku makes the next one
only behind the newest. The index by topics is an addition. A timestamp makes at most one partition, and those before
the present number at most `LATE_S` over an hour, whatever timestamps strangers choose.
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
"""What nwaku's table ``version`` says."""
HOUR_S: Final = 3_600
AHEAD_S: Final = HOUR_S
"""Partitions are made for so much of the future."""
LATE_S: Final = 31 * 24 * HOUR_S
"""Older messages are not kept, unless there happens to be a partition for them."""
_LOCK: Final = 7_263_018
"""Of PostgreSQL's advisory locks, held while tables are made."""

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


class Partition(NamedTuple):
    """The messages of a range of time; ``end_ns`` is not included."""

    start_ns: int
    end_ns: int
    name: str


def prepare(connection: psycopg.Connection[Any]) -> bool:
    """Lay out an empty database, check one that is not, and return whether it was empty.

    Raises `SnapshotError` for a layout that is not the newest one of nwaku.
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
    """Return the partitions that lack the index by topics."""
    return [name for (name,) in connection.execute(_UNINDEXED)]


def index_topics(connection: psycopg.Connection[Any], partition: str) -> None:
    """Make the index by topics of one partition; others write and read on meanwhile."""
    name = f"{partition}_{_TOPIC_INDEX}"
    connection.execute(f"CREATE INDEX IF NOT EXISTS {_TOPIC_INDEX} ON ONLY messages {_TOPIC_COLUMNS}".encode())
    # One that was broken off is left behind without being used.
    connection.execute(f"DROP INDEX IF EXISTS {_quoted(name)}".encode())
    connection.execute(f"CREATE INDEX CONCURRENTLY {_quoted(name)} ON {_quoted(partition)} {_TOPIC_COLUMNS}".encode())
    connection.execute(f"ALTER INDEX {_TOPIC_INDEX} ATTACH PARTITION {_quoted(name)}".encode())


def partitions(connection: psycopg.Connection[Any]) -> list[Partition]:
    """Return the partitions in their order."""
    found = []
    for name, bound in connection.execute(_PARTITIONS):
        if match := _BOUND.search(bound):
            found.append(Partition(int(match[1]), int(match[2]), name))
    return sorted(found)


def uncovered(
    known: list[Partition], timestamps_ns: Iterable[int], now_ns: int, late_s: float = LATE_S
) -> set[Partition]:
    """Return the partitions to make so that messages of these times can be kept, as far as they are to be."""
    oldest_ns, newest_ns = now_ns - round(min(late_s, LATE_S) * NS_PER_S), now_ns + AHEAD_S * NS_PER_S
    wanted = set()
    for timestamp_ns in {*timestamps_ns, now_ns, newest_ns}:
        if oldest_ns <= timestamp_ns <= newest_ns and not covers(known, timestamp_ns):
            hour_s = timestamp_ns // NS_PER_S // HOUR_S * HOUR_S
            wanted.add(_between(known, timestamp_ns, hour_s, hour_s + HOUR_S))
    return wanted


def covers(known: list[Partition], timestamp_ns: int) -> bool:
    """Return whether there is a partition for a time."""
    place = bisect_right(known, timestamp_ns, key=lambda partition: partition.start_ns)
    return place > 0 and timestamp_ns < known[place - 1].end_ns


def make(connection: psycopg.Connection[Any], partition: Partition) -> None:
    """Make a partition; reading and writing of the others go on."""
    name = _quoted(partition.name)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Another node may have made one for this time since we looked.
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


def drop(connection: psycopg.Connection[Any], partition: Partition) -> int:
    """Remove a partition with its messages, and return how many those were."""
    name = _quoted(partition.name)
    (messages,) = _one(connection, f"SELECT count(*) FROM {name}")  # noqa: S608 - quoted
    for (pending,) in connection.execute(_DETACHING).fetchall():
        connection.execute(f"ALTER TABLE messages DETACH PARTITION {_quoted(pending)} FINALIZE".encode())
        connection.execute(f"DROP TABLE {_quoted(pending)}".encode())
    connection.execute(f"ALTER TABLE messages DETACH PARTITION {name} CONCURRENTLY".encode())
    connection.execute(f"DROP TABLE {name}".encode())
    connection.execute(
        "DELETE FROM messages_lookup WHERE timestamp >= %s AND timestamp < %s", (partition.start_ns, partition.end_ns)
    )
    return int(messages)


def size_bytes(connection: psycopg.Connection[Any]) -> int:
    """Return what the messages take, with their indexes."""
    return int(_one(connection, _SIZE)[0])


def count(connection: psycopg.Connection[Any]) -> int:
    """Return how many messages there are, by counting them."""
    return int(_one(connection, "SELECT count(*) FROM messages")[0])


def _between(known: list[Partition], timestamp_ns: int, start_s: int, end_s: int) -> Partition:
    """Return a partition for a time within an hour, as long as its neighbours allow: nwaku's begin at any second."""
    for partition in known:
        if partition.end_ns <= timestamp_ns:
            start_s = max(start_s, -(-partition.end_ns // NS_PER_S))
        else:
            end_s = min(end_s, partition.start_ns // NS_PER_S)
            break
    return Partition(start_s * NS_PER_S, end_s * NS_PER_S, f"messages_{start_s}_{end_s}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    return connection.execute(query.encode()).fetchone()
