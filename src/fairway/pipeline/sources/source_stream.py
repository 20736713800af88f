"""`SourceStream`: the interface of a growing source for a stream: its offsets and the parts between them.

Offsets cut a stream into micro-batches. They are JSON objects, which Spark keeps in its checkpoint. Invariants:

- The messages between two offsets do not change, so that a repeated micro-batch has the same messages.
- Consecutive micro-batches neither miss nor repeat a message.
- The offset is the only state, so that a stream can continue in another process.

Each kind of source has its own order. Archives that answer queries have the order of their messages (`archive_stream`),
folders of Parquet the order of their files (`parquet_stream`), LIP-76 folders the bytes of their data (`lip76`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from fairway.errors import StoreQueryError
from fairway.pipeline.sources.options import offset_of
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ReadableArchive, time_slice

Offset: TypeAlias = dict[str, Any]
"""A place in a stream, as values for JSON."""


class SourceStream(ABC):
    """The stream of one source. The driver plans it; the executors read it with a copy."""

    @abstractmethod
    def beginning(self) -> Offset:
        """Return the offset before the first message."""

    @abstractmethod
    def present(self) -> Offset:
        """Return the offset after all messages that are available now."""

    @abstractmethod
    def place(self, given: ArchiveCursor | Offset) -> Offset:
        """Return the offset given by the user; raise `ConfigurationError` for one of another kind of source."""

    @abstractmethod
    def hold(self) -> None:
        """Fix the end of the stream at what is available now."""

    @abstractmethod
    def reached(self, start: Offset, most: int | None) -> Offset:
        """Return the end of a micro-batch of at most ``most`` messages after ``start``; ``start`` if it is empty."""

    @abstractmethod
    def newest(self) -> Offset | None:
        """Return the last offset available now, for the progress of a query; None if unknown."""

    @abstractmethod
    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return the parts of a micro-batch, each for a task.

        If unread messages between the offsets may have been removed, it raises `StoreQueryError` or logs a warning
        (``failOnDataLoss``).
        """

    @abstractmethod
    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part in batches of `ARROW_SCHEMA`."""


_LOG: Final = logging.getLogger(__name__)


def check_for_data_loss(archive: ReadableArchive, reached: ArchiveCursor, source: str, *, fail: bool) -> None:
    """Raise `StoreQueryError`, or warn, if messages after ``reached`` may have been removed (``failOnDataLoss``).

    Stores remove the oldest messages first. So an archive with a message at or before ``reached`` has all messages
    after it. If it has no such message, messages may be lost; this may be a false alarm.

    A cursor without a message, such as the beginning of a time range, is not checked.
    """
    if reached.message_hash in {b"", LARGEST_HASH}:
        return
    first = archive.nth(1, time_slice())
    if first is not None and first <= reached:
        return
    raise_or_warn(
        f"{source}: nothing up to the offset {offset_of(reached)} is left in the archive, so messages behind it may "
        "have been dropped unread",
        fail=fail,
    )


def raise_or_warn(text: str, *, fail: bool) -> None:
    """Raise `StoreQueryError` for messages that may be lost, or warn only (``failOnDataLoss``)."""
    if fail:
        raise StoreQueryError(f"{text}; the option failOnDataLoss=false continues with the remaining messages")
    _LOG.warning(text)
