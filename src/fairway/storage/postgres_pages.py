"""`PostgresPages`: answers store queries from nwaku's tables in PostgreSQL.

Invariants: the server ends a statement that takes too long. The order is (timestamp, message hash). A page of a few
content topics is merged from the runs of the index by topics (`fairway.storage.postgres_layout`). A page reads only as
many of nwaku's hourly partitions as it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from fairway.storage.archive import MAX_TIMESTAMP_NS, MIN_TIMESTAMP_NS, ArchiveCursor, ArchivedMessage, PageQuery
from fairway.storage.nwaku_pages import MAX_MERGED_TOPICS
from fairway.storage.postgres_archive import HASH, message_of
from fairway.storage.postgres_session import PostgresSession

_COLUMNS: Final = "messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta"
# PostgreSQL chooses partitions and indexes only by bounds on the timestamp alone.
_RANGE: Final = "timestamp >= %(start_ns)s AND timestamp <= %(last_ns)s"
# IS TRUE prevents the use of nwaku's index by pubsub topic: nearly all messages have one, and it contains no time.
_PUBSUB: Final = " AND (pubsubtopic = %(pubsub_topic)s) IS TRUE"
# An index has the messages in the order of a page. Without statistics, as for a new partition, the planner would sort
# all messages instead.
_IN_ORDER: Final = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off"
_TOPICS: Final = " AND contenttopic = ANY(%(content_topics)s)"
_FIND: Final = f"SELECT {_COLUMNS} FROM messages WHERE timestamp = %(ns)s AND messagehash = %(hash)s"  # noqa: S608 - constants only
_PLACES: Final = "SELECT timestamp, messagehash FROM messages_lookup WHERE messagehash = ANY(%(hashes)s)"

_EDGES: Final = "SELECT min(timestamp), max(timestamp) FROM messages_lookup"
_FIRST_WINDOW_NS: Final = 6 * 3_600_000_000_000
"""The length of six of nwaku's partitions."""


class PostgresPages:
    """Reads one database; used in one thread. It connects at the first use."""

    def __init__(self, uri: str, *, read_limit_s: float) -> None:
        self._session: Final = PostgresSession(uri, statement_limit_s=read_limit_s, read_only=True, settings=_IN_ORDER)

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._session.close()

    def places(self, message_hashes: Collection[bytes]) -> tuple[ArchiveCursor, ...]:
        """Return the cursors of the messages with these hashes that the archive has, in order, without reading them."""
        rows = self._all(_PLACES, {"hashes": [message_hash.hex() for message_hash in message_hashes]})
        return tuple(sorted(ArchiveCursor(timestamp_ns, bytes.fromhex(digits)) for timestamp_ns, digits in rows))

    def find(self, message_hashes: Collection[bytes]) -> tuple[ArchivedMessage, ...]:
        """Return the messages with these hashes that the archive has, in order."""
        places = self.places(message_hashes)
        found: list[ArchivedMessage] = []
        for timestamp_ns, message_hash in places:
            found += map(message_of, self._all(_FIND, {"ns": timestamp_ns, "hash": message_hash.hex()}))
        return tuple(found)

    def page(self, query: PageQuery) -> tuple[ArchivedMessage, ...]:
        """Return one page, oldest message first."""
        beyond, newest_first = query.beyond, query.newest_first
        first_ns = MIN_TIMESTAMP_NS if query.start_ns is None else query.start_ns
        last_ns = MAX_TIMESTAMP_NS if query.end_ns is None else query.end_ns - 1
        if beyond is not None:
            first_ns, last_ns = (
                (first_ns, min(last_ns, beyond[0])) if newest_first else (max(first_ns, beyond[0]), last_ns)
            )
        topics = sorted({topic for topic in query.content_topics if "\0" not in topic})
        if "\0" in (query.pubsub_topic or "") or (query.content_topics and not topics):
            return ()  # PostgreSQL cannot store text with a zero character
        statement = _statement(
            topics=len(topics),
            pubsub=query.pubsub_topic is not None,
            beyond=beyond is not None,
            newest_first=newest_first,
        )
        parameters: dict[str, Any] = {
            "beyond_ns": None if beyond is None else beyond[0],
            "beyond_hash": None if beyond is None else beyond[1].hex(),
            "pubsub_topic": query.pubsub_topic,
            "content_topics": topics,
        }
        found: list[ArchivedMessage] = []
        size = 0
        for begin_ns, through_ns in self._windows(first_ns, last_ns, newest_first=newest_first):
            parameters |= {"start_ns": begin_ns, "last_ns": through_ns}
            parameters |= {"rows": query.rows - len(found), "bytes": query.page_bytes - size}
            found += map(message_of, self._all(statement, parameters))
            size = sum(len(message.payload) for message in found)
            if len(found) >= query.rows or size >= query.page_bytes:
                break
        return tuple(found[::-1] if newest_first else found)

    def _windows(self, first_ns: int, last_ns: int, *, newest_first: bool) -> Iterator[tuple[int, int]]:
        """Split a range of time into windows, both ends included, in the order of a page, each longer than the last.

        Each partition in a window costs a statement a fraction of a millisecond and a lock.
        """
        oldest_ns, newest_ns = self._all(_EDGES, {})[0]
        if oldest_ns is None:
            return
        first_ns, last_ns = max(first_ns, oldest_ns), min(last_ns, newest_ns)
        length_ns = _FIRST_WINDOW_NS
        while first_ns <= last_ns:
            if newest_first:
                start_ns = max(first_ns, last_ns - length_ns + 1)
                yield start_ns, last_ns
                last_ns = start_ns - 1
            else:
                through_ns = min(last_ns, first_ns + length_ns - 1)
                yield first_ns, through_ns
                first_ns = through_ns + 1
            length_ns *= 4

    def _all(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        # Not prepared: a prepared plan does not know the times, and would read every partition.
        return self._session.run(
            lambda connection: connection.execute(statement.encode(), parameters, prepare=False).fetchall(), again=True
        )


def _statement(*, topics: int, pubsub: bool, beyond: bool, newest_first: bool) -> str:
    way = " DESC" if newest_first else ""
    order = f"ORDER BY timestamp{way}, {HASH}{way}"
    compare = "<" if newest_first else ">"
    where = _RANGE + (_PUBSUB if pubsub else "")
    if beyond:
        where += f" AND (timestamp, {HASH}) {compare} (%(beyond_ns)s, %(beyond_hash)s)"
    if 0 < topics <= MAX_MERGED_TOPICS:
        run = f"SELECT {_COLUMNS} FROM messages WHERE contenttopic = wanted.topic AND {where} {order} LIMIT %(rows)s"  # noqa: S608
        rows = (
            f"SELECT run.* FROM unnest(%(content_topics)s::text[]) AS wanted (topic) CROSS JOIN LATERAL ({run}) AS run"  # noqa: S608
        )
    else:
        rows = f"SELECT {_COLUMNS} FROM messages WHERE {where}{_TOPICS if topics else ''}"  # noqa: S608
    # The window sums the payloads before a row, so that the server ends the page by its size.
    return f"""
    SELECT {_COLUMNS} FROM (
        SELECT *, sum(octet_length(payload)) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS digits
        FROM ({rows} {order} LIMIT %(rows)s) AS page
    ) AS summed
    WHERE coalesce(digits, 0) < 2 * %(bytes)s {order}
    """  # noqa: S608
