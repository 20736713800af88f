"""`HeldRows`: finds rows of a finished table by their values, in this process and without Spark.

A lookup reads few columns to choose rows, and the other columns only in row groups with a hit. A found row has its
place (`PLACES`), so that it can be replaced. `HeldRows.changed` returns the table after the change, before it is
written.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairway.pipeline.codes import codes_of
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.tables.files import RowGroup, TableFiles, columns_of_few_values, exact_schema_of

PLACES: Final = pa.schema([("file", pa.string()), ("row", pa.int64())])
"""Places of rows: the name of a file of the table, and the number of the row in it, from 0."""


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """By file, the places of removed rows, in ascending order; the files still contain them."""

    by_file: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: pa.Table) -> Self:
        """Return the rows that a table of `PLACES` lists; rows without a place are in no file."""
        places = places.filter(places.column("file").is_valid())
        files = pc.unique(places.column("file")).to_pylist()
        rows = places.column("row")
        return cls({file: np.unique(rows.filter(pc.equal(places.column("file"), file)).to_numpy()) for file in files})

    def counting(self, file: str, start: int, count: int) -> NDArray[np.bool_]:
        """Return which of ``count`` rows of a file, from the row ``start`` on, are not removed."""
        mask = np.ones(count, np.bool_)
        gone = self.by_file.get(file)
        if gone is not None:
            first, end = np.searchsorted(gone, [start, start + count])
            mask[gone[first:end] - start] = False
        return mask


Chosen = Callable[[pa.Table], NDArray[np.bool_]]
"""Function from rows, with the deciding columns, to a mask of the wanted rows."""


@dataclass(frozen=True, slots=True)
class Span:
    """Values of a column in wanted rows; row groups without any of them are not read.

    The values are integers, text or binary.
    """

    column: str
    starts: Sequence[Any]
    """The first value of each range, in ascending order."""
    ends: Sequence[Any]
    """The last value of each range, in ascending order."""

    @classmethod
    def of(cls, column: str, *values: pa.ChunkedArray) -> Self:
        """Return the span of the given values, without nulls."""
        found = sorted({value for each in values for value in pc.unique(each).to_pylist() if value is not None})
        return cls(column, found, found)

    def meets(self, group: RowGroup) -> bool:
        """Return whether a row group may have such a value."""
        told = group.range(self.column)
        if told is None:
            return group.has_values(self.column)
        least, greatest = told
        place = bisect_right(self.starts, greatest) - 1
        return place >= 0 and bool(self.ends[place] >= least)


_PLACES: Final = tuple(PLACES.names)


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of a table: removed rows, as they were found, and added rows."""

    removed: pa.Table
    """All columns, and the places."""
    added: pa.Table

    @classmethod
    def of(cls, name: str, removed: pa.Table | None = None, added: pa.Table | None = None) -> Self:
        """Return the change of a table with this name; its columns may have any order."""
        schema = exact_schema_of(name)
        places = pa.schema([*schema, *PLACES])
        return cls(
            places.empty_table() if removed is None else removed,
            schema.empty_table() if added is None else added.select(schema.names).cast(schema),
        )

    @property
    def rows(self) -> int:
        """Return the number of added minus removed rows."""
        return int(self.added.num_rows - self.removed.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """The rows of a table."""

    files: TableFiles
    name: str
    names: Sequence[str]
    """The removed rows of its files."""
    removed: RemovedRows = field(default_factory=RemovedRows)
    """Rows of the files that a change removes, not committed yet."""
    added: pa.Table | None = None
    """Added rows that are in no file yet."""

    def changed(self, change: TableChange) -> Self:
        """Return the table after a change."""
        return replace(self, removed=RemovedRows.of(change.removed), added=change.added)

    def by_file(self) -> Iterator[Self]:
        """Yield the rows of each file."""
        for name in self.names:
            yield replace(self, names=[name], added=None)

    def found(
        self, by: Sequence[str], chosen: Chosen, columns: Sequence[str] | None = None, span: Span | None = None
    ) -> pa.Table:
        """Return the chosen rows, with some columns, by default all, and their places.

        ``by`` are the deciding columns, as paths in the files, such as ``sources.list.element``. All chosen rows in
        files have a value in ``span``. Rows in no file have a null place.
        """
        schema = exact_schema_of(self.name)
        shape = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        shape = pa.schema([*shape, *PLACES])
        parts = list(self._found(by, chosen, shape, span))
        return pa.concat_tables(parts) if parts else shape.empty_table()

    def all(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows, and their places."""
        return self.found(columns, lambda rows: np.ones(rows.num_rows, np.bool_), columns)

    def _found(self, by: Sequence[str], chosen: Chosen, shape: pa.Schema, span: Span | None) -> Iterator[pa.Table]:
        own = shape.names[: -len(_PLACES)]
        few = columns_of_few_values(exact_schema_of(self.name))
        for file in self.names:
            with (
                self.files.filesystem.open_input_file(posixpath.join(self.files.folder_of(self.name), file)) as source,
                opened_parquet(source, self.files.filesystem, dictionaries=few) as parquet,
            ):
                groups, rows = _groups(parquet, span)
                if not groups:
                    continue
                deciding = parquet.read_row_groups(groups, columns=list(by), use_threads=False)
                counts = self.removed.counting(file, 0, parquet.metadata.num_rows)[rows]
                places = np.flatnonzero(chosen(deciding) & counts)
                hits = rows[places]
                if len(hits):
                    decided = deciding.select([name for name in own if name in by]).take(pa.array(places))
                    further = _rows_at(parquet, hits, [name for name in own if name not in by])
                    found = [(decided if name in by else further).column(name) for name in own]
                    at = [pa.repeat(file, len(hits)), pa.array(hits)]
                    yield pa.table([*found, *at], names=shape.names).cast(shape)
        if self.added is not None and self.added.num_rows:
            rest = self.added.filter(pa.array(chosen(self.added)))
            nowhere = [pa.nulls(rest.num_rows, field.type) for field in PLACES]
            yield pa.table([*rest.select(own).columns, *nowhere], schema=shape)


def _groups(parquet: pq.ParquetFile, span: Span | None) -> tuple[list[int], NDArray[np.int64]]:
    """Return the row groups of a file that may have wanted rows, and the numbers of their rows in the file."""
    groups = [RowGroup(parquet.metadata.row_group(number)) for number in range(parquet.num_row_groups)]
    ends = np.cumsum([group.rows for group in groups], dtype=np.int64)
    wanted = [number for number, group in enumerate(groups) if span is None or span.meets(group)]
    rows = [np.arange(ends[number] - groups[number].rows, ends[number]) for number in wanted]
    return wanted, np.concatenate([np.zeros(0, np.int64), *rows])


def _rows_at(parquet: pq.ParquetFile, rows: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Return some rows of a file, by their numbers in ascending order; only row groups with one of them are read."""
    if not columns:
        return pa.table({})
    sizes = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    ends = np.cumsum(sizes)
    of = np.searchsorted(ends, rows, side="right")
    parts = []
    for group in np.unique(of).tolist():
        inside = rows[of == group] - (ends[group] - sizes[group])
        table = parquet.read_row_group(group, columns=list(columns), use_threads=False)
        parts.append(table.take(pa.array(inside)))
    return pa.concat_tables(parts)


def are_among(rows: pa.Table, known: pa.Table, columns: Sequence[str]) -> NDArray[np.bool_]:
    """Return which rows are equal to one of ``known`` in some columns; null equals null."""
    pairs = [
        pa.chunked_array([*rows.column(name).chunks, *known.column(name).chunks], rows.schema.field(name).type)
        for name in columns
    ]
    codes = codes_of(*pairs)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])


