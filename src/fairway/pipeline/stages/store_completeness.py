"""From ``waku_messages`` to ``store_completeness``: the share of all messages that each store had."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.stages.deduplicated import is_damaged
from fairway.pipeline.stages.sums import grouped

STORE_COMPLETENESS: Final = "source string, messages bigint, damaged bigint, known bigint, missing bigint"
"""The table of stores: ``known`` counts the messages with an intact copy in any store. ``missing`` counts those of them
without an intact copy in this store, ``damaged`` its copies that do not match their hash."""

HOLDINGS: Final = pa.schema(
    [("source", pa.string()), ("messages", pa.int64()), ("damaged", pa.int64()), ("known", pa.int64())]
)
"""Counts of a store: intact and damaged messages. Rows can be added up. ``known`` counts the intact messages of all
stores, in one row with a null ``source``; it is 0 in the others."""
_SUMS: Final = {name: (name, "sum") for name in HOLDINGS.names if name != "source"}


def holdings(deduplicated: pa.Table) -> pa.Table:
    """Return the counts (`HOLDINGS`) of some messages, each once."""
    rows: list[tuple[str | None, int, int, int]] = [
        (None, 0, 0, deduplicated.num_rows - int(np.count_nonzero(is_damaged(deduplicated))))
    ]
    rows += [(source, count, 0, 0) for source, count in _counted(deduplicated.column("sources"))]
    rows += [(source, 0, count, 0) for source, count in _counted(deduplicated.column("damaged"))]
    return pa.table(list(map(list, zip(*rows, strict=True))), schema=HOLDINGS)


def _counted(stores: pa.ChunkedArray) -> Iterator[tuple[str | None, int]]:
    for told in pc.value_counts(pc.list_flatten(stores)).to_pylist():
        yield told["values"], told["counts"]


def named_stores(stores: Collection[str]) -> pa.Table:
    """Return empty holdings, so that each store has a row."""
    zeros = [0] * len(stores)
    return pa.table([sorted(stores), zeros, zeros, zeros], schema=HOLDINGS)


def added_holdings(held: pa.Table) -> pa.Table:
    """Return one row for each store, and one with a null store."""
    return grouped(held, ["source"], _SUMS).select(HOLDINGS.names).cast(HOLDINGS)


def completeness(held: pa.Table) -> pa.Table:
    """Return ``store_completeness`` of all holdings (`HOLDINGS`)."""
    known = pc.fill_null(pc.sum(held.column("known")), 0)
    held = added_holdings(held.filter(pc.is_valid(held.column("source"))))
    held = held.set_column(
        held.schema.get_field_index("known"), "known", pa.repeat(known, held.num_rows).cast(pa.int64())
    )
    return held.append_column("missing", pc.subtract(held.column("known"), held.column("messages")))


def store_completeness(deduplicated: DataFrame, stores: Collection[str] = ()) -> DataFrame:
    """Return ``store_completeness`` (`STORE_COMPLETENESS`) of the result of `deduplicated`, one row for each store.

    ``stores`` names all stores that were read, so that an empty one has a row too.
    """
    held = Cut(
        frame=deduplicated.select("sources", "damaged"),
        by=["source"],
        prepare=lambda table: {"held": holdings(table)},
    )
    named = Cut(
        frame=deduplicated.sparkSession.range(1),
        by=["source"],
        prepare=lambda _: {"held": named_stores(stores)},
    )
    return bucketed([held, named], lambda bucket: [completeness(bucket.tables["held"])], STORE_COMPLETENESS, count=1)
