"""The job that puts messages in order: ``sds_ordered``, sorted, by ranges of its channels.

::

    tasks over files of sds_messages: logs -------------------------+
    tasks over files of missing_messages: absent messages           +-> by range of (channel, timestamp, id): the table
    tasks over files of computed_segments: absent messages, too ----+

Most channels are whole in one range, and its task orders them. In a split channel in order and without gaps, the task
of each range numbers its part. The previous job counted the messages of each range. The task of its first range orders
any other split channel (`ordered_logs`). No contents are read.

Its notes are those of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.exchange import BLOBS, Batches, Cutter, exchanged, filtered, gathered, in_tasks, shared_out
from fairway.pipeline.ranges import FIRST_CLOCK, Place, range_of
from fairway.pipeline.run.hearing import Starts
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED
from fairway.pipeline.stages.ordered_logs import ordered_logs
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The inputs of the tasks of the job."""

    files: TableFiles
    bounds: Sequence[Place]
    split: Mapping[str, Starts | None]
    """All channels whose content messages are in several ranges (`fairway.pipeline.run.hearing.split_facts`)."""
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
        cutters = {kind: Cutter(kind, self._ranges) for kind in ("logged", "absent")}
        for table, name in places:
            for rows in self.files.read(table, [name], _READ[table]):
                if table == "sds_messages":
                    yield from self._cut_logged(cutters["logged"], logged_in(rows))
                else:
                    absent = (absent_of if table == "missing_messages" else computed_in)(rows)
                    yield from cutters["absent"].add(absent, self._first_range_of(absent))
        for cutter in cutters.values():
            yield from cutter.close()

    def _cut_logged(self, cutter: Cutter, logged: pa.Table) -> Batches:
        ranges = range_of(self.bounds, *(logged.column(name) for name in ("channel_id", "lamport", "message_id")))
        is_troubled = self._are_in(logged, [name for name, starts in self.split.items() if starts is None])
        ranges[is_troubled] = self._first_range_of(logged.select(["channel_id"]).filter(pa.array(is_troubled)))
        # In a channel in order and without gaps, a part needs only the number of its first message.
        is_numbered = self._are_in(logged, [*self.split]) & ~is_troubled
        yield from cutter.add(filtered(logged, ~is_numbered), ranges[~is_numbered])
        numbered = logged.filter(pa.array(is_numbered))
        place = LOGGED.get_field_index("parents")
        nothing = pa.nulls(numbered.num_rows, LOGGED.field(place).type)
        yield from cutter.add(numbered.set_column(place, LOGGED.field(place), nothing), ranges[is_numbered])

    def _order(self, batches: Batches) -> Batches:
        bucket = gathered(batches)
        yield from bucket.notes
        logs = ordered_logs(
            bucket.table("logged", LOGGED),
            bucket.table("absent", ABSENT),
            before={name: dict(starts or ()).get(bucket.number, 0) for name, starts in self.split.items()},
            max_bytes=self.max_channel_bytes,
        )
        for part, log in enumerate(log for log in logs if log.num_rows):
            yield self.files.write("sds_ordered", bucket.number, log, part)

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
