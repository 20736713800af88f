"""The stream of an archive: micro-batches along the order (timestamp, message hash).

An offset is a cursor in that order. So a restart continues after the last message of the checkpoint, and a repeated
micro-batch reads the same range: no message is skipped or repeated.

Senders choose timestamps, and a message arrives at a store a little after its timestamp. A stream could pass a message
that has not arrived yet, and one dated next year would take it past all others. So a stream reads only up to the
present minus ``settleMs``; a message dated in the future waits until then. A store may receive still older messages
later, for instance when it synchronises with others after an outage; these are only in a batch read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.data_loss import check_for_data_loss
from fairway.pipeline.sources.options import EARLIEST, SourceOptions, offset_of, place_of
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.short_errors import short_errors
from fairway.pipeline.sources.waku_messages import ArchiveScan
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ArchiveSlice


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """The part of a micro-batch that one task reads."""

    part: ArchiveSlice


class WakuStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors; keeps nothing open between calls."""

    def __init__(self, options: SourceOptions, now_ns: Callable[[], int] = time.time_ns) -> None:
        scan = scan_of(options.uri, options.selection, options.label)
        if not isinstance(scan, ArchiveScan):
            raise ConfigurationError(
                "a LIP-76 folder or Parquet grows by whole files and in no order, so there is no stream of it; read it "
                "as a table, or follow a folder of Parquet with spark.readStream.parquet or 'fairway pipeline stream'"
            )
        self._options = options
        self._scan = scan
        self._now_ns = now_ns
        self._target: ArchiveCursor | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the offset at which a stream without a checkpoint begins."""
        starting = self._options.starting
        if isinstance(starting, ArchiveCursor):
            return offset_of(starting)
        wanted = self._options.selection.part
        return offset_of(wanted.after if starting == EARLIEST else max(wanted.after, self._settled()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
        """Return the limit of a micro-batch."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the end of the next micro-batch: the cursor of a message, or ``start`` if there is none."""
        reached = place_of(start)
        ahead = ArchiveSlice(reached, self._end())
        with self._scan.open() as archive:
            end = archive.nth(limit.max_rows, ahead) if isinstance(limit, ReadMaxRows) else None
            end = end or archive.last(ahead)
        return offset_of(end or reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - as Spark calls it
        """Return the last message that could be read now, for the query's progress."""
        with self._scan.open() as archive:
            last = archive.last(ArchiveSlice(self._options.selection.part.after, self._end()))
        return None if last is None else offset_of(last)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """Fix the end of the stream at what is available now."""
        self._target = self._end()

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts of a micro-batch."""
        part = ArchiveSlice(place_of(start), place_of(end))
        if part.through <= part.after:
            return []
        with self._scan.open() as archive:
            check_for_data_loss(archive, part.after, self._scan.source, fail=self._options.fail_on_data_loss)
        batch = replace(self._scan, selection=replace(self._scan.selection, after=part.after, through=part.through))
        return [StreamPartition(part) for part in batch.plan(self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part."""
        if not isinstance(partition, StreamPartition):
            raise ConfigurationError(f"a stream of the source 'waku' reads its own partitions, not {partition!r}")
        return self._scan.read(partition.part)

    def _end(self) -> ArchiveCursor:
        settled = self._target or self._settled()
        return min(settled, self._options.selection.part.through)

    def _settled(self) -> ArchiveCursor:
        return ArchiveCursor(self._now_ns() - self._options.settle_ns, LARGEST_HASH)
