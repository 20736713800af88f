"""`PostgresArchive`: the archive of a nwaku store node in PostgreSQL, read only.

A service node answers store queries from it. The executors of the Spark pipeline each read a slice, while a node writes
to the database.

Invariants: nothing is written, and no transaction is open between two pages. A read holds at most one page in memory.
The order is (timestamp, message hash). nwaku (schema version 7) keeps hash, payload and meta as hexadecimal text in a
table ``messages`` that is partitioned by ``timestamp``. Hashes are compared in the collation "C", in which hexadecimal
text has the order of its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairway.errors import DecodeError, SnapshotError, StorageError
from fairway.storage.archive import (
    LARGEST_HASH,
    ArchiveCursor,
    ArchivedId,
    ArchivedMessage,
    ArchiveSlice,
    PagedArchive,
    PageQuery,
    time_slice,
)
from fairway.storage.nwaku_pages import MAX_MERGED_TOPICS
from fairway.storage.postgres_session import PostgresSession

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_COLUMNS: Final = "messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta"
_HASH: Final = 'lower(messagehash) COLLATE "C"'
# PostgreSQL chooses partitions and indexes only by bounds on the timestamp alone.
_RANGE: Final = f"""
timestamp >= %(start_ns)s AND timestamp <= %(last_ns)s
AND (timestamp, {_HASH}) > (%(after_ns)s, %(after_hash)s) AND (timestamp, {_HASH}) <= (%(through_ns)s, %(through_hash)s)
"""
# IS TRUE prevents the use of nwaku's index by pubsub topic: nearly all messages have one, and it contains no time.
_PUBSUB: Final = " AND (pubsubtopic = %(pubsub_topic)s) IS TRUE"
_TOPICS: Final = " AND contenttopic = ANY(%(content_topics)s)"
_COUNT: Final = f"SELECT count(*) FROM messages WHERE {_RANGE}"  # noqa: S608 - constants only; so below
_TOPICS_OF: Final = f"SELECT DISTINCT contenttopic FROM messages WHERE {_RANGE} LIMIT %(rows)s"  # noqa: S608
_STEP: Final = f"""
SELECT timestamp, messagehash FROM messages WHERE {_RANGE} ORDER BY timestamp, {_HASH} LIMIT 1 OFFSET %(skip)s
"""  # noqa: S608
_BOUNDS: Final = f"""
SELECT percentile_disc(%(shares)s::float8[]) WITHIN GROUP (ORDER BY timestamp) FROM messages WHERE {_RANGE}
"""  # noqa: S608
_FIND: Final = f"SELECT {_COLUMNS} FROM messages WHERE timestamp = %(ns)s AND messagehash = %(hash)s"  # noqa: S608
_PLACES: Final = "SELECT timestamp, messagehash FROM messages_lookup WHERE messagehash = ANY(%(hashes)s)"
_NEWEST_IDS: Final = f"""
SELECT timestamp, messagehash, pubsubtopic, contenttopic FROM messages
WHERE {_RANGE} ORDER BY timestamp DESC, {_HASH} DESC LIMIT %(count)s
"""  # noqa: S608
_EDGES: Final = "SELECT min(timestamp), max(timestamp) FROM messages_lookup"
# An index has the messages in the order of a page. Without statistics, as for a new partition, the planner would sort
# all messages instead.
_IN_ORDER: Final = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off"
_NO_SUCH: Final = {"42P01", "42703"}
"""The codes of PostgreSQL for a missing table and a missing column."""
_FIRST_WINDOW_NS: Final = 6 * 3_600_000_000_000
"""The length of six of nwaku's partitions."""