def among(known: pa.Table, columns: Sequence[str]) -> Chosen:
    """Return a filter for the rows that equal a row of ``known`` in some columns; null equals null.

    The last column is compared first, so it should be the most selective.
    """
    *others, last = columns
    distinct = known.select(list(columns)).group_by(list(columns), use_threads=False).aggregate([]).combine_chunks()
    values = pc.unique(distinct.column(last))
    place = pc.index_in(distinct.column(last), value_set=values).to_numpy()
    is_alone = np.bincount(place, minlength=len(values)) == 1
    row_of = np.zeros(len(values), np.int64)
    row_of[place] = np.arange(len(place))

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        found = pc.index_in(rows.column(last), value_set=values)
        mask: NDArray[np.bool_] = found.is_valid().to_numpy()
        some = np.flatnonzero(mask)
        if not len(some) or not others:
            return mask
        at = found.take(pa.array(some)).to_numpy()
        few = rows.select(list(columns)).take(pa.array(some)).cast(distinct.schema)
        same = np.ones(len(some), np.bool_)
        for name in others:
            one, other = few.column(name), distinct.column(name).take(pa.array(row_of[at]))
            equal = pc.fill_null(pc.equal(one, other), fill_value=False).to_numpy()
            same &= equal | (one.is_null().to_numpy() & other.is_null().to_numpy())
        if not (alone := is_alone[at]).all():
            same[~alone] = are_among(few.filter(pa.array(~alone)), distinct, columns)
        mask = mask.copy()
        mask[some] = same
        return mask

    return chosen
