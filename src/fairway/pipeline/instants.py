"""Instants: the times of a table as Spark's TimestampType, beside the exact integers.

A column ``NAME_ns`` or ``NAME_ms`` is a time since the Unix epoch. The column ``NAME`` has the same time as an instant
in UTC, in microseconds rounded down, for functions of Spark, watermarks, pandas and plots. Computations use the
integers. The functions here add the instants when rows are written to a file or returned to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.schema import INSTANT, arrow_schema, columns_of, types_of

_US_PER_MS: Final = 1_000
_NS_PER_US: Final = 1_000
_MAX: Final = 2**63 - 1

Times = NDArray[np.int64]


def _from_ns(times: Times) -> Times:
    return np.floor_divide(times, _NS_PER_US)


def _from_ms(times: Times) -> Times:
    return times * _US_PER_MS


_MICROSECONDS: Final[dict[str, tuple[Callable[[Times], Times], int]]] = {
    "_ns": (_from_ns, _MAX),
    "_ms": (_from_ms, _MAX // _US_PER_MS),
}
"""By suffix of the column's name: the conversion to microseconds, and the greatest integer that fits."""


def with_instants(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns and types of a schema; missing instants are computed from its exact times.

    An instant that does not fit is null. Raises `KeyError` if another column is missing, and `pyarrow.ArrowInvalid` for
    values that a type cannot hold.
    """
    present = frozenset(table.column_names)
    for field in schema:
        if field.type == INSTANT and field.name not in present:
            table = table.append_column(field, _instants(table, field.name))
    return table.select(schema.names).cast(schema)


def batches_with_instants(batches: Iterable[pa.RecordBatch], ddl: str) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns and types of a schema in Spark's DDL, as `with_instants` makes them."""
    schema = arrow_schema(ddl)
    for batch in batches:
        yield from with_instants(pa.Table.from_batches([batch]), schema).to_batches()


def frame_with_instants(frame: DataFrame, ddl: str) -> DataFrame:
    """Return a DataFrame with the columns of a schema in Spark's DDL; Spark computes missing instants."""
    there = frozenset(frame.columns)
    instants = {
        name: _instant(name, there) for name, kind in types_of(ddl).items() if kind == "timestamp" and name not in there
    }
    return frame.withColumns(instants).select(*columns_of(ddl)) if instants else frame.select(*columns_of(ddl))


def _instants(table: pa.Table, name: str) -> pa.ChunkedArray:
    unit = _unit_of(name, table.column_names)
    return pa.chunked_array([_instants_of(chunk, unit) for chunk in table.column(name + unit).chunks], INSTANT)


def _instants_of(times: pa.Array, unit: str) -> pa.Array:
    make, greatest = _MICROSECONDS[unit]
    exact: Times = times.fill_null(0).to_numpy(zero_copy_only=False)
    fits = (exact >= -greatest - 1) & (exact <= greatest)
    is_known = fits & times.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(make(np.where(fits, exact, 0)), pa.int64(), mask=~is_known).cast(INSTANT)


def _instant(name: str, there: frozenset[str]) -> Column:
    unit = _unit_of(name, there)
    exact, greatest = name + unit, _MICROSECONDS[unit][1]
    if unit == "_ms":
        return F.expr(f"IF({exact} BETWEEN {-greatest} AND {greatest}, timestamp_millis({exact}), NULL)")
    # ``div`` rounds towards zero.
    return F.expr(f"timestamp_micros({exact} div {_NS_PER_US} - IF({exact} % {_NS_PER_US} < 0, 1, 0))")


def _unit_of(name: str, columns: Iterable[str]) -> str:
    there = frozenset(columns)
    for unit in _MICROSECONDS:
        if name + unit in there:
            return unit
    raise KeyError(name)
