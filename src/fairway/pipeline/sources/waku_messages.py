"""``waku_messages``: the table of every source, and the read of an archive into it, part by part.

The code needs no Spark. The driver plans the parts; the executors open the archive and read them. Memory is bounded by
one page of each part that is being read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline import machine
from fairway.pipeline.schema import exact_schema
from fairway.storage.archive import (
    DEFAULT_PAGE_BYTES,
    DEFAULT_PAGE_ROWS,
    ArchiveCursor,
    ArchivedMessage,
    ArchiveSlice,
    ReadableArchive,
    time_slice,
)
from fairway.wire.varint import length_prefixed

WAKU_MESSAGES: Final = (
    "message_hash binary, pubsub_topic string, content_topic string, payload binary, version int,"
    " timestamp timestamp, timestamp_ns bigint, meta binary, rate_limit_proof binary, source string"
)
"""The table of messages as the network carried them, one row for each message hash. ``source`` names the
archive; ``rate_limit_proof`` is null if the archive does not keep proofs."""

ARROW_SCHEMA: Final = exact_schema(WAKU_MESSAGES)
"""`WAKU_MESSAGES` as an Arrow schema without the instant: the schema of a scan's batches."""

EXACT_TIME: Final = "timestamp_ns"
"""The column with the times of messages in nanoseconds."""
TIME: Final = "timestamp"
"""The column with their instants. In older tables, without `EXACT_TIME`, its integers are nanoseconds."""

