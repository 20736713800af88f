"""`NodeArchive`: the messages that a service node keeps for store queries, in memory, SQLite or PostgreSQL.

`NodeArchive.put` returns at once; the queue of writes is bounded, and messages beyond the bound are dropped and
counted. A query finds all messages that were put before it. Messages that are older or more than `Retention` allows are
removed. After `NodeArchive.close` all others are on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from fairway.environment import time_ns
from fairway.errors import ConfigurationError
from fairway.nodes.message_store import MemoryMessageStore
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.storage.archive import ArchivedId
from fairway.type_checks import check_fields
from fairway.wire.waku_message import WakuMessage

_DAY_S: Final = 86_400.0
MAX_AGE_S: Final = 36_500 * _DAY_S
"""Largest ``max_age_s``; all times then fit 64 bits of nanoseconds."""
MIN_BYTES: Final = 1_048_576
"""Smallest ``max_bytes``."""
_MAX_MESSAGES: Final = 100_000
_MAX_BYTES: Final = 268_435_456
"""Bounds of an archive in memory."""
MAX_AHEAD_NS: Final = 3_600_000_000_000
"""A message with a timestamp further in the future is dropped, because it would outlast all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits of an archive; None: no limit."""

    max_age_s: float | None = 30 * _DAY_S
    """Largest age by the timestamps of messages. 64/WAKU2-NETWORK asks for at least 12 hours."""
    max_bytes: int | None = None
    """Largest size of the database. Beyond it the oldest messages are removed, down to four fifths of it."""
    notice_s: float = 3_600.0
    """Delay before the removal of messages that are beyond ``max_age_s`` when the archive is opened. The log has a
    warning first. 0 removes them at once."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_age_s is not None and not 0 < self.max_age_s <= MAX_AGE_S:
            raise ConfigurationError(
                f"max_age_s must be above 0 and at most {MAX_AGE_S:g}, not {self.max_age_s}; None: no limit"
            )
        if self.max_bytes is not None and self.max_bytes < MIN_BYTES:
            raise ConfigurationError(f"max_bytes must be at least {MIN_BYTES}, not {self.max_bytes}; None: no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatistics:
    """Counts and sizes of an archive."""

    messages: int
    """Messages in the archive; a database counts them from time to time, so that the number may lag behind."""
    size_bytes: int
    """Size of the database."""
    waiting: int
    """Messages that are not yet written."""
    failing: int
    """1 while messages cannot be written, as on a full disk; else 0."""
    dropped: int
    """Messages that could not be stored."""
    queries: int


def is_too_far_ahead(message: WakuMessage) -> bool:
    """Return whether the timestamp of a message lies more than `MAX_AHEAD_NS` in the future."""
    return (message.timestamp_ns or 0) > time_ns() + MAX_AHEAD_NS


class NodeArchive(ABC):
    """Keeps messages and answers queries."""

    @abstractmethod
    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message. If it has no timestamp, ``received_ns`` (Unix nanoseconds) is its timestamp."""

    @abstractmethod
    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query; ``cursor`` is that of the previous page, None for the first page.

        Raises `StoreQueryError` for an unknown cursor, and `StorageError` if the archive cannot be read now.
        """

    @abstractmethod
    async def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest ``count`` messages dated ``start_ns`` or later, in order.

        Raises `StorageError` if the archive cannot be read now.
        """

    @property
    def problem(self) -> str | None:
        """Reason why messages cannot be written now; None if they can."""
        return None

    @abstractmethod
    async def statistics(self) -> ArchiveStatistics:
        """Return counts and sizes."""

    @abstractmethod
    async def close(self) -> None:
        """Write the queued messages, and close the archive. Can be called twice."""


class MemoryArchive(NodeArchive):
    """Keeps the newest messages until the process ends."""

    def __init__(self) -> None:
        self._store: Final = MemoryMessageStore(max_messages=_MAX_MESSAGES, max_bytes=_MAX_BYTES)
        self._queries = self._dropped = 0

    def put(self, message: RoutedMessage, received_ns: int) -> None:
        """Keep a message."""
        if is_too_far_ahead(message.message):
            self._dropped += 1
        else:
            self._store.put(message, received_ns)

    async def page(self, query: StoreQuery, cursor: bytes | None = None) -> StorePage:
        """Return a page of the answer to a query."""
        self._queries += 1
        return self._store.page(query, cursor)

    async def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest messages dated ``start_ns`` or later."""
        return self._store.newest_ids(start_ns, count)

    async def statistics(self) -> ArchiveStatistics:
        """Return counts."""
        return ArchiveStatistics(
            messages=len(self._store), size_bytes=0, waiting=0, failing=0, dropped=self._dropped, queries=self._queries
        )

    async def close(self) -> None:
        """Do nothing: the messages are in memory only."""
