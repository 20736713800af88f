"""The job that puts messages in order: ``sds_ordered``, sorted, by ranges of its channels.

::

    tasks over files of sds_messages: logs -------------------------+
    tasks over files of missing_messages: what is absent            +-> by range of (channel, timestamp, id): the table
    tasks over files of computed_segments: what is absent as well --+

Most channels are whole in one range, and its task orders them. The log of a split channel with gaps or broken clocks
goes to the range in which the channel begins, if it fits there. If it does not, or if the channel has neither, each
range numbers its part; the job before counted the messages of each. No contents are read.

Its notes are those of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.exchange import BLOBS, Batches, Cutter, begin_task, exchanged, filtered, gathered
from fairway.pipeline.run.hearing import SplitChannel
from fairway.pipeline.run.ranges import FIRST_CLOCK, Place, range_of
from fairway.pipeline.run.shares import shared_out
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED, ChannelPart, channel_logs
from fairway.pipeline.stages.sds_ordered import COMPUTED_COLUMNS, LOGGED_COLUMNS, absent_of, computed_in, logged_in
from fairway.pipeline.tables.files import TableFiles

WRITTEN: Final = ("sds_ordered",)
"""The tables that the job writes."""

_READ: Final = {
    "sds_messages": (*LOGGED_COLUMNS, "sighting"),
    "computed_segments": COMPUTED_COLUMNS,
    "missing_messages": ("channel_id", "message_id", "first_cited_ns"),
}
"""The columns of each table that are read."""

_Cut = tuple[str, pa.Table, NDArray[np.uint16]]
"""A kind, rows of it, and the range that each goes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """What the tasks of the job know."""

    files: TableFiles
    bounds: Sequence[Place]
    split: Mapping[str, SplitChannel]
    """By name, all channels whose content messages are in several ranges."""
    max_channel_bytes: int

    def frame(self, spark: SparkSession, names: Mapping[str, Sequence[str]], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``names`` has the files of each table that is read."""
        places = [(table, name) for table in _READ for name in names[table]]
        rows = shared_out(spark, places, tasks, self._cut)
        return exchanged(rows, self._ranges).mapInArrow(self._order, BLOBS)

    @property
    def _ranges(self) -> int:
        return len(self.bounds) + 1

    def _cut(self, places: Sequence[tuple[str, str]]) -> Batches:
        cutters = {kind: Cutter(kind, self._ranges) for kind in ("logged", "absent")}
        for table, name in places:
            for kind, rows, ranges in self._found(table, name):
                yield from cutters[kind].add(rows, ranges)
        for cutter in cutters.values():
            yield from cutter.close()

    def _found(self, table: str, name: str) -> Iterator[_Cut]:
        if table == "sds_messages":
            for rows in self.files.read(table, [name], _READ[table]):
                yield from self._logged(rows)
        else:
            absent = absent_of if table == "missing_messages" else computed_in
            for rows in self.files.read(table, [name], _READ[table]):
                yield from self._absent(absent(rows))

    def _logged(self, sds_messages: pa.Table) -> Iterator[_Cut]:
        chosen = pc.and_(pc.equal(sds_messages.column("kind"), "content"), pc.equal(sds_messages.column("sighting"), 1))
        logged = logged_in(filtered(sds_messages.select(LOGGED_COLUMNS), chosen))
        ranges = self._range_of(logged, logged.column("message_id"))
        is_gathered = self._are_in(logged, self._gathered)
        ranges[is_gathered] = self._first_range_of(logged.select(["channel_id"]).filter(pa.array(is_gathered)))
        # Where nothing is wrong, a part of a channel needs no more than the number of its first message.
        is_in_order = self._are_in(logged, [name for name, channel in self.split.items() if not channel.is_troubled])
        place = LOGGED.get_field_index("parents")
        for chosen in (is_in_order, ~is_in_order):
            some = filtered(logged, chosen)
            if chosen is is_in_order:
                some = some.set_column(place, LOGGED.field(place), pa.nulls(some.num_rows, LOGGED.field(place).type))
            yield "logged", some, ranges[chosen]

    def _absent(self, absent: pa.Table) -> Iterator[_Cut]:
        is_large = self._are_in(absent, self._large)
        others = absent.filter(pa.array(~is_large))
        yield "absent", others, self._first_range_of(others)
        # Every part of a channel that is not computed counts the missing messages that it cites.
        large = absent.filter(pa.array(is_large & pc.is_null(absent.column("told_by")).to_numpy()))
        for name in large.column("channel_id").unique().to_pylist():
            own = large.filter(pc.equal(large.column("channel_id"), name))
            for number in self.split[name].counts:
                yield "absent", own, np.full(own.num_rows, number, np.uint16)

    def _order(self, batches: Batches) -> Batches:
        begin_task()
        bucket = gathered(batches)
        yield from bucket.notes
        if not bucket.tables:
            return
        number = bucket.number
        log = channel_logs(
            bucket.table("logged", LOGGED),
            bucket.table("absent", ABSENT),
            max_channel_bytes=self.max_channel_bytes,
            parts=self._parts(number),
        )
        if log.num_rows:
            yield self.files.write("sds_ordered", number, log)

    def _parts(self, number: int) -> dict[str, ChannelPart]:
        """Return the channels of which a range has a part of the log."""
        return {
            name: ChannelPart(before=channel.before(number), is_troubled=channel.is_troubled)
            for name, channel in self.split.items()
            if number in channel.counts and name not in self._gathered
        }

    @property
    def _gathered(self) -> list[str]:
        """Return the split channels whose logs are made as a whole."""
        limit = self.max_channel_bytes
        return [name for name, channel in self.split.items() if channel.is_troubled and channel.log_bytes <= limit]

    @property
    def _large(self) -> list[str]:
        """Return the split channels whose logs cannot be made as a whole."""
        limit = self.max_channel_bytes
        return [name for name, channel in self.split.items() if channel.is_troubled and channel.log_bytes > limit]

    def _range_of(self, rows: pa.Table, ids: pa.ChunkedArray) -> NDArray[np.uint16]:
        return range_of(self.bounds, rows.column("channel_id"), rows.column("lamport"), ids)

    def _first_range_of(self, rows: pa.Table) -> NDArray[np.uint16]:
        """Return the range in which the channel of each row begins."""
        clocks = pa.chunked_array([pa.array(np.full(rows.num_rows, FIRST_CLOCK))])
        nothing = pa.chunked_array([pa.repeat("", rows.num_rows)])
        return range_of(self.bounds, rows.column("channel_id"), clocks, nothing)

    @staticmethod
    def _are_in(rows: pa.Table, names: Sequence[str]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = pc.is_in(
            rows.column("channel_id"), value_set=pa.array(names, pa.string())
        ).to_numpy()
        return found
