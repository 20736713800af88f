"""`page_rows`: the rows of one page of a nwaku archive file, in either direction, for some topics.

nwaku's own file has an index by timestamp only: the messages of a rare content topic are found by reading all others. A
service node adds a second index, by content topic, pubsub topic and time, which nwaku and the pipeline ignore. With the
index, a page of a few topics is merged from sorted runs, one for each pair of topics. Its cost does not grow with the
file.

Invariant: with and without the index the rows and their order, (timestamp, message hash), are the same. A page is read
from one snapshot of the file. At most `MAX_RUNS` rows are held beside those that the caller takes.
"""

from __future__ import annotations

import heapq
import json
from contextlib import ExitStack, closing, contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterator

    from fairway.storage.archive import ArchiveSlice, PageQuery

Row = tuple[bytes, bytes, bytes, bytes | None, int, int, bytes | None]
"""Hash, pubsub topic, content topic, payload, version, timestamp, meta."""

MAX_MERGED_TOPICS: Final = 50
"""Most content topics of a query that uses the index; for more, the range of time is read."""
MAX_RUNS: Final = 200
"""Most pairs of content topic and pubsub topic that are merged into a page; for more, the range of time is read."""

_TOPIC_INDEX: Final = "i_fairway_topics"
_CREATE_TOPIC_INDEX: Final = (
    f"CREATE INDEX IF NOT EXISTS {_TOPIC_INDEX} ON Message (contentTopic, pubsubTopic, timestamp)"
)
_HAS_TOPIC_INDEX: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?"

# Topics are blobs in nwaku's files and text in some others. SQLite keeps values of any type in any column, so each
# value is cast to the expected type.
ROW: Final = """
CAST(messageHash AS BLOB), CAST(pubsubTopic AS BLOB), CAST(contentTopic AS BLOB), CAST(payload AS BLOB),
CAST(version AS INTEGER), timestamp, CAST(meta AS BLOB)
"""
# Both bounds are row values, so that one statement serves every query. An index includes the primary key, so that it
# gives the range and the order.
RANGE: Final = """
(timestamp, messageHash) > (:after_ns, :after_hash) AND (timestamp, messageHash) <= (:through_ns, :through_hash)
"""
_OLDEST_FIRST: Final = "ORDER BY timestamp, messageHash LIMIT :rows"
_NEWEST_FIRST: Final = "ORDER BY timestamp DESC, messageHash DESC LIMIT :rows"
_SCAN: Final = f"""
SELECT {ROW} FROM Message WHERE {RANGE}
  AND (:pubsub_topic IS NULL OR CAST(pubsubTopic AS BLOB) = :pubsub_topic)
  AND (:content_topics IS NULL OR CAST(contentTopic AS BLOB) IN
       (SELECT CAST(value AS BLOB) FROM json_each(:content_topics)))
"""  # noqa: S608 - constants only; so below
_RUN: Final = f"""
SELECT {ROW} FROM Message INDEXED BY {_TOPIC_INDEX}
WHERE contentTopic = :content_topic AND pubsubTopic = :pubsub_topic AND {RANGE}
"""  # noqa: S608
_NEXT_PUBSUB_TOPIC: Final = f"""
SELECT min(pubsubTopic) FROM Message INDEXED BY {_TOPIC_INDEX} WHERE contentTopic = ? AND pubsubTopic > ?
"""  # noqa: S608
_ANY_TEXT: Final = f"""
SELECT 1 FROM Message INDEXED BY {_TOPIC_INDEX} WHERE contentTopic < x'' LIMIT 1
"""  # noqa: S608

_BEFORE_EVERY_TOPIC: Final = 0
"""SQLite sorts numbers before blobs."""

_in_order = itemgetter(5, 0)


def has_topic_index(database: sqlite3.Connection) -> bool:
    """Return whether a file has the index by topics."""
    return database.execute(_HAS_TOPIC_INDEX, (_TOPIC_INDEX,)).fetchone() is not None


def create_topic_index(database: sqlite3.Connection) -> None:
    """Create the index by topics if it is missing; meanwhile the file can be read but not written."""
    with database:
        database.execute(_CREATE_TOPIC_INDEX)


def range_of(part: ArchiveSlice) -> dict[str, int | bytes]:
    """Return the parameters of `RANGE`."""
    return {
        "after_ns": part.after.timestamp_ns,
        "after_hash": part.after.message_hash,
        "through_ns": part.through.timestamp_ns,
        "through_hash": part.through.message_hash,
    }


def page_rows(database: sqlite3.Connection, part: ArchiveSlice, query: PageQuery) -> Generator[Row, None, None]:
    """Yield the rows of a slice that a query selects; a caller that takes fewer closes the generator."""
    order = _NEWEST_FIRST if query.newest_first else _OLDEST_FIRST
    pubsub_topic = None if query.pubsub_topic is None else query.pubsub_topic.encode()
    topics = {topic.encode() for topic in query.content_topics}
    parameters: dict[str, int | str | bytes | None] = {**range_of(part), "rows": query.rows}
    with _one_snapshot(database):
        runs = _runs(database, pubsub_topic, topics)
        if runs is None:
            parameters |= {
                "pubsub_topic": pubsub_topic,
                "content_topics": json.dumps(list(query.content_topics)) if query.content_topics else None,
            }
            with closing(database.execute(_SCAN + order, parameters)) as found:
                yield from found
            return
        with ExitStack() as open_runs:
            cursors = [
                open_runs.enter_context(
                    closing(
                        database.execute(_RUN + order, {**parameters, "content_topic": content, "pubsub_topic": pubsub})
                    )
                )
                for content, pubsub in runs
            ]
            merged = heapq.merge(*cursors, key=_in_order, reverse=query.newest_first)
            yield from (row for _, row in zip(range(query.rows), merged, strict=False))


def _runs(
    database: sqlite3.Connection, pubsub_topic: bytes | None, content_topics: set[bytes]
) -> list[tuple[bytes, bytes]] | None:
    """Return the pairs of topics to merge; None if the range of time is to be read, as in a file with text topics."""
    if not 0 < len(content_topics) <= MAX_MERGED_TOPICS or not has_topic_index(database):
        return None
    if database.execute(_ANY_TEXT).fetchone() is not None:
        return None
    if pubsub_topic is not None:
        return [(content, pubsub_topic) for content in content_topics]
    runs: list[tuple[bytes, bytes]] = []
    for content in content_topics:
        (found,) = database.execute(_NEXT_PUBSUB_TOPIC, (content, _BEFORE_EVERY_TOPIC)).fetchone()
        while found is not None:
            runs.append((content, found))
            if len(runs) > MAX_RUNS:
                return None
            (found,) = database.execute(_NEXT_PUBSUB_TOPIC, (content, found)).fetchone()
    return runs


@contextmanager
def _one_snapshot(database: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the file inside the block, even if other processes write to it."""
    if database.in_transaction:
        yield
        return
    database.execute("BEGIN")
    try:
        yield
    finally:
        database.rollback()
