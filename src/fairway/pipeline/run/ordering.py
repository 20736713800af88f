"""The job that puts messages in order: ``sds_ordered``, sorted, by ranges of its channels.

::

    tasks over files of sds_messages: logs -------------------------+
    tasks over files of missing_messages: absent messages           +-> by range of (channel, timestamp, id): the table
    tasks over files of computed_segments: absent messages, too ----+

Most channels are whole in one range, and its task orders them. In a split channel in order and without gaps, the task
of each range numbers its part. The previous job counted the messages of each range. The parts of a split channel with
gaps go to the task of its first range, which processes them in turn (`carried_logs`). A split channel with broken
clocks goes there as a whole, if it fits. If not, its messages are ``not-computed``. No contents are read.

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

from fairway.pipeline.exchange import (
    BLOBS,
    Batches,
    Bucket,
    Cutter,
    begin_task,
    exchanged,
    filtered,
    gathered_steps,
    in_steps,
    in_tasks,
)
from fairway.pipeline.run.hearing import SplitChannel
from fairway.pipeline.run.ranges import FIRST_CLOCK, Place, range_of
from fairway.pipeline.run.shares import shared_out
from fairway.pipeline.stages.carried_log import carried_logs
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED, ChannelPart, channel_logs
from fairway.pipeline.stages.sds_ordered import COMPUTED_COLUMNS, LOGGED_COLUMNS, absent_of, computed_in, logged_in
from fairway.pipeline.tables.files import TableFiles

WRITTEN: Final = ("sds_ordered",)
"""The tables that the job writes."""

_READ: Final = {
    "sds_messages": LOGGED_COLUMNS,
    "computed_segments": COMPUTED_COLUMNS,
    "missing_messages": ("channel_id", "message_id", "first_cited_ns"),
}
"""The columns of each table that are read."""

_FIRST, _OTHERS, _LAST = range(3)
"""The order of files of one range."""
_Cut = tuple[str, pa.Table, NDArray[np.uint16]]
"""A kind, its rows, and the range of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The inputs of the tasks of the job."""

    files: TableFiles
    bounds: Sequence[Place]
    split: Mapping[str, SplitChannel]
    """All channels whose content messages are in several ranges, by name."""
    max_channel_bytes: int

    def frame(self, spark: SparkSession, names: Mapping[str, Sequence[str]], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``names`` has the files of each table that is read."""
        places = [(table, name) for table in _READ for name in names[table]]
        rows = shared_out(spark, places, tasks, self._cut)
        return in_tasks(exchanged(rows, self._ranges), self._order, BLOBS)

    @property
    def _ranges(self) -> int:
        return len(self.bounds) + 1

    def _cut(self, places: Sequence[tuple[str, str]]) -> Batches:
        steps = self._steps()
        cutters = {kind: Cutter(kind, self._ranges + len(steps)) for kind in ("logged", "absent")}
        for table, name in places:
            for kind, rows, ranges in self._found(table, name):
                yield from in_steps(cutters[kind].add(rows, ranges), steps)
        for cutter in cutters.values():
            yield from in_steps(cutter.close(), steps)

    def _steps(self) -> dict[int, tuple[int, int]]:
        """Return the first range and the step of each part of a carried channel, numbered after all ranges."""
        parts = [(min(channel.counts), number) for channel in self._carried.values() for number in channel.parts]
        return {self._ranges + place: (first, 1 + number) for place, (first, number) in enumerate(parts)}

    @property
    def _carried(self) -> dict[str, SplitChannel]:
        """Return the split channels whose parts one task processes in turn."""
        return {
            name: channel
            for name, channel in self.split.items()
            if (channel.has_gaps or channel.is_disordered) and name not in self._gathered
        }

    def _found(self, table: str, name: str) -> Iterator[_Cut]:
        if table == "sds_messages":
            for rows in self.files.read(table, [name], _READ[table]):
                yield from self._logged(rows)
        else:
            absent = absent_of if table == "missing_messages" else computed_in
            for rows in self.files.read(table, [name], _READ[table]):
                yield from self._absent(absent(rows))

    def _logged(self, sds_messages: pa.Table) -> Iterator[_Cut]:
        logged = logged_in(sds_messages)
        ranges = self._range_of(logged, logged.column("message_id"))
        behind = self._ranges
        for name, channel in self._carried.items():
            own = self._are_in(logged, [name])
            ranges[own] = behind + np.searchsorted(channel.parts, ranges[own])
            behind += len(channel.parts)
        is_gathered = self._are_in(logged, self._gathered)
        ranges[is_gathered] = self._first_range_of(logged.select(["channel_id"]).filter(pa.array(is_gathered)))
        # In a channel in order and without gaps, a part needs only the number of its first message.
        is_in_order = self._are_in(
            logged, [name for name, channel in self.split.items() if not channel.has_gaps and not channel.is_disordered]
        )
        place = LOGGED.get_field_index("parents")
        for chosen in (is_in_order, ~is_in_order):
            some = filtered(logged, chosen)
            if chosen is is_in_order:
                some = some.set_column(place, LOGGED.field(place), pa.nulls(some.num_rows, LOGGED.field(place).type))
            yield "logged", some, ranges[chosen]

    def _absent(self, absent: pa.Table) -> Iterator[_Cut]:
        others = absent.filter(pa.array(~self._are_in(absent, [*self._carried])))
        yield "absent", others, self._first_range_of(others)
        behind = self._ranges
        for name, channel in self._carried.items():
            own = absent.filter(pc.equal(absent.column("channel_id"), name))
            yield "absent", own, np.full(own.num_rows, behind, np.uint16)
            behind += len(channel.parts)

    def _order(self, batches: Batches) -> Batches:
        begin_task()
        steps = gathered_steps(batches)
        yield from steps[0].notes
        parts = [bucket for bucket in steps if bucket.step]
        for bucket in steps:
            if not bucket.step and bucket.tables:
                log = channel_logs(
                    bucket.table("logged", LOGGED),
                    bucket.table("absent", ABSENT),
                    max_channel_bytes=self.max_channel_bytes,
                    parts=self._parts(bucket.number),
                )
                if log.num_rows:
                    yield self.files.write("sds_ordered", bucket.number, log, _OTHERS)
        yield from self._carry(parts)

    def _carry(self, steps: Sequence[Bucket]) -> Batches:
        """Write the parts of a carried channel."""
        if not steps:
            return
        logged = [bucket for bucket in steps if "logged" in bucket.tables]
        absent = pa.concat_tables([ABSENT.empty_table(), *(bucket.table("absent", ABSENT) for bucket in steps)])
        parts = [bucket.tables["logged"] for bucket in logged]
        name = parts[0]["channel_id"][0].as_py()
        logs = carried_logs(parts, absent, is_disordered=self.split[name].is_disordered)
        for bucket, log in zip(logged, logs, strict=True):
            number = bucket.step - 1
            # Earlier channels share its first range, later ones its last range.
            place = _LAST if number == bucket.number else _FIRST
            yield self.files.write("sds_ordered", number, log, place)

    def _parts(self, number: int) -> dict[str, ChannelPart]:
        """Return the channels with a part of the log in a range."""
        return {
            name: ChannelPart(before=channel.before(number))
            for name, channel in self.split.items()
            if number in channel.counts and name not in self._gathered and name not in self._carried
        }

    @property
    def _gathered(self) -> list[str]:
        """Return the split channels whose logs are made as a whole."""
        limit = self.max_channel_bytes
        return [name for name, channel in self.split.items() if channel.is_disordered and channel.log_bytes <= limit]

    def _range_of(self, rows: pa.Table, ids: pa.ChunkedArray) -> NDArray[np.uint16]:
        return range_of(self.bounds, rows.column("channel_id"), rows.column("lamport"), ids)

    def _first_range_of(self, rows: pa.Table) -> NDArray[np.uint16]:
        """Return the first range of the channel of each row."""
        clocks = pa.chunked_array([pa.array(np.full(rows.num_rows, FIRST_CLOCK))])
        nothing = pa.chunked_array([pa.repeat("", rows.num_rows)])
        return range_of(self.bounds, rows.column("channel_id"), clocks, nothing)

    @staticmethod
    def _are_in(rows: pa.Table, names: Sequence[str]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = pc.is_in(
            rows.column("channel_id"), value_set=pa.array(names, pa.string())
        ).to_numpy()
        return found
