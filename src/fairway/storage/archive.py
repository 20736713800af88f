"""The interfaces of archives of Waku messages: their order, cursors and pages.

A `ReadableArchive` is for the Spark pipeline, which reads archives of several kinds in slices and remembers in a
checkpoint how far it came: `NwakuArchive` (SQLite), `PostgresArchive`, and the pipeline's view of a store node. A
`PagedArchive` answers store queries: `NwakuArchive` and `PostgresPages`.

Invariant: every archive has the order (timestamp, message hash), the order of store queries (13/WAKU2-STORE,
"Waku message sorting"). A slice is a set of messages, those behind one place up to and including another,
so slices that meet neither miss nor repeat a message, in whatever order they are read and however often.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

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
"""Messages read at once."""
DEFAULT_PAGE_BYTES: Final = 16_777_216
"""Payload bytes after which a page ends; the message that exceeds this is its last."""


class ArchiveCursor(NamedTuple):
    """A position in an archive, after this message."""

    timestamp_ns: int
    message_hash: bytes


class ArchiveSlice(NamedTuple):
    """A part of an archive: the messages behind ``after`` up to and including ``through``."""

    after: ArchiveCursor
    through: ArchiveCursor

    def holds(self, place: ArchiveCursor) -> bool:
        """Return whether a message belongs to this slice."""
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
    """Timestamp of the message; when it had none, the time at which it was received."""
    meta: bytes | None

    @property
    def cursor(self) -> ArchiveCursor:
        """Return the place right behind this message."""
        return ArchiveCursor(self.timestamp_ns, self.message_hash)


ArchiveEntry = tuple[str, "WakuMessage", bytes, int]
"""A message to keep: pubsub topic, message, message hash, and time of arrival in Unix nanoseconds."""


def time_slice(start_ns: int | None = None, end_ns: int | None = None) -> ArchiveSlice:
    """Return the slice of all messages from ``start_ns`` to ``end_ns``, both included as in a store query."""
    start = min(max(MIN_TIMESTAMP_NS, MIN_TIMESTAMP_NS if start_ns is None else start_ns), MAX_TIMESTAMP_NS)
    end = min(max(MIN_TIMESTAMP_NS, MAX_TIMESTAMP_NS if end_ns is None else end_ns), MAX_TIMESTAMP_NS)
    return ArchiveSlice(ArchiveCursor(start, b""), ArchiveCursor(end, LARGEST_HASH))


class ReadableArchive(ABC):
    """A context manager over one archive; see the module's text for the order."""

    def __enter__(self) -> Self:
        """Return the archive."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the archive, also after an error."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of the archive; more than once does no harm."""

    @abstractmethod
    def estimate(self, part: ArchiveSlice) -> int | None:
        """Return about how many messages a slice holds, None if only reading them could say."""

    @abstractmethod
    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split the archive, or a slice of it, into at most ``count`` slices; none if there is nothing in it."""

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

    @abstractmethod
    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the place behind message ``number`` (1 for the first) of a slice, None if it holds fewer."""

    @abstractmethod
    def last(self, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the place behind the last message of a slice, None if there is none."""


class PagedArchive(Protocol):
    """An archive that answers store queries, used in one thread."""

    def close(self) -> None:
        """Let go of the archive; more than once does no harm."""

    def places(self, message_hashes: Collection[bytes]) -> tuple[ArchiveCursor, ...]:
        """Return where those of these messages are that the archive has, in order, without reading them."""

    def find(self, message_hashes: Collection[bytes]) -> tuple[ArchivedMessage, ...]:
        """Return those of the messages with these hashes that the archive has, ordered by (timestamp, hash)."""

    def page(
        self,
        *,
        start_ns: int | None,
        end_ns: int | None,
        beyond: ArchiveCursor | None,
        newest_first: bool,
        pubsub_topic: str | None,
        content_topics: Collection[str],
        rows: int,
        page_bytes: int,
    ) -> tuple[ArchivedMessage, ...]:
        """Return one page, oldest message first, as a store query has it: ``end_ns`` is not included.

        ``beyond`` is the message at which the page before this one ended: the page begins after it, or with
        ``newest_first`` ends before it.
        """
