"""`grow`: adds new rows of the sources to the tables of a finished run, in this process and without Spark.

::

    new rows -> rows of messages and sets of segments -> all rows of the channels that they touch
             -> files of added rows, new files for those with removed rows -> a version of each table

The rules are those of the stages. If growth is impossible, or costs about as much as a whole run, `WholeRunNeeded` is
raised, and the tables stay unchanged.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isinf
from sys import maxsize
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.exchange import notes_of
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.folder import HeldRun, RunFolder, TableResult
from fairway.pipeline.run.growth import WholeRunNeeded
from fairway.pipeline.run.growth.channels import CHANNEL_TABLES, channel_tables
from fairway.pipeline.run.growth.held_rows import HeldRows, TableChange, everything, of_channels
from fairway.pipeline.run.growth.messages import message_changes
from fairway.pipeline.run.growth.segments import segment_changes
from fairway.pipeline.run.growth.topics import grown_topics
from fairway.pipeline.run.ingesting import of_channels as of_wanted_channels
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.summary import RunSummary, balance_from, balance_json, balance_of
from fairway.pipeline.run.summing import balance_terms_of
from fairway.pipeline.run.topics import CountedTopics
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.stages.store_completeness import completeness, holdings, named_stores
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables.delta import TableFile
from fairway.pipeline.tables.files import TableFiles, told_file

MOST_GROWN: Final = 0.2
"""Largest share of new rows; with more, a whole run is cheaper."""
MOST_NEW_ROWS: Final = 1_000_000
"""Most new rows, whatever their share: all of them are in memory."""
MOST_TOUCHED_ROWS: Final = 2_000_000
"""Most SDS messages in channels with new rows: one process makes the tables of all these channels again."""
GROUP_ROWS: Final = 250_000
"""SDS messages of the channels that are in memory at once, unless one channel has more."""
_STATISTICS: Final = "statistics"
_READ: Final = "read"
_TOPICS: Final = "topics"

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

    ``new`` returns the new rows, ``stores`` are the names of all stores that were read. With infinite
    ``most_grown`` any number of rows may be new. Raises `WholeRunNeeded` if a whole run is needed; the tables are then
    unchanged.
    """
    began_s = time.monotonic()
    run = folder.held
    assert run is not None, "only a finished run grows"
    topics = _topics_of(run, options)
    decoder = BatchDecoder(options.profile, None, keys, channel_topics=options.channel_topics)
    files = TableFiles(root=folder.place.path, filesystem=folder.place.filesystem)
    held = {name: HeldRows(files=files, name=name, names=result.names) for name, result in run.results.items()}

    share = most_grown * run.results["waku_messages"].rows
    limit = maxsize if isinf(most_grown) else min(MOST_NEW_ROWS, int(share))
    wanted = options.selection.channels
    fresh = new(held["waku_messages"], limit, lambda rows: of_wanted_channels(rows, wanted, decoder))
    messages = message_changes(held, fresh, decoder, topics.decided())
    groups = _groups(held["channel_stats"], messages.tables)
    topics = grown_topics(topics, messages.claims, held["sds_messages"])
    config = replace(ARCHIVE_SEGMENTATION, parity_rate=options.parity_rate)
    changes = dict(messages.tables) | segment_changes(held, messages, decoder, options.profile, config)
    held |= {name: held[name].changed(change) for name, change in changes.items()}

    writing = _Writing(files, held)
    for channels in groups:
        for name, table in channel_tables(held, channels, options).items():
            writing.add(name, table)
    everywhere = pa.concat_arrays([pa.array([], pa.string()), *groups])
    for name in CHANNEL_TABLES:
        changes[name] = TableChange.of(name, ("channel_id",), pa.table({"channel_id": everywhere}), None)
    changes["store_completeness"] = _completeness(held, stores)
    seconds = round(time.monotonic() - began_s, 3)
    results = {name: writing.changed(name, change, run.results[name], seconds) for name, change in changes.items()}

    terms = dict(run.manifest["jobs"][_STATISTICS])
    for name, change in changes.items():
        for sign, rows in ((1, change.added), (-1, change.removed)):
            for term, count in balance_terms_of(name, rows).items():
                terms[term] += sign * count
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


def _topics_of(run: HeldRun, options: RunOptions) -> CountedTopics:
    if options.blooms:
        raise WholeRunNeeded("the evidence of bloom filters (--blooms) is made from whole channels")
    topics = run.manifest["jobs"][_READ][_TOPICS]
    if not topics["complete"]:
        raise WholeRunNeeded("it is not known which channels in the folder have messages on several topics")
    return CountedTopics.from_json([topics])


def _groups(channel_stats: HeldRows, changes: Mapping[str, TableChange]) -> list[pa.Array]:
    """Return the channels of changed messages, in groups that fit in memory."""
    moved = [part for name in ("sds_messages", "repeats") for part in (changes[name].removed, changes[name].added)]
    channels = pa.concat_tables(part.select(["channel_id"]) for part in moved)["channel_id"].unique()
    known = channel_stats.found(("channel_id",), of_channels(channels), ("channel_id", "content", "sync"))
    sizes = dict.fromkeys(channels.to_pylist(), 0)
    sizes.update(zip(known["channel_id"].to_pylist(), pc.add(known["content"], known["sync"]).to_pylist(), strict=True))
    if sum(sizes.values()) > MOST_TOUCHED_ROWS:
        raise WholeRunNeeded("the channels that grew have so many messages that a whole run is cheaper")
    groups: dict[int, list[str]] = defaultdict(list)
    before = 0
    for name, size in sizes.items():
        groups[before // GROUP_ROWS].append(name)
        before += size
    return [pa.array(group, pa.string()) for group in groups.values()]


def _completeness(held: Mapping[str, HeldRows], stores: Sequence[str]) -> TableChange:
    columns = ("sources", "damaged")
    counts = [holdings(part.all(columns)) for part in held["waku_messages"].by_file()]
    added = completeness(pa.concat_tables([*counts, named_stores(stores)]))
    return TableChange.of("store_completeness", ("source",), held["store_completeness"].all(("source",)), added)


class _Writing:
    """Writes the files of changed tables."""

    def __init__(self, files: TableFiles, held: Mapping[str, HeldRows]) -> None:
        self._files = files
        self._held = held
        self._written = defaultdict[str, list[TableFile]](list)

    def add(self, name: str, rows: pa.Table) -> None:
        """Write a file with some rows of a table, if there are any."""
        if rows.num_rows:
            (told,) = notes_of([self._files.write(name, 0, rows)["blob"][0].as_py()])
            self._written[name].append(told_file(told))

    def changed(self, name: str, change: TableChange, before: TableResult, seconds: float) -> TableResult:
        """Write the added rows of a table, write files again that have removed rows, and return the table."""
        self.add(name, change.added)
        kept = []
        for part in before.parts:
            held = replace(self._held[name], names=[part.name], change=None)
            chosen = change.is_removed
            if chosen is None or not held.found(change.by, chosen, change.by[:1]).num_rows:
                kept.append(part)
            else:
                rest = replace(change, added=change.added.slice(0, 0))
                self.add(name, held.changed(rest).found(change.by, everything))
        return TableResult.of(name, kept + self._written[name], seconds)
