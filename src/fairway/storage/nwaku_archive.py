"""`NwakuArchive`: an archive of Waku messages in the SQLite file format of a nwaku store node.

Three readers use such files: a nwaku node as its own store, a service node for store queries, and the Spark pipeline.
Each executor of the pipeline reads a slice of the file.

Invariant: a written file has nwaku's newest schema (version 10 of its message store: table ``Message`` with seven
columns, index ``i_ts``, write-ahead log, empty blobs stored as NULL), holds each message hash once, and holds no
ephemeral message (13/WAKU2-STORE, "Waku Message Store Eligibility"). Every read is a range of the order (timestamp,
message hash), in which nwaku pages its answers. A read holds at most one page in memory.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError, DecodeError, StorageError
from fairway.storage.archive import (
    HASH_BYTES,
    ArchiveCursor,
    ArchivedId,
    ArchivedMessage,
    ArchiveSlice,
    PagedArchive,
    PageQuery,
    time_slice,
)
from fairway.storage.nwaku_pages import RANGE, ROW, Row, page_rows, range_of
from fairway.storage.nwaku_schema import open_to_read, open_to_write
from fairway.storage.sqlite_connection import transaction
from fairway.wire.waku_message import WakuMessage, decode_waku_message
from fairway.wire.waku_message import message_hash as hash_of

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator

_INSERT: Final = """
INSERT INTO Message (messageHash, pubsubTopic, contentTopic, payload, version, timestamp, meta)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (messageHash) DO NOTHING
"""
_REPLACE: Final = _INSERT.replace(
    "NOTHING",
    """UPDATE SET pubsubTopic = excluded.pubsubTopic, contentTopic = excluded.contentTopic, payload = excluded.payload,
    version = excluded.version, timestamp = excluded.timestamp, meta = excluded.meta""",
)

_FIND: Final = f"SELECT {ROW} FROM Message WHERE messageHash = ?"  # noqa: S608 - constants only; so below
_PLACE: Final = "SELECT timestamp FROM Message WHERE messageHash = ?"
_STEP: Final = f"""
SELECT timestamp, messageHash FROM Message WHERE {RANGE} ORDER BY timestamp, messageHash LIMIT 1 OFFSET :skip
"""  # noqa: S608
_TOPICS: Final = f"SELECT DISTINCT CAST(contentTopic AS BLOB) FROM Message WHERE {RANGE} LIMIT :rows"  # noqa: S608
_COUNT: Final = f"SELECT count(*) FROM Message WHERE {RANGE}"  # noqa: S608
_NEWEST_IDS: Final = f"""
SELECT timestamp, CAST(messageHash AS BLOB), CAST(pubsubTopic AS BLOB), CAST(contentTopic AS BLOB)
FROM Message WHERE {RANGE} ORDER BY timestamp DESC, messageHash DESC LIMIT :count
"""  # noqa: S608
# Finds timestamps that are no 64-bit integers. An index has them at its ends, so no other rows are read.
_ODD_TIMES: Final = """
SELECT messageHash FROM Message WHERE timestamp > 9223372036854775807 OR timestamp < -9223372036854775808 LIMIT 1
"""

BATCH_ROWS: Final = 1_000
_BATCH_BYTES: Final = 16_777_216
_STEPS_BETWEEN_CHECKS: Final = 20_000
"""Steps of SQLite's virtual machine between two checks of the time limit, about a millisecond."""


