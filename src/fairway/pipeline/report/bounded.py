"""`Divided` and `Top`: sums by key and the first rows in an order, over tables of any size in bounded memory.

Memory holds one part of `PART_ROWS` rows at a time, and at most a multiple of the rows that are kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import Batches, Cutter
from fairway.pipeline.run.reading import Columns, RunTables

PART_ROWS: Final = 100_000
"""Rows of a part, on average."""
_MOST_PARTS: Final = 4_096
CUT_ROWS: Final = 65_536
"""Rows that `Top` collects, at least, before it sorts them."""

Order = Sequence[tuple[str, str]]
"""Columns by which rows are sorted, each with ``ascending`` or ``descending``; nulls are last."""


class Divided:
    """Rows in a temporary file, divided by a hash of their keys: all rows of a key are in one part.

    A context manager, which removes the file.
    """

    def __init__(self, keys: Sequence[str], rows: int) -> None:
        """Divide about ``rows`` rows by the columns ``keys``, of text."""
        self.keys: Final = tuple(keys)
        self._parts: Final = min(max(-(-rows // PART_ROWS), 1), _MOST_PARTS)
        self._hash: Final = BucketKeys.drawn()
        self._cutter: Final = Cutter("rows", self._parts)
        self._file: Final = tempfile.TemporaryFile(prefix="fairway-report-")  # noqa: SIM115 - closed on exit
        self._places: Final[list[list[tuple[int, int]]]] = [[] for _ in range(self._parts)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, table: pa.Table) -> None:
        """Add rows; all tables have the same columns."""
        if table.num_rows:
            buckets = self._hash.by_columns([table.column(name) for name in self.keys], self._parts)
            self._keep(self._cutter.add(table, buckets))

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the parts that have rows."""
        self._keep(self._cutter.close())
        for places in filter(None, self._places):
            yield pa.concat_tables([self._read(*place) for place in places])

    def _keep(self, blobs: Batches) -> None:
        for batch in blobs:
            for row in batch.to_pylist():
                self._places[row["bucket"]].append((self._file.tell(), len(row["blob"])))
                self._file.write(row["blob"])

    def _read(self, start: int, size: int) -> pa.Table:
        end = self._file.tell()
        self._file.seek(start)
        blob = self._file.read(size)
        self._file.seek(end)
        return pa.ipc.open_stream(blob).read_all()


class Top:
    """The first rows of all added tables in an order."""

    def __init__(self, order: Order, limit: int) -> None:
        self._order: Final = list(order)
        self._limit: Final = limit
        self._held: list[pa.Table] = []
        self._rows = 0
        self._last: pa.Scalar | None = None
        """The value of the first column in the last row to keep, once there are enough rows."""

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        if self._last is not None:
            column, direction = self._order[0]
            is_before = pc.greater_equal if direction == "descending" else pc.less_equal
            table = table.filter(is_before(table.column(column), self._last))
        if table.num_rows:
            self._held.append(table)
            self._rows += table.num_rows
        if self._rows >= max(2 * self._limit, CUT_ROWS):
            self._cut()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows in their order."""
        self._cut()
        return [row for table in self._held for row in table.to_pylist()]

    def _cut(self) -> None:
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        kept = table.take(pc.sort_indices(table, sort_keys=self._order)[: self._limit])
        self._held, self._rows = [kept], kept.num_rows
        if kept.num_rows == self._limit:
            last = kept.column(self._order[0][0])[-1]
            self._last = last if last.is_valid else None


def first_rows(
    tables: RunTables, name: str, columns: Columns, order: Order, limit: int, where: ds.Expression | None = None
) -> list[dict[str, Any]]:
    """Return the first rows of a table in an order."""
    top = Top(order, limit)
    for batch in tables.batches(name, columns, where):
        top.add(pa.Table.from_batches([batch]))
    return top.rows()


def rows_with(
    tables: RunTables, name: str, keys: Sequence[str], chosen: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of the row of a table with the keys of a chosen row, and this chosen row."""
    if not chosen:
        return []
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    wanted = {tuple(row[key] for key in keys) for row in chosen}
    where = ds.scalar(value=True)
    for place, key in enumerate(keys):
        where &= ds.field(key).isin(list({each[place] for each in wanted} - {None})) | ds.field(key).is_null()
    for batch in tables.batches(name, where=where):
        for row in batch.to_pylist():
            if (own := tuple(row[key] for key in keys)) in wanted:
                found[own] = row
    return [(found[tuple(row[key] for key in keys)], row) for row in chosen]
