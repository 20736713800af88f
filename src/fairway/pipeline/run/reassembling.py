"""The job that delivers messages, from ``sds_messages``: those that were sent whole, and segments put together.

::

    tasks over files of segments -> by (channel, sender, hash of the payload): incomplete, computed_segments
                                    |
                                    +- messages in segments --+
    tasks over files of the others: whole messages -----------+-> by range of (channel, timestamp, id): delivered

Its notes are those of files. A task holds a bucket of segments, in a file if it is large, and the payloads of a few
groups; or the messages of a range. A payload in segments goes through two shuffles, and is in no file between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, Batches, Cutter, begin_task, exchanged, filtered, gathered
from fairway.pipeline.run.ranges import Place, range_of
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
        segments = shared_out(spark, sds_messages, tasks, self._cut_segments)
        joined = exchanged(segments, self.buckets).mapInArrow(self._reassemble, BLOBS)
        whole = shared_out(spark, sds_messages, tasks, self._cut_whole)
        return exchanged(joined.unionAll(whole), self._ranges).mapInArrow(self._deliver, BLOBS)

    @property
    def _ranges(self) -> int:
        return len(self.bounds) + 1

    def _cut_segments(self, names: Sequence[str]) -> Batches:
        cutter = Cutter("segments", self.buckets)
        columns = [*SEGMENTS.names, "sighting"]
        for rows in self.files.read("sds_messages", names, columns, wanted=_has_segments):
            segments = segments_in(filtered(rows, pc.equal(rows.column("sighting"), 1)))
            by = self.keys.by_columns([segments.column(name) for name in _GROUP], self.buckets)
            yield from cutter.add(segments, by)
        yield from cutter.close()

    def _reassemble(self, batches: Batches) -> Batches:
        begin_task()
        bucket = gathered(batches)
        yield from bucket.notes
        others: dict[str, list[pa.Table]] = {"incomplete": [], "computed_segments": []}
        segments = bucket.table("segments", SEGMENTS)
        cutter = Cutter("joined", self._ranges)
        for table in reassembled_rows(segments, self.profile, self.config):
            others["incomplete"].append(incomplete_sets(table))
            others["computed_segments"].append(computed_segments_in(table))
            complete = filtered(table, pc.equal(table.column("outcome"), "complete"))
            first_ids = pc.list_element(complete.column("sds_ids"), 0)
            yield from cutter.add(complete.select(_JOINED.names), self._range_of(complete, first_ids))
        yield from cutter.close()
        for name, tables in others.items():
            if any(table.num_rows for table in tables):
                yield self.files.write(name, bucket.number, pa.concat_tables(tables))

    def _cut_whole(self, names: Sequence[str]) -> Batches:
        cutter = Cutter("whole", self._ranges)
        columns = [*_WHOLE.names, "kind", "segment_hash", "sighting"]
        for rows in self.files.read("sds_messages", names, columns, wanted=_has_whole):
            chosen = pc.and_(are_whole(rows), pc.equal(rows.column("sighting"), 1))
            whole = filtered(rows.select(_WHOLE.names), chosen)
            yield from cutter.add(whole, self._range_of(whole, whole.column("message_id")))
        yield from cutter.close()

    def _deliver(self, batches: Batches) -> Batches:
        begin_task()
        bucket = gathered(batches)
        yield from bucket.notes
        if not bucket.tables:
            return
        whole, joined = bucket.table("whole", _WHOLE), bucket.table("joined", _JOINED)
        messages = pa.concat_tables([whole_messages(whole), joined_messages(joined)])
        for part, table in enumerate(in_order(messages)):
            yield self.files.write("delivered", bucket.number, table, part)

    def _range_of(self, rows: pa.Table, ids: pa.ChunkedArray) -> NDArray[np.uint16]:
        return range_of(self.bounds, rows.column("channel_id"), rows.column("lamport"), ids)


def _has_segments(group: RowGroup) -> bool:
    return group.nulls("segment_hash") < group.rows


def _has_whole(group: RowGroup) -> bool:
    return group.nulls("segment_hash") > 0
