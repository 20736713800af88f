"""`SourceStream`: what a growing source has given to a stream, and what it gives next.

A stream is cut into micro-batches by offsets, JSON objects that Spark keeps in its checkpoint. Invariants:

- What lies between two offsets does not change, so that a repeated micro-batch has the same messages.
- Micro-batches that follow each other neither miss nor repeat a message.
- Nothing is kept but the offset, so that a stream goes on in another process.

Each kind of source has an order of its own: archives that answer queries that of their messages (`archive_stream`),
folders of Parquet the files that were there and those that were added (`parquet_stream`), LIP-76 folders the bytes of
their data (`lip76_stream`).
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
    """The stream of one source; planned on the driver, read by the executors, which get a copy of it."""

    @abstractmethod
    def beginning(self) -> Offset:
        """Return the offset that everything lies behind."""

    @abstractmethod
    def present(self) -> Offset:
        """Return the offset behind which lies what comes from now on."""

    @abstractmethod
    def place(self, given: ArchiveCursor | Offset) -> Offset:
        """Return an offset that a person gave; raise `ConfigurationError` for one of another kind of source."""

    @abstractmethod
    def hold(self) -> None:
        """Fix the end of the stream at what is available now."""

    @abstractmethod
    def reached(self, start: Offset, most: int | None) -> Offset:
        """Return the end of the micro-batch after ``start``, which has at most so many messages; ``start`` if none."""

    @abstractmethod
    def newest(self) -> Offset | None:
        """Return the last offset that could be reached now, for the progress of a query; None if it is not known."""

    @abstractmethod
    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return the parts of a micro-batch, each for a task.

        Raises `StoreQueryError` if messages between the offsets may have been removed before they were read, or warns,
        as the options say.
        """

    @abstractmethod
    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part in batches of `ARROW_SCHEMA`."""


_LOG: Final = logging.getLogger(__name__)


def check_for_data_loss(archive: ReadableArchive, reached: ArchiveCursor, source: str, *, fail: bool) -> None:
    """Raise `StoreQueryError`, or warn, if messages after ``reached`` may have been removed (``failOnDataLoss``).

    Stores remove the oldest messages first. So an archive with a message at or before ``reached`` has all messages
    after it. If it has none, messages may be lost; this may be a false alarm.

    A cursor that is none of a message, such as the beginning of a time range, is not checked.
    """
    if reached.message_hash in {b"", LARGEST_HASH}:
        return
    first = archive.nth(1, time_slice())
    if first is not None and first <= reached:
        return
    text = (
        f"{source}: nothing up to the offset {offset_of(reached)} is left in the archive, so messages behind it may "
        "have been dropped unread"
    )
    if fail:
        raise StoreQueryError(f"{text}; the option failOnDataLoss=false goes on with what is there")
    _LOG.warning(text)
