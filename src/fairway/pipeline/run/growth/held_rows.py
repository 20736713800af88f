"""`HeldRows`: finds rows of a finished table by their values, in this process and without Spark.

What is looked up is decided on few columns; of the others only row groups with a hit are read. A row that was found has
its place (`PLACES`), so that it can be replaced: `HeldRows.changed` is the table after that, which nobody has written
yet.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairway.pipeline.codes import codes_of
from fairway.pipeline.run.removed_rows import NOTHING_REMOVED, PLACES, RemovedRows
from fairway.pipeline.run.table_files import TableFiles, exact_schema_of

Chosen = Callable[[pa.Table], NDArray[np.bool_]]
"""Tells of some rows, with the columns that decide, which are wanted."""

_PLACES: Final = tuple(PLACES.names)


@dataclass(frozen=True, slots=True)
class TableChange:
    """What becomes of a table: rows of it that go, as they were found, and rows that come."""

    removed: pa.Table
    """All columns, and the places."""
    added: pa.Table

    @classmethod
    def of(cls, name: str, removed: pa.Table | None = None, added: pa.Table | None = None) -> Self:
        """Return the change of a table with this name; its columns may come in any order."""
        schema = exact_schema_of(name)
        places = pa.schema([*schema, *PLACES])
        return cls(
            places.empty_table() if removed is None else removed,
            schema.empty_table() if added is None else added.select(schema.names).cast(schema),
        )

    @property
    def rows(self) -> int:
        """Return by how many rows the table grows."""
        return int(self.added.num_rows - self.removed.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """The rows of a table that count."""

    files: TableFiles
    name: str
    names: Sequence[str]
    """Of its files."""
    removed: RemovedRows = NOTHING_REMOVED
    added: pa.Table | None = None
    """Rows that are in no file yet."""

    def changed(self, change: TableChange) -> Self:
        """Return the table after a change."""
        return replace(self, removed=self.removed.and_these(change.removed), added=change.added)

    def found(self, by: Sequence[str], chosen: Chosen, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows that are chosen, with some columns, by default all, and their places.

        ``by`` are the columns that decide, as paths in the files, such as ``sources.list.element``. Rows that are in no
        file have null for a place.
        """
        schema = exact_schema_of(self.name)
        shape = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        shape = pa.schema([*shape, *PLACES])
        parts = list(self._found(by, chosen, shape))
        return pa.concat_tables(parts) if parts else shape.empty_table()

    def all(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of all rows, and their places."""
        return self.found(columns, lambda rows: np.ones(rows.num_rows, np.bool_), columns)

    def _found(self, by: Sequence[str], chosen: Chosen, shape: pa.Schema) -> Iterator[pa.Table]:
        own = shape.names[: -len(_PLACES)]
        for file in self.names:
            with (
                self.files.filesystem.open_input_file(posixpath.join(self.files.folder_of(self.name), file)) as source,
                pq.ParquetFile(source) as parquet,
            ):
                deciding = parquet.read(columns=list(by), use_threads=False)
                hits = np.flatnonzero(chosen(deciding) & self.removed.counting(file, 0, deciding.num_rows))
                if len(hits):
                    is_read = set(own) <= set(by)
                    found = deciding.take(pa.array(hits)) if is_read else _rows_at(parquet, hits, own)
                    places = [pa.repeat(file, len(hits)), pa.array(hits)]
                    yield pa.table([*found.select(own).columns, *places], names=shape.names).cast(shape)
        if self.added is not None and self.added.num_rows:
            rest = self.added.filter(pa.array(chosen(self.added)))
            nowhere = [pa.nulls(rest.num_rows, field.type) for field in PLACES]
            yield pa.table([*rest.select(own).columns, *nowhere], schema=shape)


def _rows_at(parquet: pq.ParquetFile, rows: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Return some rows of a file, by their numbers in ascending order; only row groups with one of them are read."""
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
    """Return what chooses the rows that are equal to one of ``known`` in some columns.

    The last one decides most, so that only of few rows the others are compared.
    """
    last = columns[-1]
    values = pc.unique(known.column(last))

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = pc.is_in(rows.column(last), value_set=values).to_numpy()
        some = np.flatnonzero(mask)
        if len(some) and len(columns) > 1:
            mask = mask.copy()
            mask[some] = are_among(rows.select(list(columns)).take(pa.array(some)), known, columns)
        return mask

    return chosen


def both(one: Chosen, other: Chosen) -> Chosen:
    """Return what chooses the rows that both choose."""
    return lambda rows: one(rows) & other(rows)
