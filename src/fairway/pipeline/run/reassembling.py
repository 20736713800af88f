"""The job that delivers messages, from ``sds_messages`` and ``contents``: whole ones, and reassembled segments.

::

    tasks over files of sds_messages -> which sets of segments are apart
                                                               |
    tasks over files of whole messages ------------------------+
    tasks over files of segments: those of most sets ----------+-> by range of (channel, timestamp, id): delivered
                                  of sets that are apart       |
                                    |                          |
                                    +-> by (channel, sender,   |
                                         hash of the payload)  |
                                            |                  |
                                            +- put together ---+

A set of segments is apart if its segments are in several ranges. All others are reassembled in the task of their range,
so that their payloads are shuffled once instead of twice.

Its notes are those of files. The tasks that reassemble also write ``incomplete`` and ``computed_segments``. A task
holds a bucket of segments, in a file if it is large, and the messages of a range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys, Hashes, found_in
from fairway.pipeline.exchange import (
    BLOBS,
    Batches,
    Bucket,
    Cutter,
    cut,
    exchanged,
    filtered,
    gathered,
    in_tasks,
    note,
    shared_out,
)
from fairway.pipeline.ranges import Place, range_of, split_channels
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
from fairway.pipeline.stages.sds_messages import WITH_CONTENT
from fairway.pipeline.tables.files import RowGroup, TableFiles

WRITTEN: Final = ("delivered", "incomplete", "computed_segments")
"""The tables that the job writes."""

MOST_APART: Final = 1_000_000
"""Sets of segments apart that each task can hold: 8 MB. With more, all possibly split sets are grouped by set."""
_SEGMENTS: Final = "segments"
"""The kind of blobs of segments (`SEGMENTS`)."""
_PLACES: Final = "places"
"""The kind of blobs of the ranges of segments, and of the sets apart."""
_PLACED: Final = pa.schema([("set", pa.uint64()), ("least", pa.uint16()), ("most", pa.uint16())])
_APART: Final = pa.schema([("set", pa.uint64())])
_GROUP: Final = ("channel_id", "sender_id", "segment_hash")
_WHOLE: Final = pa.schema([exact_schema(WITH_CONTENT).field(name) for name in WHOLE_COLUMNS])
_JOINED: Final = pa.schema([exact_schema(REASSEMBLED).field(name) for name in JOINED_COLUMNS])


def _has_segments(group: RowGroup) -> bool:
    return group.nulls("segment_hash") < group.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassembling:
    """The inputs of the tasks of the job."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    bounds: Sequence[Place]
    """The ends of the ranges of ``delivered``."""
    profile: Profile | None
    config: SegmentationConfig
    apart_buckets: int
    """Buckets for finding the sets apart first; with 0, all possibly split sets are grouped by set."""

    def frame(self, spark: SparkSession, sds_messages: Sequence[str], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``sds_messages`` are the files of that table."""
        apart = self._sets_apart(spark, sds_messages)
        ranged = shared_out(spark, sds_messages, tasks, partial(self._cut_by_range, apart))
        if apart is None or len(apart):
            # Known sets apart are few.
            buckets = self.buckets if apart is None else self.apart_buckets
            segments = shared_out(spark, sds_messages, buckets, partial(self._cut_by_group, apart, buckets))
            ranged = ranged.unionAll(in_tasks(exchanged(segments, buckets), self._reassemble, BLOBS))
        return in_tasks(exchanged(ranged, self._ranges), self._deliver, BLOBS)

    @property
    def _ranges(self) -> int:
        return len(self.bounds) + 1

    @property
    def _split(self) -> list[str]:
        return split_channels(self.bounds)

    def _sets_apart(self, spark: SparkSession, sds_messages: Sequence[str]) -> Hashes | None:
        """Return the hashes of the sets of segments apart, ascending; None if too many or unknown.

        Only channels in several ranges have such sets.
        """
        if not self._split:
            return np.array([], np.uint64)
        if not self.apart_buckets:
            return None
        places = shared_out(spark, sds_messages, self.apart_buckets, self._cut_places)
        most = MOST_APART // self.apart_buckets
        found = in_tasks(exchanged(places, self.apart_buckets), lambda blobs: _apart(blobs, most), BLOBS)
        bucket = gathered(found.toArrow().to_batches())
        return None if bucket.notes else np.sort(bucket.table(_PLACES, _APART)["set"].to_numpy())

    def _cut_places(self, names: Sequence[str]) -> Batches:
        """Cut the ranges of the segments of possibly split sets."""
        cutter = Cutter(_PLACES, self.apart_buckets)
        columns = [*_GROUP, "lamport", "message_id"]
        for rows in self.files.read("sds_messages", names, columns, wanted=_has_segments):
            is_one = pc.and_(pc.is_valid(rows.column("segment_hash")), self._are_split(rows))
            segments = rows.filter(is_one)
            sets = self._sets(segments)
            # The first id of a reassembled message may not be that of its least timestamp.
            nothing = pa.chunked_array([pa.repeat("", segments.num_rows)])
            least, most = (self._segment_range_of(segments, ids) for ids in (nothing, segments.column("message_id")))
            yield from cutter.add(pa.table([sets, least, most], _PLACED), self.keys.by_number(sets, self.apart_buckets))
        yield from cutter.close()

    def _sets(self, segments: pa.Table) -> Hashes:
        return self.keys.hashes([segments.column(name) for name in _GROUP])

    def _are_apart(self, apart: Hashes | None, segments: pa.Table) -> NDArray[np.bool_]:
        if apart is None:
            are_split: NDArray[np.bool_] = self._are_split(segments).to_numpy()
            return are_split
        return found_in(apart, self._sets(segments))[0]

    def _cut_by_range(self, apart: Hashes | None, names: Sequence[str]) -> Batches:
        """Cut whole messages, and the segments of sets not apart, by range."""
        whole = Cutter("whole", self._ranges)
        for messages in self._messages(names, ("kind", "segment_hash"), are_whole, _WHOLE.names):
            yield from whole.add(messages, self._range_of(messages, messages.column("message_id")))
        yield from whole.close()
        cutter = Cutter(_SEGMENTS, self._ranges)

        def are_own(rows: pa.Table) -> NDArray[np.bool_]:
            is_segment: NDArray[np.bool_] = rows.column("segment_hash").is_valid().to_numpy()
            return is_segment & ~self._are_apart(apart, rows) if is_segment.any() else is_segment

        for rows in self._messages(names, _GROUP, are_own, SEGMENTS.names):
            segments = segments_in(rows)
            yield from cutter.add(segments, self._segment_range_of(segments, segments.column("message_id")))
        yield from cutter.close()

    def _cut_by_group(self, apart: Hashes | None, buckets: int, names: Sequence[str]) -> Batches:
        """Cut the segments of sets apart by set."""
        cutter = Cutter(_SEGMENTS, buckets)

        def are_own(rows: pa.Table) -> NDArray[np.bool_]:
            is_segment: NDArray[np.bool_] = rows.column("segment_hash").is_valid().to_numpy()
            return is_segment & self._are_apart(apart, rows) if is_segment.any() else is_segment

        for rows in self._messages(names, _GROUP, are_own, SEGMENTS.names):
            segments = segments_in(rows)
            yield from cutter.add(segments, self.keys.by_number(self._sets(segments), buckets))
        yield from cutter.close()

    def _messages(
        self,
        names: Sequence[str],
        by: Sequence[str],
        chosen: Callable[[pa.Table], NDArray[np.bool_] | pa.ChunkedArray],
        columns: Sequence[str],
    ) -> Iterator[pa.Table]:
        """Yield the messages chosen by some columns, with their contents; few other contents are read."""
        narrow = [name for name in columns if name != "content"]
        for name in names:
            mask = np.asarray(chosen(pa.concat_tables(self.files.read("sds_messages", [name], by))))
            if not mask.any():
                continue
            messages = pa.concat_tables(self.files.read("sds_messages", [name], narrow))
            ends = [0]

            def has_some(group: RowGroup, mask: NDArray[np.bool_] = mask, ends: list[int] = ends) -> bool:
                ends.append(ends[-1] + group.rows)
                return bool(mask[ends[-2] : ends[-1]].any())

            for contents in self.files.read("contents", [name], wanted=has_some):
                own = messages.slice(ends[-2], contents.num_rows).append_column("content", contents["content"])
                yield filtered(own.select(columns), mask[ends[-2] : ends[-1]])

    def _are_split(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(rows.column("channel_id"), value_set=pa.array(self._split, pa.string()))

    def _reassemble(self, batches: Batches) -> Batches:
        bucket = gathered(batches)
        cutter = Cutter("joined", self._ranges)
        notes: list[pa.RecordBatch] = []
        for joined in self._joined(bucket, notes):
            first_ids = pc.list_element(joined.column("sds_ids"), 0)
            yield from cutter.add(joined, self._range_of(joined, first_ids))
        yield from cutter.close()
        yield from notes

    def _joined(self, bucket: Bucket, notes: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the messages of the segments of a bucket; write the other tables, and add the notes of these."""
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

    def _segment_range_of(self, segments: pa.Table, ids: pa.ChunkedArray) -> NDArray[np.uint16]:
        """Return the range of each segment; a message of ephemeral segments has the timestamp 0."""
        return range_of(self.bounds, segments.column("channel_id"), pc.fill_null(segments.column("lamport"), 0), ids)


def _apart(batches: Batches, most: int) -> Batches:
    """Yield the sets of a bucket that are apart, or a note that there are too many."""
    places = gathered(batches).table(_PLACES, _PLACED)
    ranges = places.group_by("set", use_threads=False).aggregate([("least", "min"), ("most", "max")])
    found = ranges.filter(pc.not_equal(ranges["least_min"], ranges["most_max"])).select(["set"])
    if found.num_rows > most:
        yield note(too_many=found.num_rows)
        return
    yield from cut(found, np.zeros(found.num_rows, np.uint16), 1, _PLACES)
