"""`PostgresArchive`: the archive of a nwaku store node in PostgreSQL, read only.

The executors of the Spark pipeline each read a range of time from the database, while the node writes to it. Invariant:
nothing is written, and no transaction is open between two pages. A read holds at most one page in memory. Each page is
one query over the index on ``timestamp``, which reads only the hourly partitions of nwaku that it needs.

nwaku (schema version 7) keeps hash, payload and meta as hexadecimal text in a table ``messages`` that is partitioned by
``timestamp``. Columns are compared in the collation "C", in which hexadecimal text has the order of its bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fairway.errors import DecodeError, NodeUnavailableError, SnapshotError
from fairway.storage.archive import (
    DEFAULT_PAGE_BYTES,
    DEFAULT_PAGE_ROWS,
    LARGEST_HASH,
    ArchiveCursor,
    ArchivedMessage,
    ArchiveSlice,
    ReadableArchive,
    time_slice,
)
from fairway.storage.postgres_session import connect, place_without_credentials, psycopg_driver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_COLUMNS: Final = frozenset({"messagehash", "pubsubtopic", "contenttopic", "payload", "version", "timestamp", "meta"})
_CONNECT_TIMEOUT_S: Final = 10
_SESSION: Final = "-c default_transaction_read_only=on -c client_encoding=UTF8 -c extra_float_digits=0"

HASH: Final = 'lower(messagehash) COLLATE "C"'
"""The message hash for comparisons and the order."""
ORDER: Final = f"ORDER BY timestamp, {HASH}"
# PostgreSQL chooses partitions and the index only by bounds on the timestamp alone.
_RANGE: Final = f"""
FROM messages WHERE timestamp >= %(after_ns)s AND timestamp <= %(through_ns)s
AND (timestamp, {HASH}) > (%(after_ns)s, %(after_hash)s) AND (timestamp, {HASH}) <= (%(through_ns)s, %(through_hash)s)
"""
_TOPICS: Final = """
AND (%(pubsub_topic)s::text IS NULL OR pubsubtopic = %(pubsub_topic)s)
AND (%(content_topics)s::text[] IS NULL OR contenttopic = ANY(%(content_topics)s))
"""
# The window sums the payloads before a row, so that the server ends the page by its size.
_PAGE: Final = f"""
SELECT messagehash, pubsubtopic, contenttopic, payload, version, timestamp, meta FROM (
    SELECT *, sum(octet_length(payload)) OVER ({ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS digits
    FROM (SELECT * {_RANGE} {_TOPICS} {ORDER} LIMIT %(rows)s) AS page
) AS summed
WHERE coalesce(digits, 0) < 2 * %(bytes)s
{ORDER}
"""  # noqa: S608 - constants only; so below
_COUNT: Final = f"SELECT count(*) {_RANGE}"
_STEP: Final = f"SELECT timestamp, messagehash {_RANGE} {ORDER} LIMIT 1 OFFSET %(skip)s"
_LAST: Final = f"SELECT timestamp, messagehash {_RANGE} ORDER BY timestamp DESC, {HASH} DESC LIMIT 1"
_BOUNDS: Final = f"""
SELECT percentile_disc(%(shares)s::float8[]) WITHIN GROUP (ORDER BY timestamp) {_RANGE}
"""


class PostgresArchive(ReadableArchive):
    """A context manager over one database.

    ``uri`` is a connection URI of libpq (``postgresql://user@host:5432/postgres``). The environment of libpq
    (``PGPASSWORD``, ``PGPASSFILE``, ...) gives the missing parts, and keeps passwords out of programs. Raises
    `ConfigurationError` without the package psycopg or for an invalid URI, `NodeUnavailableError` if the server cannot
    be reached, `DecodeError` if the database has no table ``messages``, `SnapshotError` for one of another schema.
    """

    def __init__(self, uri: str) -> None:
        self.name: Final = place_without_credentials(uri)
        try:
            self._connection: Final = connect(uri, options=_SESSION, timeout_s=_CONNECT_TIMEOUT_S)
        except psycopg_driver().OperationalError as error:
            raise NodeUnavailableError(f"{self.name}: no connection to PostgreSQL: {error}") from error
        try:
            self._check_schema()
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        """Show the database, without credentials."""
        return f"<PostgresArchive {self.name}>"

    def close(self) -> None:
        """Close the connection. Can be called twice."""
        self._connection.close()

    def estimate(self, part: ArchiveSlice) -> int:
        """Count the messages of a slice."""
        return int(self._one(_COUNT, _range(part))[0])

    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split the archive, or a slice of it, at timestamps into at most ``count`` slices of about the same size."""
        part = part or time_slice()
        shares = [number / count for number in range(1, max(1, count))]
        bounds = self._one(_BOUNDS, {**_range(part), "shares": [*shares, 1.0]})[0]
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

    def pages(
        self,
        part: ArchiveSlice | None = None,
        *,
        pubsub_topic: str | None = None,
        content_topics: Collection[str] = (),
        page_rows: int = DEFAULT_PAGE_ROWS,
        page_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Iterator[tuple[ArchivedMessage, ...]]:
        """Yield pages of at most ``page_rows`` messages, each ended early once it holds ``page_bytes``."""
        parameters: dict[str, Any] = {
            **_range(part or time_slice()),
            "pubsub_topic": pubsub_topic,
            "content_topics": list(content_topics) or None,
            "rows": page_rows,
            "bytes": page_bytes,
        }
        while rows := self._all(_PAGE, parameters):
            yield tuple(message_of(row) for row in rows)
            # The text of the database, because even a hash that is not hexadecimal has a place in its order.
            parameters |= {"after_ns": rows[-1][5], "after_hash": rows[-1][0].lower()}

    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after message ``number`` (1 for the first) of a slice; None if it has fewer."""
        return _cursor(self._all(_STEP, {**_range(part), "skip": number - 1}))

    def last(self, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after the last message of a slice; None if it is empty."""
        return _cursor(self._all(_LAST, _range(part)))

    def _check_schema(self) -> None:
        rows = self._all(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass('messages') AND attnum > 0", {}
        )
        columns = {name for (name,) in rows}
        if not columns:
            raise DecodeError(f"{self.name}: not an archive of a nwaku store: it has no table 'messages'")
        if lacking := ", ".join(sorted(_COLUMNS - columns)):
            raise SnapshotError(
                f"{self.name}: the table 'messages' has no column {lacking}; a nwaku node that is started once on an "
                "older database brings it up to date"
            )

    def _one(self, query: str, parameters: Mapping[str, Any]) -> Any:
        return self._all(query, parameters)[0]

    def _all(self, query: str, parameters: Mapping[str, Any]) -> list[Any]:
        with self._reading():
            return self._connection.execute(query.encode(), parameters, prepare=False).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        driver = psycopg_driver()
        try:
            yield
        except driver.OperationalError as error:
            raise NodeUnavailableError(f"{self.name}: {error}") from error
        except driver.DatabaseError as error:
            raise DecodeError(f"{self.name}: the archive cannot be read: {error}") from error


def _range(part: ArchiveSlice) -> dict[str, int | str]:
    return {
        "after_ns": part.after.timestamp_ns,
        "after_hash": part.after.message_hash.hex(),
        "through_ns": part.through.timestamp_ns,
        "through_hash": part.through.message_hash.hex(),
    }


def _cursor(rows: list[Any]) -> ArchiveCursor | None:
    return ArchiveCursor(rows[0][0], _bytes(rows[0][1])) if rows else None


def message_of(row: Any) -> ArchivedMessage:
    """Return the message in a row: hash, topics, payload, version, timestamp, meta."""
    message_hash, pubsub_topic, content_topic, payload, version, timestamp_ns, meta = row
    return ArchivedMessage(
        message_hash=_bytes(message_hash),
        pubsub_topic=pubsub_topic,
        content_topic=content_topic,
        payload=_bytes(payload or ""),
        version=version,
        timestamp_ns=timestamp_ns,
        meta=_bytes(meta) if meta else None,
    )


def _bytes(text: str) -> bytes:
    """Decode hexadecimal text; return other text in UTF-8, because a single row must not end a read."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text.encode()
