"""`HeldRows`: finds rows of a finished table by their values. `TableChange`: the removed and added rows of a table.

A lookup reads few columns of a file to choose rows, and the other columns only in row groups with a chosen row.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairway.pipeline.codes import codes_of
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.tables.files import TableFiles, columns_of_few_values, exact_schema_of

Chosen = Callable[[pa.Table], NDArray[np.bool_]]
"""Function from rows, with the deciding columns, to a mask of the wanted rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The change of a table. Its files still contain the removed rows."""

    added: pa.Table
    removed: pa.Table
    """The removed rows, with the columns that the balance reads."""
    by: Sequence[str] = ()
    """The columns that decide whether a row is removed, as paths in the files."""
    is_removed: Chosen | None = None
    """Function that chooses the removed rows; None if there are none."""

    @classmethod
    def of(cls, name: str, by: Sequence[str], removed: pa.Table, added: pa.Table | None) -> Self:
        """Return the change of a table with this name; the columns ``by`` of ``removed`` choose the removed rows."""
        schema = exact_schema_of(name)
        added = schema.empty_table() if added is None else added.select(schema.names).cast(schema)
        chosen = among(removed, by) if removed.num_rows else None
        return cls(added=added, removed=removed, by=by, is_removed=chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """The rows of a table."""

    files: TableFiles
    name: str
    names: Sequence[str]
    """The names of its files."""
    change: TableChange | None = None
    """A change of the table that is not in its files."""

    def changed(self, change: TableChange) -> Self:
        """Return the rows after a change."""
        return replace(self, change=change)

    def by_file(self) -> Iterator[Self]:
        """Yield the rows of each file, and the added rows."""
        for name in self.names:
            change = self.change and replace(self.change, added=self.change.added.slice(0, 0))
            yield replace(self, names=[name], change=change)
        yield replace(self, names=[])

    def found(self, by: Sequence[str], chosen: Chosen, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the chosen rows after the change, with some columns, by default all.

        ``by`` are the deciding columns, as paths in the files, such as ``sources.list.element``.
        """
        schema = exact_schema_of(self.name)
        shape = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        parts = [shape.empty_table(), *(self._in_file(file, by, chosen, shape) for file in self.names)]
        if self.change is not None:
            added = self.change.added
            parts.append(added.filter(pa.array(chosen(added))).select(shape.names))
        return pa.concat_tables(parts)

    def all(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows after the change."""
        return self.found(columns, everything, columns)

    def _in_file(self, file: str, by: Sequence[str], chosen: Chosen, shape: pa.Schema) -> pa.Table:
        path = posixpath.join(self.files.folder_of(self.name), file)
        few = columns_of_few_values(exact_schema_of(self.name))
        with (
            self.files.filesystem.open_input_file(path) as source,
            opened_parquet(source, self.files.filesystem, dictionaries=few) as parquet,
        ):
            removal = self.change.by if self.change is not None else ()
            deciding = parquet.read(columns=list(dict.fromkeys([*by, *removal])), use_threads=False)
            mask = chosen(deciding)
            if self.change is not None and self.change.is_removed is not None and mask.any():
                mask &= ~self.change.is_removed(deciding)
            rows = np.flatnonzero(mask)
            if not len(rows):
                return shape.empty_table()
            known = [name for name in shape.names if name in by]
            rest = _rows_at(parquet, rows, [name for name in shape.names if name not in by])
            decided = deciding.select(known).take(pa.array(rows))
            columns = [(decided if name in by else rest).column(name) for name in shape.names]
            return pa.table(columns, names=shape.names).cast(shape)


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


def everything(rows: pa.Table) -> NDArray[np.bool_]:
    """Choose all rows."""
    return np.ones(rows.num_rows, np.bool_)


def of_channels(channels: pa.Array) -> Chosen:
    """Return a filter for the rows of some channels."""

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = pc.is_in(rows.column("channel_id"), value_set=channels).to_numpy()
        return mask

    return chosen


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
    distinct = known.select(list(columns)).group_by(list(columns), use_threads=False).aggregate([]).combine_chunks()
    values = pc.unique(distinct.column(columns[-1]))

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = pc.is_in(rows.column(columns[-1]), value_set=values).to_numpy()
        some = np.flatnonzero(mask)
        if len(some) and len(columns) > 1:
            few = rows.select(list(columns)).take(pa.array(some)).cast(distinct.schema)
            mask = mask.copy()
            mask[some] = are_among(few, distinct, columns)
        return mask

    return chosen
