"""The job that puts segments together, from ``sds_messages``.

::

    tasks over files of sds_messages: segments -> by (channel, sender, hash of the payload): incomplete,
                                                  computed_segments, and the work table reassembled

Its notes are those of files. A task holds a bucket of segments, in a file if it is large, and the payloads of a few
groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, Batches, Cutter, begin_task, exchanged, filtered, gathered
from fairway.pipeline.run.shares import shared_out
from fairway.pipeline.run.table_files import RowGroup, TableFiles
from fairway.pipeline.stages.delivered import incomplete_sets
from fairway.pipeline.stages.reassembled import SEGMENTS, computed_segments_in, reassembled_rows, segments_in

WRITTEN: Final = ("reassembled", "incomplete", "computed_segments")
"""The tables that the job writes."""

_GROUP: Final = ("channel_id", "sender_id", "segment_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembling:
    """What the tasks of the job know."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    profile: Profile | None
    config: SegmentationConfig

    def frame(self, spark: SparkSession, sds_messages: Sequence[str], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``sds_messages`` are the files of that table."""
        segments = shared_out(spark, sds_messages, tasks, self._cut)
        return exchanged(segments, self.buckets).mapInArrow(self._reassemble, BLOBS)

    def _cut(self, names: Sequence[str]) -> Batches:
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
        for part, table in enumerate(reassembled_rows(segments, self.profile, self.config)):
            yield self.files.write("reassembled", bucket.number, table, part)
            others["incomplete"].append(incomplete_sets(table))
            others["computed_segments"].append(computed_segments_in(table))
        for name, tables in others.items():
            if any(table.num_rows for table in tables):
                yield self.files.write(name, bucket.number, pa.concat_tables(tables))


def _has_segments(group: RowGroup) -> bool:
    return group.nulls("segment_hash") < group.rows
