"""New rows in the sources of a run since its tables were made.

A Parquet table grows by files: a file is new if the run does not know its name, size and time. Other archives are read
whole: a row is new if the tables do not have its hash from this source. A source needs a whole run if rows are gone, a
file was changed, or a message has more copies than before. The tables record the number of copies of a message, not the
number for each source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.run.growth import WholeRunNeeded
from fairway.pipeline.run.growth.held_rows import HeldRows
from fairway.pipeline.run.reading import in_tables
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.files_scan import FilesScan, State
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, MessageScan

MOST_KNOWN_ROWS: Final = 20_000_000
"""Most messages of a source that is read in full: the hashes of all of them are in memory."""

Described = Mapping[str, Any]
"""A source as ``run.json`` describes it: label, uri and fingerprint."""
States = Sequence[Sequence[Any]]
"""Name, size and time of files; empty for a source without files."""


def new_rows(
    known: Sequence[Described],
    sources: Sequence[tuple[RunSource, Described]],
    waku_messages: HeldRows,
    most_rows: int,
    wanted: Callable[[pa.Table], pa.Table],
) -> pa.Table:
    """Return the wanted rows of the sources that are new since they were as ``known`` describes them.

    Each source is given with its current description; later files are for the next run. ``wanted`` filters the rows
    that sources return.

    Raises `WholeRunNeeded` if rows are gone, or more than ``most_rows`` are new.
    """
    before = {(told["label"], told["uri"]): told["fingerprint"] for told in known}
    gone = before.keys() - {(told["label"], told["uri"]) for _, told in sources}
    if gone:
        raise WholeRunNeeded(f"{min(uri for _, uri in gone)}, which was read, is not given any more")
    parts = [ARROW_SCHEMA.empty_table()]
    left = most_rows
    for source, told in sources:
        states = before.get((told["label"], told["uri"]))
        for found in _of_source(source, states, told["fingerprint"], waku_messages):
            table = wanted(found.cast(ARROW_SCHEMA))
            parts.append(table)
            left -= table.num_rows
            if left < 0:
                raise WholeRunNeeded("more came than pays to add")
    return pa.concat_tables(parts)


def _of_source(source: RunSource, before: States | None, now: States, held: HeldRows) -> Iterator[pa.Table]:
    """Yield the new rows of a source, by the states of its files; None for a source without files."""
    if before == now and now:
        return
    scan = source.scan()
    if before is None:
        yield from _scanned(scan)
    elif isinstance(scan, FilesScan):
        yield from _scanned(replace(scan, states=_new_files(source, before, now)))
    else:
        yield from _unknown(source, scan, held)


def _new_files(source: RunSource, before: States, now: States) -> tuple[State, ...]:
    """Return the files that are new in a Parquet table."""
    known = {_state(state) for state in before}
    there = {_state(state) for state in now}
    if not known <= there:
        raise WholeRunNeeded(f"a file of {source.shown} was changed or removed")
    return tuple(sorted(there - known))


def _state(told: Sequence[Any]) -> State:
    name, size_bytes, time_ns = told
    return name, size_bytes, time_ns


def _unknown(source: RunSource, scan: MessageScan, held: HeldRows) -> Iterator[pa.Table]:
    """Yield the rows of an archive that the tables do not have from it."""
    mine = _rows_from(source, held)
    known = mine["message_hash"].combine_chunks()
    seen = np.zeros(len(known), np.int64)
    for table in _scanned(scan):
        place = pc.index_in(table["message_hash"], value_set=known)
        seen += np.bincount(place.drop_null().to_numpy(), minlength=len(known))
        fresh = table.filter(pc.is_null(place))
        if fresh.num_rows:
            yield fresh
    if not seen.all():
        raise WholeRunNeeded(f"messages were removed from {source.shown}")
    if np.where(mine["is_alone"].to_numpy(), seen != mine["copies"].to_numpy(), seen > 1).any():
        raise WholeRunNeeded(f"a message is in {source.shown} more than once")


def _rows_from(source: RunSource, held: HeldRows) -> pa.Table:
    """Return hash and copies of the messages of a source, and whether it alone has each."""
    name = pa.scalar(source.label, pa.string())
    parts: list[pa.Table] = []
    for part in held.by_file():
        stores = part.all(("message_hash", "sources", "damaged", "copies"))
        lists = [stores[column].combine_chunks() for column in ("sources", "damaged")]
        owners = pa.concat_arrays([pc.list_parent_indices(column) for column in lists])
        named = pa.concat_arrays([pc.list_flatten(column) for column in lists])
        is_alone = pc.equal(pc.add(*map(pc.list_value_length, lists)), 1)
        rows = stores.select(["message_hash", "copies"]).append_column("is_alone", is_alone)
        parts.append(rows.take(pc.unique(owners.filter(pc.equal(named, name)))))
        if sum(rows.num_rows for rows in parts) > MOST_KNOWN_ROWS:
            raise WholeRunNeeded(f"{source.shown} has so many messages that a whole run is cheaper")
    return pa.concat_tables(parts)


def _scanned(scan: MessageScan) -> Iterator[pa.Table]:
    return in_tables(batch for part in scan.plan() for batch in scan.read(part))
