"""The interfaces of archives of Waku messages: their order, cursors and pages.

The Spark pipeline reads a `ReadableArchive` in slices, and keeps in a checkpoint how far it has read. A `PagedArchive`
also answers store queries: `NwakuArchive` (SQLite) and `PostgresArchive`. The third kind is the pipeline's view of a
store node.

Invariant: every archive is ordered by (timestamp, message hash), the order of store queries (13/WAKU2-STORE, "Waku
message sorting"). A slice is the set of messages after one cursor up to and including another. So adjacent slices
neither miss nor repeat a message, in any order of reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Self

    from fairway.wire.waku_message import WakuMessage

HASH_BYTES: Final = 32
"""Length of a deterministic message hash."""

MIN_TIMESTAMP_NS: Final = -(2**63)
"""Timestamps of WakuMessages are signed 64-bit nanoseconds."""
MAX_TIMESTAMP_NS: Final = 2**63 - 1
"""See `MIN_TIMESTAMP_NS`."""

LARGEST_HASH: Final = b"\xff" * (HASH_BYTES + 1)
"""Sorts after every message hash; the empty hash sorts before."""

DEFAULT_PAGE_ROWS: Final = 1_000
"""Messages of a page."""
DEFAULT_PAGE_BYTES: Final = 16_777_216
"""Size of the payloads of a page; the message that exceeds it is the last of the page."""


class ArchiveCursor(NamedTuple):
    """The position after a message in an archive."""

    timestamp_ns: int
    message_hash: bytes


class ArchivedId(NamedTuple):
    """What identifies a message in an archive, and its topics; ordered by time, then by hash."""

    timestamp_ns: int
    message_hash: bytes
    pubsub_topic: str
    content_topic: str


class ArchiveSlice(NamedTuple):
    """A part of an archive: the messages after ``after`` up to and including ``through``."""

    after: ArchiveCursor
    through: ArchiveCursor

    def holds(self, place: ArchiveCursor) -> bool:
        """Return whether the message at a cursor belongs to this slice."""
        return self.after < place <= self.through


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMessage:
    """One row of an archive."""

    message_hash: bytes
    """Deterministic hash of the WakuMessage, 32 bytes."""
    pubsub_topic: str
    content_topic: str
    payload: bytes
    version: int
    timestamp_ns: int
    """Timestamp of the message in Unix nanoseconds; if it has none, the time at which it was received."""
    meta: bytes | None
    rate_limit_proof: bytes | None = None
    """The RLN proof, if the archive keeps it."""

    @property
    def cursor(self) -> ArchiveCursor:
        """The position after this message."""
        return ArchiveCursor(self.timestamp_ns, self.message_hash)


ArchiveEntry = tuple[str, "WakuMessage", bytes, int]
"""A message to keep: pubsub topic, message, message hash, and time of arrival in Unix nanoseconds."""


def time_slice(start_ns: int | None = None, end_ns: int | None = None) -> ArchiveSlice:
    """Return the slice of all messages from ``start_ns`` to ``end_ns``, both included as in a store query."""
    start = min(max(MIN_TIMESTAMP_NS, MIN_TIMESTAMP_NS if start_ns is None else start_ns), MAX_TIMESTAMP_NS)
    end = min(max(MIN_TIMESTAMP_NS, MAX_TIMESTAMP_NS if end_ns is None else end_ns), MAX_TIMESTAMP_NS)
    return ArchiveSlice(ArchiveCursor(start, b""), ArchiveCursor(end, LARGEST_HASH))


class ReadableArchive(ABC):
    """A context manager over one archive, which is ordered by (timestamp, message hash)."""

    def __enter__(self) -> Self:
        """Return the archive."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the archive, also after an error."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the archive. Can be called twice."""

    @abstractmethod
    def estimate(self, part: ArchiveSlice) -> int | None:
        """Return the approximate number of messages of a slice; None if it is unknown without reading them."""

    @abstractmethod
    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split the archive, or a slice of it, into at most ``count`` slices; none if it is empty."""

    @abstractmethod
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

    def topics(self, part: ArchiveSlice, most: int) -> tuple[str, ...] | None:  # noqa: ARG002 - most cannot tell
        """Return the content topics of a slice; None if they are more than ``most``, or unknown without reading it."""
        return None

    @abstractmethod
    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after message ``number`` (1 for the first) of a slice; None if it has fewer."""

    @abstractmethod
    def last(self, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after the last message of a slice; None if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """A store query for one page of a `PagedArchive`."""

    start_ns: int | None = None
    end_ns: int | None = None
    """Not included."""
    beyond: ArchiveCursor | None = None
    """Cursor of the previous page: this page begins after it, or with ``newest_first`` ends before it."""
    newest_first: bool = False
    """Whether the page is the newest one; its messages are still oldest first."""
    pubsub_topic: str | None = None
    content_topics: Collection[str] = ()
    """None means all."""
    rows: int = DEFAULT_PAGE_ROWS
    page_bytes: int = DEFAULT_PAGE_BYTES


class PagedArchive(ReadableArchive):
    """An archive in a database, which also answers store queries; used in one thread."""

    @abstractmethod
    def places(self, message_hashes: Collection[bytes]) -> tuple[ArchiveCursor, ...]:
        """Return the cursors of the messages with these hashes that the archive has, in order, without reading them."""

    @abstractmethod
    def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest ``count`` messages dated ``start_ns`` or later, in order."""

    @abstractmethod
    def find(self, message_hashes: Collection[bytes]) -> tuple[ArchivedMessage, ...]:
        """Return the messages with these hashes that the archive has, in order."""

    @abstractmethod
    def _page(self, part: ArchiveSlice, query: PageQuery) -> tuple[ArchivedMessage, ...]:
        """Return the first messages of a slice, or with ``newest_first`` its last ones, the newest first."""

    def page(self, query: PageQuery) -> tuple[ArchivedMessage, ...]:
        """Return one page, oldest message first."""
        part = time_slice(query.start_ns, None if query.end_ns is None else query.end_ns - 1)
        if query.beyond is not None and query.newest_first:
            part = part._replace(through=min(part.through, _place_before(*query.beyond)))
        elif query.beyond is not None:
            part = part._replace(after=max(part.after, query.beyond))
        found = self._page(part, query)
        return found[::-1] if query.newest_first else found

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
        part = part or time_slice()
        query = PageQuery(
            pubsub_topic=pubsub_topic, content_topics=content_topics, rows=page_rows, page_bytes=page_bytes
        )
        while page := self._page(part, query):
            yield page
            part = part._replace(after=page[-1].cursor)

    def last(self, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after the last message of a slice; None if it is empty."""
        found = self._page(part, PageQuery(rows=1, newest_first=True))
        return found[0].cursor if found else None


def _place_before(timestamp_ns: int, message_hash: bytes) -> ArchiveCursor:
    """Return the last cursor before a message, because a slice includes the message at its ``through``."""
    number = int.from_bytes(message_hash, "big")
    return ArchiveCursor(timestamp_ns, (number - 1).to_bytes(HASH_BYTES, "big") if number else b"")