_MAX_VERSION: Final = 2**31 - 1
_PARTITIONS_PER_CORE: Final = 2
_MIN_PARTITION_MESSAGES: Final = 5_000
"""Fewest messages of a task; its start takes about half a second, ten times as long as reading them."""
MOST_PARTITION_MESSAGES: Final = 1_000_000
"""Most messages of a task; a larger archive gets more partitions than the cores need, so that a retry is short."""
_MIN_PARTITION_BYTES: Final = 2_097_152
_MOST_PARTITION_BYTES: Final = 268_435_456
"""The same bounds for archives that are cut by bytes."""
_MOST_TOPICS: Final = 1_000
"""Most content topics that a read requests from an archive for a pattern; for more, the read filters the messages."""
REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
"""The replacement of invalid bytes in the text of a topic. An archive compares the bytes."""
_CHANNEL_TAGS: Final = (b"\x1a", b"\x22")
"""The protobuf tags of the channel id: field 3 in the SDS specification, field 4 in nim-sds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The wanted messages of an archive; all by default."""

    start_ns: int | None = None
    """First timestamp wanted."""
    end_ns: int | None = None
    """Last timestamp wanted."""
    after: ArchiveCursor | None = None
    """Only messages after this cursor."""
    through: ArchiveCursor | None = None
    """Only messages up to and including this cursor."""
    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()
    """Only messages of these content topics; empty: all."""
    topics_pattern: str | None = None
    """Only messages whose whole content topic matches this regular expression, in the syntax of RE2."""
    channels: tuple[str, ...] = ()
    """Only payloads that contain one of these channel ids in the encoding of SDS messages; empty: all. Payloads are not
    decoded: encrypted messages are left out, and a message of another channel with the same bytes is included."""

    def as_json(self) -> dict[str, Any] | None:
        """Return the fields that a command can set, as values for JSON; None for everything."""
        if self == Selection():
            return None
        return {
            "since_ns": self.start_ns,
            "until_ns": self.end_ns,
            "channels": list(self.channels),
            "topics": list(self.content_topics),
            "topics_pattern": self.topics_pattern,
        }

    @property
    def is_of_times_alone(self) -> bool:
        """Return whether only times choose the messages, so that an archive can count them."""
        return replace(self, start_ns=None, end_ns=None) == Selection()

    @property
    def part(self) -> ArchiveSlice:
        """Return the slice that contains all wanted messages."""
        times = time_slice(self.start_ns, self.end_ns)
        return ArchiveSlice(
            times.after if self.after is None else max(times.after, self.after),
            times.through if self.through is None else min(times.through, self.through),
        )

    def chosen(self, messages: Iterable[ArchivedMessage]) -> Iterator[ArchivedMessage]:
        """Yield the messages whose payload may belong to the wanted channels."""
        return (message for message in messages if self.may_carry(message.payload))

    def matching(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of a batch whose content topic matches the pattern."""
        return messages if self.topics_pattern is None else messages.filter(self._matches(messages["content_topic"]))

    def topics_in(self, archive: ReadableArchive, part: ArchiveSlice) -> tuple[str, ...] | None:
        """Return the content topics to request from a slice of an archive: empty for all, None if none is wanted."""
        known = archive.topics(part, _MOST_TOPICS) if self.topics_pattern and not self.content_topics else None
        if known is None or any(REPLACED in topic for topic in known):
            return self.content_topics
        topics = pa.array(known, pa.string())
        return tuple(topics.filter(self._matches(topics)).to_pylist()) or None

    def _matches(self, topics: pa.Array) -> pa.BooleanArray:
        return pc.match_substring_regex(topics, rf"\A(?:{self.topics_pattern})\z")

    def may_carry(self, payload: bytes | None) -> bool:
        """Return whether a payload may belong to the wanted channels."""
        return not self.channels or any(mark in (payload or b"") for mark in _marks(self.channels))

    def wants(self, message: ArchivedMessage) -> bool:
        """Return whether a message has a wanted time, cursor and topic, for archives that cannot select these."""
        return (
            self.part.holds(message.cursor)
            and (self.pubsub_topic is None or message.pubsub_topic == self.pubsub_topic)
            and (not self.content_topics or message.content_topic in self.content_topics)
        )


@cache
def _marks(channels: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(tag + length_prefixed(channel.encode()) for channel in channels for tag in _CHANNEL_TAGS)


class MessageScan(ABC):
    """One read of one archive. The driver plans it and pickles it to the executors, which read its parts."""

    source: str
    """The value of the column ``source``, without credentials."""

    @abstractmethod
    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[Any]:
        """Return parts for `read`, at least one; the default number depends on the archive and the cores."""

    def for_tasks(self) -> Self:
        """Return the read for tasks, without the data that only the driver needs."""
        return self

    @abstractmethod
    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part in batches of `ARROW_SCHEMA`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveScan(MessageScan):
    """A read of an archive that is ordered by (timestamp, message hash)."""

    open: Callable[[], ReadableArchive] = field(repr=False)
    """Opens the archive, on the driver and in every task; may hold credentials."""
    source: str
    selection: Selection = Selection()

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[ArchiveSlice]:
        """Return slices of about equally many messages, at least one."""
        wanted = self.selection.part
        with self.open() as archive:
            if partitions is None:
                number = archive.estimate(wanted)
                most = _PARTITIONS_PER_CORE * (cores or machine.cores())
                if number is not None:
                    most = max(min(number // _MIN_PARTITION_MESSAGES, most), number // MOST_PARTITION_MESSAGES)
                partitions = most
            return list(archive.slices(max(1, partitions), wanted)) or [wanted]

    def read(self, part: ArchiveSlice) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one slice, one batch a page."""
        chosen = self.selection
        with self.open() as archive:
            topics = chosen.topics_in(archive, part)
            if topics is None:
                return
            for page in archive.pages(part, pubsub_topic=chosen.pubsub_topic, content_topics=topics):
                yield chosen.matching(arrow_batch(list(chosen.chosen(page)), self.source))


def even_runs(
    pieces: Sequence[Any], sizes_bytes: Sequence[int], partitions: int | None = None, cores: int | None = None
) -> list[tuple[Any, ...]]:
    """Return pieces, in their order, as at most ``partitions`` runs of about equal size; at least one, perhaps empty.

    The default number depends on the size and on the cores, by default those of this machine.
    """
    size_bytes = sum(sizes_bytes)
    if partitions is None:
        useful = min(_PARTITIONS_PER_CORE * (cores or machine.cores()), size_bytes // _MIN_PARTITION_BYTES)
        partitions = max(useful, size_bytes // _MOST_PARTITION_BYTES)
    share = size_bytes / max(1, partitions)
    runs: list[list[Any]] = [[]]
    reached = 0
    for piece, size in zip(pieces, sizes_bytes, strict=True):
        if runs[-1] and reached >= share * len(runs):
            runs.append([])
        runs[-1].append(piece)
        reached += size
    return [tuple(run) for run in runs]


def arrow_batches(messages: Iterable[ArchivedMessage], source: str) -> Iterator[pa.RecordBatch]:
    """Yield messages as batches of `ARROW_SCHEMA`, bounded in rows and bytes."""
    page: list[ArchivedMessage] = []
    size = 0
    for message in messages:
        page.append(message)
        size += len(message.payload)
        if len(page) >= DEFAULT_PAGE_ROWS or size >= DEFAULT_PAGE_BYTES:
            yield arrow_batch(page, source)
            page, size = [], 0
    if page:
        yield arrow_batch(page, source)


def arrow_batch(page: list[ArchivedMessage], source: str) -> pa.RecordBatch:
    """Return messages as one batch of `ARROW_SCHEMA`."""
    columns: dict[str, list[Any]] = {
        "message_hash": [row.message_hash for row in page],
        "pubsub_topic": [row.pubsub_topic for row in page],
        "content_topic": [row.content_topic for row in page],
        "payload": [row.payload for row in page],
        # 14/WAKU2-MESSAGE: a uint32, of which 0 and 1 are defined; the column is signed.
        "version": [max(-_MAX_VERSION, min(row.version, _MAX_VERSION)) for row in page],
        "timestamp_ns": [row.timestamp_ns for row in page],
        "meta": [row.meta for row in page],
        "rate_limit_proof": [row.rate_limit_proof for row in page],
        "source": [source] * len(page),
    }
    return pa.RecordBatch.from_pydict(columns, schema=ARROW_SCHEMA)
