"""From ``waku_messages`` to ``store_completeness``: the share of all messages that each store had."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.stages.sums import grouped

STORE_COMPLETENESS: Final = "source string, messages bigint, of bigint, missing bigint"
"""The table of stores: ``of`` counts the messages that any of them had, ``missing`` those that this one had not."""

HOLDINGS: Final = pa.schema([("source", pa.string()), ("messages", pa.int64()), ("of", pa.int64())])
"""How many messages a store had, of how many; rows can be added up. ``of`` is 0 in all rows of some messages but one,
whose ``source`` is null."""


def holdings(deduplicated: pa.Table) -> pa.Table:
    """Return how many of some messages, each once, were in which stores (`HOLDINGS`)."""
    counted = pc.value_counts(pc.list_flatten(deduplicated.column("sources")))
    named = pa.array([None, *counted.field("values").to_pylist()], pa.string())
    count = pa.array([0, *counted.field("counts").to_pylist()], pa.int64())
    of = pa.array([deduplicated.num_rows, *[0] * len(counted)], pa.int64())
    return pa.table([named, count, of], schema=HOLDINGS)


def named_stores(stores: Collection[str]) -> pa.Table:
    """Return the holdings of stores that had nothing, so that each has a row."""
    zeros = [0] * len(stores)
    return pa.table([pa.array(sorted(stores), pa.string()), pa.array(zeros), pa.array(zeros)], schema=HOLDINGS)


def added_holdings(held: pa.Table) -> pa.Table:
    """Return one row for each store, and one without."""
    return grouped(held, ["source"], {"messages": ("messages", "sum"), "of": ("of", "sum")}).cast(HOLDINGS)


def completeness(held: pa.Table) -> pa.Table:
    """Return ``store_completeness`` of all holdings (`HOLDINGS`)."""
    of = pc.fill_null(pc.sum(held.column("of")), 0)
    held = grouped(held.filter(pc.is_valid(held.column("source"))), ["source"], {"messages": ("messages", "sum")})
    held = held.append_column("of", pa.repeat(of, held.num_rows).cast(pa.int64()))
    return held.append_column("missing", pc.subtract(held.column("of"), held.column("messages")))


def store_completeness(deduplicated: DataFrame, stores: Collection[str] = ()) -> DataFrame:
    """Return ``store_completeness`` (`STORE_COMPLETENESS`) of what `deduplicated` gives, one row for each store.

    ``stores`` names all stores that were read, so that an empty one has a row too.
    """
    held = Cut(
        frame=deduplicated.select("sources"),
        by=["source"],
        prepare=lambda table: {"held": holdings(table)},
    )
    named = Cut(
        frame=deduplicated.sparkSession.range(1),
        by=["source"],
        prepare=lambda _: {"held": named_stores(stores)},
    )
    return bucketed([held, named], lambda bucket: [completeness(bucket.tables["held"])], STORE_COMPLETENESS, count=1)
