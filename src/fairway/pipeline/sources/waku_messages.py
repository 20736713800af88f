"""``waku_messages``: the table that every source gives, and how an archive is read into it, part by part.

Pure of Spark: what plans runs on the driver, what reads runs on the executors, which open the file themselves. Memory
is bounded by one page of each part that is being read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fairway.pipeline import machine
from fairway.storage.nwaku_archive import ArchivedMessage, ArchiveSlice, NwakuArchive, time_slice

WAKU_MESSAGES: Final = (
    "message_hash binary, pubsub_topic string, content_topic string, payload binary, version int, timestamp bigint,"
    " meta binary, source string"
)
"""The table of messages as the network carried them, one row for each message hash. ``timestamp`` is in nanoseconds
since the Unix epoch, ``source`` names the archive."""

_ARROW_SCHEMA: Final = pa.schema(
    [
        ("message_hash", pa.binary()),
        ("pubsub_topic", pa.string()),
        ("content_topic", pa.string()),
        ("payload", pa.binary()),
        ("version", pa.int32()),
        ("timestamp", pa.int64()),
        ("meta", pa.binary()),
        ("source", pa.string()),
    ]
)
_MAX_VERSION: Final = 2**31 - 1
_PARTITIONS_PER_CORE: Final = 2
_MIN_PARTITION_MESSAGES: Final = 5_000
"""A task for less costs more than it gains: about half a second to start, of which 5,000 messages are a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveScan:
    """Which messages of which archive to read. It is pickled to the executors."""

    path: str
    """The same file on the driver and on every executor."""
    start_ns: int | None = None
    """First timestamp wanted."""
    end_ns: int | None = None
    """Last timestamp wanted."""
    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()
    """Empty for all."""

    def plan(self, partitions: int | None = None) -> list[ArchiveSlice]:
        """Return slices of equally many messages, at least one; by default as many as suit this machine."""
        wanted = time_slice(self.start_ns, self.end_ns)
        with NwakuArchive(self.path, read_only=True) as archive:
            if partitions is None:
                sensible = archive.count(wanted) // _MIN_PARTITION_MESSAGES
                partitions = min(sensible, _PARTITIONS_PER_CORE * machine.cores())
            return list(archive.slices(max(1, partitions), wanted)) or [wanted]

    def read(self, part: ArchiveSlice) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one slice, one batch a page."""
        with NwakuArchive(self.path, read_only=True) as archive:
            for page in archive.pages(part, pubsub_topic=self.pubsub_topic, content_topics=self.content_topics):
                yield _batch(page, self.path)


def _batch(page: tuple[ArchivedMessage, ...], source: str) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "message_hash": [row.message_hash for row in page],
        "pubsub_topic": [row.pubsub_topic for row in page],
        "content_topic": [row.content_topic for row in page],
        "payload": [row.payload for row in page],
        # 14/WAKU2-MESSAGE: a uint32, of which 0 and 1 mean something; the column is signed.
        "version": [min(row.version, _MAX_VERSION) for row in page],
        "timestamp": [row.timestamp_ns for row in page],
        "meta": [row.meta for row in page],
        "source": [source] * len(page),
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW_SCHEMA)