class NwakuArchive(PagedArchive):
    """A context manager over one archive file.

    A missing file is created unless ``read_only``. Appended messages are buffered and written in short transactions of
    up to `BATCH_ROWS` messages or 16 MiB of payload. So a crash loses at most one batch, and another process
    can write to the file in between. With ``read_limit_s``, a page or a look-up that takes longer raises
    `StorageError`, so that queries of peers cannot occupy a reader.

    Raises `ConfigurationError` for a path that cannot be opened, and `DecodeError` for a file that is no such archive.
    Raises `SnapshotError` if its schema is older or newer than nwaku's newest.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        read_limit_s: float | None = None,
    ) -> None:
        self.path: Final = Path(path)
        self._read_only: Final = read_only
        self._pending: dict[bytes, Row] = {}
        self._replacing: dict[bytes, Row] = {}
        self._pending_bytes = 0
        self._database: Final = open_to_read(self.path) if read_only else open_to_write(self.path)
        self._read_limit_s: Final = read_limit_s
        self._read_until_s = float("inf")
        if read_limit_s is not None:
            self._database.set_progress_handler(self._is_late, _STEPS_BETWEEN_CHECKS)

    def __repr__(self) -> str:
        """Show the file and the number of messages that are not yet written."""
        return f"<NwakuArchive {str(self.path)!r}, {len(self._pending)} pending>"

    def close(self) -> None:
        """Write the buffered messages and close the file. Can be called twice."""
        try:
            self.flush()
        finally:
            self._database.close()

    def append(
        self,
        pubsub_topic: str,
        message: WakuMessage | bytes,
        message_hash: bytes | None = None,
        *,
        received_ns: int | None = None,
        replace: bool = False,
    ) -> bool:
        """Add a message; return False, and add nothing, if it is ephemeral.

        ``message`` may be the encoded WakuMessage. ``message_hash`` is its deterministic message hash, which is
        computed if it is not given. A message with a known hash is ignored; with ``replace`` it overwrites the damaged
        row. ``received_ns`` (Unix nanoseconds) is the timestamp of a message that has none. Raises `DecodeError` for
        bytes that are no WakuMessage.
        """
        if self._read_only:
            raise ConfigurationError(f"{self.path}: the archive was opened to read only")
        if isinstance(message, bytes):
            message = decode_waku_message(message)
        if message.ephemeral:
            return False
        key = hash_of(pubsub_topic, message) if message_hash is None else message_hash
        if len(key) != HASH_BYTES:
            raise ConfigurationError(f"a message hash has {HASH_BYTES} bytes, not {len(key)}")
        row = (
            key,
            pubsub_topic.encode(),
            message.content_topic.encode(),
            message.payload or None,
            message.version or 0,
            message.timestamp_ns or received_ns or 0,
            message.meta or None,
        )
        (self._replacing if replace else self._pending).setdefault(key, row)
        self._pending_bytes += len(message.payload)
        if len(self._pending) + len(self._replacing) >= BATCH_ROWS or self._pending_bytes >= _BATCH_BYTES:
            self.flush()
        return True

    @property
    def added(self) -> int:
        """The number of new messages written since the archive was opened."""
        return self._database.total_changes

    def flush(self) -> None:
        """Write the buffered messages in one transaction."""
        if not (self._pending or self._replacing):
            return
        with transaction(self._database):
            self._database.executemany(_INSERT, self._pending.values())
            self._database.executemany(_REPLACE, self._replacing.values())
        self._pending.clear()
        self._replacing.clear()
        self._pending_bytes = 0

    def count(self, part: ArchiveSlice | None = None) -> int:
        """Count the messages of the archive, or of a slice of it.

        Raises `DecodeError` if the archive has timestamps of another type: such messages are in no slice.
        """
        self.flush()
        with self._reading():
            odd = self._database.execute(_ODD_TIMES).fetchone()
            (count,) = self._database.execute(_COUNT, range_of(part or time_slice())).fetchone()
        if odd is not None:
            raise DecodeError(
                f"{self.path}: a message of the archive has a timestamp that is no integer of 64 bits, so that no "
                "range of time holds it; no store node writes such"
            )
        return int(count)

    def estimate(self, part: ArchiveSlice) -> int:
        """Count the messages of a slice."""
        return self.count(part)

    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after message ``number`` (1 for the first) of a slice; None if it has fewer."""
        self.flush()
        with self._reading():
            row = self._database.execute(_STEP, {**range_of(part), "skip": number - 1}).fetchone()
        return None if row is None else ArchiveCursor(*row)

    def read(
        self, part: ArchiveSlice | None = None, *, pubsub_topic: str | None = None, content_topics: Collection[str] = ()
    ) -> Iterator[ArchivedMessage]:
        """Yield messages in order; no transaction is open between two pages."""
        for page in self.pages(part, pubsub_topic=pubsub_topic, content_topics=content_topics):
            yield from page

    def find(self, message_hashes: Collection[bytes]) -> tuple[ArchivedMessage, ...]:
        """Return the messages with these hashes that the archive has, in order."""
        self.flush()
        found: list[ArchivedMessage] = []
        with self._reading():
            for message_hash in set(message_hashes):
                found += [_message(row) for row in self._database.execute(_FIND, (message_hash,))]
        return tuple(sorted(found, key=lambda message: message.cursor))

    def places(self, message_hashes: Collection[bytes]) -> tuple[ArchiveCursor, ...]:
        """Return the cursors of the messages with these hashes that the archive has, in order, without reading them."""
        self.flush()
        found: list[ArchiveCursor] = []
        with self._reading():
            for message_hash in set(message_hashes):
                found += [
                    ArchiveCursor(time_ns, message_hash)
                    for (time_ns,) in self._database.execute(_PLACE, (message_hash,))
                ]
        return tuple(sorted(found))

    def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest ``count`` messages dated ``start_ns`` or later, in order."""
        self.flush()
        topics: dict[bytes, str] = {}
        """Each topic once, because many messages share it."""
        found: list[ArchivedId] = []
        with self._reading():
            parameters = {**range_of(time_slice(start_ns)), "count": count}
            for timestamp_ns, message_hash, *both in self._database.execute(_NEWEST_IDS, parameters):
                pubsub, content = (topics.setdefault(topic, topic.decode(errors="replace")) for topic in both)
                found.append(ArchivedId(timestamp_ns, message_hash, pubsub, content))
        return found[::-1]

    def topics(self, part: ArchiveSlice, most: int) -> tuple[str, ...] | None:
        """Return the content topics of a slice, without reading its payloads; None if they are more than ``most``."""
        self.flush()
        with self._reading():
            found = self._database.execute(_TOPICS, {**range_of(part), "rows": most + 1}).fetchall()
        return tuple(topic.decode(errors="replace") for (topic,) in found) if len(found) <= most else None

    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split the archive, or a slice of it, into at most ``count`` slices with the same number of messages.

        Slices of equal time could be useless, because senders choose the timestamps: with one message dated far in the
        future, all others would be in a single slice.
        """
        part = part or time_slice()
        total = self.count(part)
        size = max(1, -(-total // max(1, count)))
        parts: list[ArchiveSlice] = []
        rest = part
        for _ in range(size, total, size):
            end = self.nth(size, rest)
            if end is None:  # another process removed messages since they were counted
                break
            parts.append(ArchiveSlice(rest.after, end))
            rest = ArchiveSlice(end, part.through)
        return (*parts, rest) if total else ()

    def _page(self, part: ArchiveSlice, query: PageQuery) -> tuple[ArchivedMessage, ...]:
        """Return the first or newest messages of a slice."""
        self.flush()
        page: list[ArchivedMessage] = []
        size = 0
        with self._reading(), closing(page_rows(self._database, part, query)) as found:
            for row in found:
                page.append(_message(row))
                size += len(page[-1].payload)
                if size >= query.page_bytes:
                    break
        return tuple(page)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise `DecodeError` for a damaged file and `StorageError` beyond the time limit."""
        if self._read_limit_s is not None:
            self._read_until_s = time.monotonic() + self._read_limit_s
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise StorageError(
                    f"{self.path}: reading was broken off after {self._read_limit_s} s; ask for less time or fewer "
                    "topics"
                ) from error
            raise
        except sqlite3.DatabaseError as error:
            raise DecodeError(f"{self.path}: the archive is damaged: {error}") from error
        finally:
            self._read_until_s = float("inf")

    def _is_late(self) -> bool:
        return time.monotonic() > self._read_until_s


def _message(row: Row) -> ArchivedMessage:
    key, pubsub_topic, content_topic, payload, version, timestamp_ns, meta = row
    return ArchivedMessage(
        message_hash=key,
        # A topic that is not UTF-8 must not end a read; the hash still identifies the message.
        pubsub_topic=pubsub_topic.decode(errors="replace"),
        content_topic=content_topic.decode(errors="replace"),
        payload=payload or b"",
        version=version,
        timestamp_ns=timestamp_ns,
        meta=meta,
    )


def file_at(place: str) -> Path:
    """Return the path of a file from the part of an address after ``sqlite:``.

    ``sqlite:PATH`` and nwaku's ``sqlite://PATH`` (``--store-message-db-url``) mean the same file. The path is relative
    unless a further slash follows.
    """
    return Path(place.removeprefix("//"))