class PostgresArchive(PagedArchive):
    """A context manager over one database; it connects at the first use.

    ``uri`` is a connection URI of libpq (``postgresql://user@host:5432/postgres``). The environment of libpq
    (``PGPASSWORD``, ``PGPASSFILE``, ...) gives the missing parts, and keeps passwords out of programs.

    ``query_limit_s`` is for store queries: the server ends a statement that takes longer. A page then reads only as
    many of nwaku's hourly partitions as it needs. It merges a few content topics from the runs of the index by topics
    (`fairway.storage.postgres_layout`).

    Its methods raise `MissingExtraError` without the package psycopg, and `ConfigurationError` for an invalid URI. They
    raise `SnapshotError` if the database has no tables of nwaku's newest schema, and `DecodeError` for a damaged
    message hash. They raise `StorageError` for all other failures.
    """

    def __init__(self, uri: str, *, query_limit_s: float | None = None) -> None:
        self._is_for_queries: Final = query_limit_s is not None
        settings = _IN_ORDER if self._is_for_queries else ""
        self._session: Final = PostgresSession(uri, statement_limit_s=query_limit_s, read_only=True, settings=settings)

    def __repr__(self) -> str:
        """Show the database, without credentials."""
        return f"<PostgresArchive {self._session.name}>"

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._session.close()

    def estimate(self, part: ArchiveSlice) -> int:
        """Count the messages of a slice."""
        return int(self._all(_COUNT, _range(part))[0][0])

    def topics(self, part: ArchiveSlice, most: int) -> tuple[str, ...] | None:
        """Return the content topics of a slice, without reading its payloads; None if they are more than ``most``."""
        found = self._all(_TOPICS_OF, {**_range(part), "rows": most + 1})
        return tuple(topic for (topic,) in found) if len(found) <= most else None

    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split the archive, or a slice of it, at timestamps into at most ``count`` slices of about the same size."""
        part = part or time_slice()
        shares = [number / count for number in range(1, max(1, count))]
        bounds = self._all(_BOUNDS, {**_range(part), "shares": [*shares, 1.0]})[0][0]
        if bounds is None:
            return ()
        parts: list[ArchiveSlice] = []
        rest = part
        for timestamp_ns in sorted(set(bounds[:-1])):
            end = ArchiveCursor(timestamp_ns, LARGEST_HASH)
            if rest.holds(end) and end < part.through:
                parts.append(ArchiveSlice(rest.after, end))
                rest = ArchiveSlice(end, part.through)
        return (*parts, rest)

    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after message ``number`` (1 for the first) of a slice; None if it has fewer."""
        rows = self._all(_STEP, {**_range(part), "skip": number - 1})
        return ArchiveCursor(rows[0][0], self._hash(rows[0][1])) if rows else None

    def places(self, message_hashes: Collection[bytes]) -> tuple[ArchiveCursor, ...]:
        """Return the cursors of the messages with these hashes that the archive has, in order, without reading them."""
        rows = self._all(_PLACES, {"hashes": [message_hash.hex() for message_hash in message_hashes]})
        return tuple(sorted(ArchiveCursor(timestamp_ns, self._hash(digits)) for timestamp_ns, digits in rows))

    def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest ``count`` messages dated ``start_ns`` or later, in order."""
        rows = self._all(_NEWEST_IDS, {**_range(time_slice(start_ns)), "count": count})
        return [ArchivedId(at_ns, self._hash(digits), *topics) for at_ns, digits, *topics in reversed(rows)]

    def find(self, message_hashes: Collection[bytes]) -> tuple[ArchivedMessage, ...]:
        """Return the messages with these hashes that the archive has, in order."""
        found: list[ArchivedMessage] = []
        for timestamp_ns, message_hash in self.places(message_hashes):
            found += map(self._message, self._all(_FIND, {"ns": timestamp_ns, "hash": message_hash.hex()}))
        return tuple(found)

    def _page(self, part: ArchiveSlice, query: PageQuery) -> tuple[ArchivedMessage, ...]:
        """Return the first or newest messages of a slice."""
        topics = sorted({topic for topic in query.content_topics if "\0" not in topic})
        if "\0" in (query.pubsub_topic or "") or (query.content_topics and not topics):
            return ()  # PostgreSQL cannot store text with a zero character
        statement = _statement(
            topics=bool(topics),
            is_merged=self._is_for_queries and 0 < len(topics) <= MAX_MERGED_TOPICS,
            pubsub=query.pubsub_topic is not None,
            newest_first=query.newest_first,
        )
        parameters = {**_range(part), "pubsub_topic": query.pubsub_topic, "content_topics": topics}
        found: list[ArchivedMessage] = []
        size = 0
        for start_ns, last_ns in self._windows(part, newest_first=query.newest_first):
            parameters |= {"start_ns": start_ns, "last_ns": last_ns}
            parameters |= {"rows": query.rows - len(found), "bytes": query.page_bytes - size}
            found += map(self._message, self._all(statement, parameters))
            size = sum(len(message.payload) for message in found)
            if len(found) >= query.rows or size >= query.page_bytes:
                break
        return tuple(found)

    def _windows(self, part: ArchiveSlice, *, newest_first: bool) -> Iterator[tuple[int, int]]:
        """Split the time of a slice into windows, both ends included, in the order of a page.

        Each partition in a window costs a statement a fraction of a millisecond and a lock. So for store queries each
        window is four times as long as the last one; another reader takes the whole time at once.
        """
        first_ns, last_ns = part.after.timestamp_ns, part.through.timestamp_ns
        length_ns = last_ns - first_ns + 1
        if self._is_for_queries:
            oldest_ns, newest_ns = self._all(_EDGES, {})[0]
            if oldest_ns is None:
                return
            first_ns, last_ns, length_ns = max(first_ns, oldest_ns), min(last_ns, newest_ns), _FIRST_WINDOW_NS
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
        try:
            # Not prepared: a prepared plan does not know the times, and would read every partition.
            return self._session.run(
                lambda connection: connection.execute(statement.encode(), parameters, prepare=False).fetchall(),
                again=True,
            )
        except StorageError as error:
            if getattr(error.__cause__, "sqlstate", None) not in _NO_SUCH:
                raise
            raise SnapshotError(
                f"{error}; give the database of a nwaku store node; a nwaku node that is started once on an older "
                "database brings it up to date"
            ) from error

    def _message(self, row: Any) -> ArchivedMessage:
        message_hash, pubsub_topic, content_topic, payload, version, timestamp_ns, meta = row
        return ArchivedMessage(
            message_hash=self._hash(message_hash),
            pubsub_topic=pubsub_topic,
            content_topic=content_topic,
            payload=_bytes(payload or ""),
            version=version,
            timestamp_ns=timestamp_ns,
            meta=_bytes(meta) if meta else None,
        )

    def _hash(self, digits: str) -> bytes:
        try:
            return bytes.fromhex(digits)
        except ValueError as error:
            raise DecodeError(f"{self._session.name}: {digits!r:.80} is no message hash in hexadecimal") from error


def _range(part: ArchiveSlice) -> dict[str, Any]:
    """Return the parameters of `_RANGE`."""
    return {
        "start_ns": part.after.timestamp_ns,
        "last_ns": part.through.timestamp_ns,
        "after_ns": part.after.timestamp_ns,
        "after_hash": part.after.message_hash.hex(),
        "through_ns": part.through.timestamp_ns,
        "through_hash": part.through.message_hash.hex(),
    }


def _statement(*, topics: bool, is_merged: bool, pubsub: bool, newest_first: bool) -> str:
    way = " DESC" if newest_first else ""
    order = f"ORDER BY timestamp{way}, {_HASH}{way}"
    where = _RANGE + (_PUBSUB if pubsub else "")
    if is_merged:
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


def _bytes(text: str) -> bytes:
    """Decode hexadecimal text; return other text in UTF-8, because a single row must not end a read."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()
