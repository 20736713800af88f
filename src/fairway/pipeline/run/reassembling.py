"""The job that delivers messages, from ``sds_messages``: those that were sent whole, and segments put together.

::

    tasks over files of whole messages ------------------------+
    tasks over files of segments: those of most channels ------+-> by range of (channel, timestamp, id): delivered
                                  of split channels            |
                                    |                          |
                                    +-> by (channel, sender,   |
                                         hash of the payload)  |
                                            |                  |
                                            +- put together ---+

A channel is split if it is in several ranges: then a segment may be in another range than its message. All others are
put together in the task of their range, so that their payloads go through one shuffle, and not through two.

Its notes are those of files: beside ``delivered``, ``incomplete`` and ``computed_segments`` where segments are put
together. A task holds a bucket of segments, in a file if it is large, and the messages of a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, Batches, Bucket, Cutter, begin_task, exchanged, filtered, gathered
from fairway.pipeline.run.ranges import Place, range_of, split_channels
from fairway.pipeline.run.shares import shared_out
from fairway.pipeline.run.table_files import RowGroup, TableFiles, exact_schema_of
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.delivered import (
    JOINED_COLUMNS,
    WHOLE_COLUMNS,
    are_whole,
    in_order,
    incomplete_sets,
    joined_messages,
    whole_messages,
)
from fairway.pipeline.stages.reassembled import (
    REASSEMBLED,
    SEGMENTS,
    computed_segments_in,
    reassembled_rows,
    segments_in,
)

WRITTEN: Final = ("delivered", "incomplete", "computed_segments")
"""The tables that the job writes."""

_SEGMENTS: Final = "segments"
"""The kind of blobs of segments (`SEGMENTS`)."""
_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_WHOLE: Final = pa.schema([exact_schema_of("sds_messages").field(name) for name in WHOLE_COLUMNS])
_JOINED: Final = pa.schema([exact_schema(REASSEMBLED).field(name) for name in JOINED_COLUMNS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembling:
    """What the tasks of the job know."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    bounds: Sequence[Place]
    """Where the ranges of ``delivered`` end."""
    profile: Profile | None
    config: SegmentationConfig

    def frame(self, spark: SparkSession, sds_messages: Sequence[str], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``sds_messages`` are the files of that table."""
        ranged = shared_out(spark, sds_messages, tasks, self._cut_by_range)
        if self._split:
            segments = shared_out(spark, sds_messages, tasks, self._cut_by_group)
            ranged = ranged.unionAll(exchanged(segments, self.buckets).mapInArrow(self._reassemble, BLOBS))
        return exchanged(ranged, self._ranges).mapInArrow(self._deliver, BLOBS)

    @property
    def _ranges(self) -> int:
        return len(self.bounds) + 1

    @property
    def _split(self) -> list[str]:
        return split_channels(self.bounds)

    def _cut_by_range(self, names: Sequence[str]) -> Batches:
        """Cut what is in the range of its message: all that is whole, and the segments of channels in one range."""
        whole = Cutter("whole", self._ranges)
        columns = [*_WHOLE.names, "kind", "segment_hash", "sighting"]
        for rows in self.files.read("sds_messages", names, columns, wanted=_has_whole):
            messages = filtered(rows.select(_WHOLE.names), pc.and_(are_whole(rows), _are_first(rows)))
            yield from whole.add(messages, self._range_of(messages, messages.column("message_id")))
        yield from whole.close()
        cutter = Cutter(_SEGMENTS, self._ranges)
        for segments in self._segments(names):
            own = filtered(segments, pc.invert(self._are_split(segments)))
            yield from cutter.add(own, self._range_of(own, own.column("message_id")))
        yield from cutter.close()

    def _cut_by_group(self, names: Sequence[str]) -> Batches:
        """Cut the segments whose message may be in another range than they are."""
        cutter = Cutter(_SEGMENTS, self.buckets)
        for segments in self._segments(names):
            split = filtered(segments, self._are_split(segments))
            by = self.keys.by_columns([split.column(name) for name in _GROUP], self.buckets)
            yield from cutter.add(split, by)
        yield from cutter.close()

    def _segments(self, names: Sequence[str]) -> Iterator[pa.Table]:
        columns = [*SEGMENTS.names, "sighting"]
        for rows in self.files.read("sds_messages", names, columns, wanted=_has_segments):
            yield segments_in(filtered(rows, _are_first(rows)))

    def _are_split(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(rows.column("channel_id"), value_set=pa.array(self._split, pa.string()))

    def _reassemble(self, batches: Batches) -> Batches:
        begin_task()
        bucket = gathered(batches)
        cutter = Cutter("joined", self._ranges)
        notes: list[pa.RecordBatch] = []
        for joined in self._joined(bucket, notes):
            first_ids = pc.list_element(joined.column("sds_ids"), 0)
            yield from cutter.add(joined, self._range_of(joined, first_ids))
        yield from cutter.close()
        yield from notes

    def _joined(self, bucket: Bucket, notes: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the messages that the segments of a bucket give, write what else they tell, and add notes of that."""
        others: dict[str, list[pa.Table]] = {"incomplete": [], "computed_segments": []}
        segments = bucket.tables.pop(_SEGMENTS, SEGMENTS.empty_table())
        for table in reassembled_rows(segments, self.profile, self.config):
            others["incomplete"].append(incomplete_sets(table))
            others["computed_segments"].append(computed_segments_in(table))
            yield filtered(table, pc.equal(table.column("outcome"), "complete")).select(_JOINED.names)
        for name, tables in others.items():
            if any(table.num_rows for table in tables):
                notes.append(self.files.write(name, bucket.number, pa.concat_tables(tables)))

    def _deliver(self, batches: Batches) -> Batches:
        begin_task()
        bucket = gathered(batches)
        yield from bucket.notes
        if not bucket.tables:
            return
        notes: list[pa.RecordBatch] = []
        joined = [*self._joined(bucket, notes), bucket.table("joined", _JOINED)]
        whole = bucket.table("whole", _WHOLE)
        messages = pa.concat_tables([whole_messages(whole), *map(joined_messages, joined)])
        for part, table in enumerate(in_order(messages)):
            yield self.files.write("delivered", bucket.number, table, part)
        yield from notes

    def _range_of(self, rows: pa.Table, ids: pa.ChunkedArray) -> NDArray[np.uint16]:
        return range_of(self.bounds, rows.column("channel_id"), rows.column("lamport"), ids)


def _are_first(sds_messages: pa.Table) -> pa.ChunkedArray:
    return pc.equal(sds_messages.column("sighting"), 1)


def _has_segments(group: RowGroup) -> bool:
    return group.nulls("segment_hash") < group.rows


def _has_whole(group: RowGroup) -> bool:
    return group.nulls("segment_hash") > 0
