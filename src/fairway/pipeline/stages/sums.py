"""Sums of the columns of a table, grouped by the values of other columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def grouped(table: pa.Table, keys: Sequence[str], figures: Mapping[str, tuple[str, str]]) -> pa.Table:
    """Return one row for each combination of values of the columns ``keys``, with null as one value.

    ``figures`` maps each other column of the result to its source column and function: ``sum``, ``min`` or ``max``.
    """
    found = table.group_by(list(keys), use_threads=False).aggregate(list(figures.values()))
    columns = {name: found.column(name) for name in keys}
    columns |= {name: found.column(f"{column}_{how}") for name, (column, how) in figures.items()}
    return pa.table(columns)


def ones(table: pa.Table) -> pa.Array:
    """Return a 1 for each row, to be added up."""
    return pa.array(np.ones(table.num_rows, np.int64))


def as_numbers(condition: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return 1 for true, 0 for false, null for null."""
    return pc.cast(condition, pa.int64())
