"""`grow`: takes what is new in the sources of a finished run into its tables, in this process and without Spark.

::

    new rows -> messages -> segments, citations -> logs -> figures: a `TableChange` of each table
             -> files of what comes, lists of what goes -> the manifest, which makes all of it count in one step

The rules are those of the stages, over the new rows and the old ones that they touch. What cannot be done so, or would
cost about as much, raises `WholeRunNeeded`, and the tables stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from sys import maxsize
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.exchange import notes_of
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import Location
from fairway.pipeline.run.folder import HeldRun, RunFolder, TableResult
from fairway.pipeline.run.growth.channels import heard_changes, segment_changes
from fairway.pipeline.run.growth.figures import balance_change, figure_changes
from fairway.pipeline.run.growth.held_rows import HeldRows, TableChange
from fairway.pipeline.run.growth.logs import log_changes
from fairway.pipeline.run.growth.messages import MessageChanges, message_changes
from fairway.pipeline.run.growth.new_rows import new_rows
from fairway.pipeline.run.growth.topics import grown_topics
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.ingesting import at_sources, of_channels
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import SORTED
from fairway.pipeline.run.removed_rows import RemovedRows
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.run.summary import RunSummary, balance_from, balance_json, balance_of
from fairway.pipeline.run.table_files import TableFiles
from fairway.pipeline.run.topics import CountedTopics
from fairway.pipeline.stages.channel_log import ROW_BYTES
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.tables import TABLES
from fairway.wire.segment import MAX_SEGMENTS

MOST_GROWN: Final = 0.2
"""The share of the rows of a whole run that may come or be replaced after it: with more, another one costs less."""
_WHOLE_ROWS: Final = "whole_rows"
_STATISTICS: Final = "statistics"
_READ: Final = "read"
_TOPICS: Final = "topics"
_OF_A_LOG: Final = ("history", "repair", "envelope")
"""Parts of ``bandwidth`` that are at least as large as the ids and citations of a channel."""


def grow(
    folder: RunFolder,
    sources: Sequence[RunSource],
    options: RunOptions,
    keys: ChannelKeys | None,
    *,
    most_grown: float = MOST_GROWN,
) -> RunSummary:
    """Add what is new to the finished run that a folder holds, and return the summary.

    Raises `WholeRunNeeded` if a whole run is needed; the tables are as they were.
    """
    began_s = time.monotonic()
    run = folder.held
    assert run is not None, "only a finished run grows"
    growth = _Growth.of(folder.place, run, options, keys)
    left = growth.most_rows(most_grown)
    given = list(zip(sources, folder.described_sources, strict=True))
    selection = at_sources(options.selection, keys)
    fresh = new_rows(run.manifest["sources"], given, growth.held["waku_messages"], left, selection, growth.of_channels)
    messages = growth.messages(fresh)
    topics = grown_topics(growth.topics, messages.claims, growth.held["sds_messages"])
    changes = growth.changes(messages, [source.label for source in sources if source.label])
    if sum(change.removed.num_rows for change in (changes["waku_messages"], changes["sds_messages"])) > left:
        raise WholeRunNeeded("more rows would be replaced than pays")
    seconds = round(time.monotonic() - began_s, 3)
    results = {name: growth.written(change, run.results[name], seconds) for name, change in changes.items()}
    terms = _added(run.manifest["jobs"][_STATISTICS], balance_change(changes))
    balance = balance_of(terms, {name: result.rows for name, result in results.items()})
    told = {"balance": balance_json(balance), "seconds": seconds, _WHOLE_ROWS: growth.whole_rows}
    read = run.manifest["jobs"][_READ] | {_TOPICS: topics.as_json()}
    folder.end_grown(results.values(), {_STATISTICS: terms, _READ: read}, told)
    tidy(folder, run.results)
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
    """Return the summary of the finished run that a folder holds, as it is."""
    run = folder.held
    assert run is not None, "only a finished run is left as it is"
    tidy(folder, run.results)
    tables = tuple(run.results[table.name] for table in TABLES)
    return RunSummary(
        folder=folder.place,
        tables=tables,
        balance=balance_from(run.manifest["balance"]),
        seconds=0.0,
        resumed=len(tables),
        mode="unchanged",
    )


def tidy(folder: RunFolder, before: Mapping[str, TableResult]) -> None:
    """Remove what is no part of the tables; what was before the last growth stays, for those who read it now."""
    files = TableFiles(root=folder.place.path, filesystem=folder.place.filesystem)
    for name, result in folder.results.items():
        if result.names:
            files.remove_others(name, [*result.names, result.removed, before[name].removed])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """A finished run that takes new rows in."""

    held: Mapping[str, HeldRows]
    files: TableFiles
    options: RunOptions
    keys: ChannelKeys | None
    topics: CountedTopics
    rows: int
    """Rows of ``waku_messages``."""
    whole_rows: int
    """How many these were when the run was made as a whole."""

    @classmethod
    def of(cls, place: Location, run: HeldRun, options: RunOptions, keys: ChannelKeys | None) -> _Growth:
        if options.blooms:
            raise WholeRunNeeded("the evidence of bloom filters (--blooms) is made from whole channels")
        if options.format != "parquet":
            raise WholeRunNeeded(f"tables in the format {options.format} do not grow")
        files = TableFiles(root=place.path, filesystem=place.filesystem)
        held = {
            name: HeldRows(
                files=files,
                name=name,
                names=result.names,
                removed=RemovedRows.read(files.filesystem, files.folder_of(name), result.removed),
            )
            for name, result in run.results.items()
        }
        if held.keys() != {table.name for table in TABLES} or not all(rows.names for rows in held.values()):
            raise WholeRunNeeded("the tables in the folder are not those of this fairway")
        topics = run.manifest["jobs"].get(_READ, {}).get(_TOPICS)
        if topics is None or not topics["complete"]:
            raise WholeRunNeeded("it is not known which channels in the folder have messages on several topics")
        rows = run.results["waku_messages"].rows
        whole_rows = run.manifest.get(_WHOLE_ROWS, rows)
        return cls(
            held=held,
            files=files,
            options=options,
            keys=keys,
            topics=CountedTopics.from_json([topics]),
            rows=rows,
            whole_rows=whole_rows,
        )

    def most_rows(self, most_grown: float) -> int:
        """Return how many rows may still come until a whole run is due."""
        if isinf(most_grown):
            return maxsize
        replaced = max(len(rows.removed) for rows in self.held.values())
        return int(most_grown * self.whole_rows) - (self.rows - self.whole_rows) - replaced

    def of_channels(self, messages: pa.Table) -> pa.Table:
        """Return the messages of the channels that are wanted."""
        return of_channels(messages, self.options.selection.channels, self._decoder())

    def messages(self, fresh: pa.Table) -> MessageChanges:
        """Return what new rows do to the tables of messages."""
        return message_changes(self.held, fresh, self._decoder(), self.topics.decided())

    def _decoder(self) -> BatchDecoder:
        options = self.options
        return BatchDecoder(options.profile, None, self.keys, MAX_SEGMENTS, channel_topics=options.channel_topics)

    def changes(self, messages: MessageChanges, stores: Sequence[str]) -> dict[str, TableChange]:
        """Return how each table changes."""
        options, held = self.options, self.held
        config = replace(ARCHIVE_SEGMENTATION, parity_rate=options.parity_rate)
        found = {**messages.tables, **segment_changes(held, messages, options.profile, config)}
        heard, citing = heard_changes(held, messages, found["computed_segments"])
        found |= heard
        found |= figure_changes(held, found, epoch_ms=options.epoch_ms, rate_limit=options.rate_limit, stores=stores)
        self._refuse_large_channels(found["bandwidth"].added, found["channel_stats"].added)
        found["sds_ordered"] = log_changes(held, messages, found, citing, options.max_channel_bytes)
        return found

    def _refuse_large_channels(self, bandwidth: pa.Table, channel_stats: pa.Table) -> None:
        """Raise if a log that changes may be too large to be ordered as a whole: such ones are made in ranges."""
        parts = bandwidth.filter(pc.is_in(bandwidth["part"], value_set=pa.array(_OF_A_LOG)))
        places = pc.index_in(parts["channel_id"], value_set=channel_stats["channel_id"].combine_chunks()).to_numpy()
        sizes = channel_stats["content"].to_numpy() * ROW_BYTES
        np.add.at(sizes, places, parts["bytes"].to_numpy())
        if (sizes > self.options.max_channel_bytes).any():
            raise WholeRunNeeded("a channel that grew may be too large to be ordered as a whole")

    def written(self, change: TableChange, before: TableResult, seconds: float) -> TableResult:
        """Write what changes of a table, and return what the manifest says of it then."""
        name, held = before.name, self.held[before.name]
        if not change.added.num_rows and not change.removed.num_rows:
            return before
        result = replace(before, rows=before.rows + change.rows, seconds=seconds)
        if change.added.num_rows:
            (told,) = notes_of([self.files.write(name, 0, change.added)["blob"][0].as_py()])
            names, size = (*before.names, told["file"]), before.bytes + told["bytes"]
            result = replace(result, names=names, files=len(names), bytes=size)
            if name in SORTED:
                result = replace(result, runs=(*(before.runs or (len(before.names),)), 1))
        if change.removed.num_rows:
            removed = held.removed.and_these(change.removed)
            result = replace(result, removed=removed.write(self.files.filesystem, self.files.folder_of(name)))
        return result


def _added(terms: Mapping[str, Any], more: Mapping[str, int]) -> dict[str, Any]:
    return {name: count + more.get(name, 0) for name, count in terms.items()}
