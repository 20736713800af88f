"""`grow`: adds new rows of the sources to the tables of a finished run, in this process and without Spark.

::

    new rows -> messages -> segments, citations -> logs -> figures: a `TableChange` of each table
             -> files of added rows, new files for those with removed rows -> a version of each table

The rules are those of the stages, applied to the new rows and the old rows that they affect. If this is impossible, or
costs about as much as a whole run, `WholeRunNeeded` is raised, and the tables stay unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from sys import maxsize
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.exchange import filtered, notes_of
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import Location
from fairway.pipeline.run.folder import HeldRun, RunFolder, TableResult
from fairway.pipeline.run.growth.channels import heard_changes, segment_changes
from fairway.pipeline.run.growth.figures import balance_change, figure_changes
from fairway.pipeline.run.growth.held_rows import HeldRows, RemovedRows, TableChange
from fairway.pipeline.run.growth.logs import log_changes
from fairway.pipeline.run.growth.messages import MessageChanges, message_changes
from fairway.pipeline.run.growth.topics import grown_topics
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.ingesting import of_channels
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.summary import RunSummary, balance_from, balance_json, balance_of
from fairway.pipeline.run.topics import CountedTopics
from fairway.pipeline.stages.channel_log import ROW_BYTES
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables.delta import TableFile
from fairway.pipeline.tables.files import TableFiles, told_file

MOST_GROWN: Final = 0.2
"""Largest share of the rows of a run to add or replace; with more, a whole run is cheaper."""
MOST_ROWS: Final = 1_000_000
"""Most rows to add or replace, whatever their share: all of them are in memory."""
_STATISTICS: Final = "statistics"
_READ: Final = "read"
_TOPICS: Final = "topics"
_OF_A_LOG: Final = ("history", "repair", "envelope")
"""Parts of ``bandwidth`` that are at least as large as the ids and citations of a channel."""

NewRows = Callable[[HeldRows, int, Callable[[pa.Table], pa.Table]], pa.Table]
"""Function that returns the new rows, from ``waku_messages``, the limit of new rows, and the filter of wanted rows."""


def grow(
    folder: RunFolder,
    new: NewRows,
    options: RunOptions,
    keys: ChannelKeys | None,
    *,
    stores: Sequence[str],
    most_grown: float = MOST_GROWN,
) -> RunSummary:
    """Add new rows to the finished run of a folder, and return the summary.

    ``new`` returns the new rows, ``stores`` are the names of all stores that were read.

    Raises `WholeRunNeeded` if a whole run is needed; the tables are then unchanged.
    """
    began_s = time.monotonic()
    run = folder.held
    assert run is not None, "only a finished run grows"
    growth = _Growth.of(folder.place, run, options, keys)
    left = growth.most_rows(most_grown)
    fresh = new(growth.held["waku_messages"], left, growth.of_channels)
    messages = growth.messages(fresh)
    topics = grown_topics(growth.topics, messages.claims, growth.held["sds_messages"])
    changes = growth.changes(messages, stores)
    if max(change.removed.num_rows for change in changes.values()) > left:
        raise WholeRunNeeded("more rows would be replaced than pays")
    seconds = round(time.monotonic() - began_s, 3)
    results = {name: growth.written(change, run.results[name], seconds) for name, change in changes.items()}
    terms = _added(run.manifest["jobs"][_STATISTICS], balance_change(changes))
    balance = balance_of(terms, {name: result.rows for name, result in results.items()})
    read = run.manifest["jobs"][_READ] | {_TOPICS: topics.as_json()}
    told = {"balance": balance_json(balance), "seconds": seconds}
    folder.end_grown(results.values(), {_STATISTICS: terms, _READ: read}, told)
    return RunSummary(
        folder=folder.place,
        tables=tuple(results[table.name] for table in TABLES),
        balance=balance,
        seconds=round(time.monotonic() - began_s, 3),
        resumed=0,
        mode="grown",
        new_rows=fresh.num_rows,
    )


def unchanged(folder: RunFolder) -> RunSummary:
    """Return the summary of the finished run of a folder, without changes."""
    run = folder.held
    assert run is not None, "only a finished run is left as it is"
    tables = tuple(run.results[table.name] for table in TABLES)
    return RunSummary(
        folder=folder.place,
        tables=tables,
        balance=balance_from(run.manifest["balance"]),
        seconds=0.0,
        resumed=len(tables),
        mode="unchanged",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """A finished run to which new rows are added."""

    held: Mapping[str, HeldRows]
    files: TableFiles
    options: RunOptions
    keys: ChannelKeys | None
    topics: CountedTopics
    rows: int
    """Rows of ``waku_messages``."""

    @classmethod
    def of(cls, place: Location, run: HeldRun, options: RunOptions, keys: ChannelKeys | None) -> _Growth:
        if options.blooms:
            raise WholeRunNeeded("the evidence of bloom filters (--blooms) is made from whole channels")
        files = TableFiles(root=place.path, filesystem=place.filesystem)
        held = {name: HeldRows(files=files, name=name, names=result.names) for name, result in run.results.items()}
        topics = run.manifest["jobs"].get(_READ, {}).get(_TOPICS)
        if topics is None or not topics["complete"]:
            raise WholeRunNeeded("it is not known which channels in the folder have messages on several topics")
        rows = run.results["waku_messages"].rows
        return cls(
            held=held,
            files=files,
            options=options,
            keys=keys,
            topics=CountedTopics.from_json([topics]),
            rows=rows,
        )

    def most_rows(self, most_grown: float) -> int:
        """Return the largest number of new rows, and of rows to replace in each table."""
        return maxsize if isinf(most_grown) else min(MOST_ROWS, int(most_grown * self.rows))

    def of_channels(self, messages: pa.Table) -> pa.Table:
        """Return the messages of the wanted channels."""
        return of_channels(messages, self.options.selection.channels, self._decoder())

    def messages(self, fresh: pa.Table) -> MessageChanges:
        """Return the changes of the tables of messages by new rows."""
        return message_changes(self.held, fresh, self._decoder(), self.topics.decided())

    def _decoder(self) -> BatchDecoder:
        options = self.options
        return BatchDecoder(options.profile, None, self.keys, channel_topics=options.channel_topics)

    def changes(self, messages: MessageChanges, stores: Sequence[str]) -> dict[str, TableChange]:
        """Return the change of each table."""
        options, held = self.options, self.held
        config = replace(ARCHIVE_SEGMENTATION, parity_rate=options.parity_rate)
        found = {**messages.tables, **segment_changes(held, messages, self._decoder(), options.profile, config)}
        heard, citing = heard_changes(held, found["sds_messages"], found["computed_segments"])
        found |= heard
        found |= figure_changes(held, found, epoch_ms=options.epoch_ms, rate_limit=options.rate_limit, stores=stores)
        self._refuse_large_channels(found["bandwidth"].added, found["channel_stats"].added)
        found["sds_ordered"] = log_changes(held, found, citing, options.max_channel_bytes)
        return found

    def _refuse_large_channels(self, bandwidth: pa.Table, channel_stats: pa.Table) -> None:
        """Raise if a changed log may be too large to order as a whole: only a whole run orders by ranges."""
        channels = channel_stats["channel_id"].combine_chunks()
        # Repeats do not change the log of a channel.
        parts = bandwidth.filter(pc.is_in(bandwidth["channel_id"], value_set=channels))
        parts = parts.filter(pc.is_in(parts["part"], value_set=pa.array(_OF_A_LOG)))
        places = pc.index_in(parts["channel_id"], value_set=channels).to_numpy()
        sizes = channel_stats["content"].to_numpy() * ROW_BYTES
        np.add.at(sizes, places, parts["bytes"].to_numpy())
        if (sizes > self.options.max_channel_bytes).any():
            raise WholeRunNeeded("a channel that grew may be too large to be ordered as a whole")

    def written(self, change: TableChange, before: TableResult, seconds: float) -> TableResult:
        """Write the changed files of a table, and return the table."""
        name = before.name
        gone = RemovedRows.of(change.removed)
        parts = [part for part in before.parts if part.name not in gone.by_file]
        for file in gone.by_file:
            parts += self._without(name, file, gone)
        if change.added.num_rows:
            parts.append(self._file(name, change.added))
        return TableResult.of(name, parts, seconds)

    def _without(self, name: str, file: str, gone: RemovedRows) -> Iterator[TableFile]:
        """Write a file again without its removed rows."""
        start, kept = 0, []
        for rows in self.files.read(name, [file]):
            counts = gone.counting(file, start, rows.num_rows)
            start += rows.num_rows
            kept.append(filtered(rows, counts))
        rest = pa.concat_tables(kept)
        if rest.num_rows:
            yield self._file(name, rest)

    def _file(self, name: str, rows: pa.Table) -> TableFile:
        (told,) = notes_of([self.files.write(name, 0, rows)["blob"][0].as_py()])
        return told_file(told)


def _added(terms: Mapping[str, Any], more: Mapping[str, int]) -> dict[str, Any]:
    return {name: count + more.get(name, 0) for name, count in terms.items()}
