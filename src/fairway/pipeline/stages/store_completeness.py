"""From ``waku_messages`` to ``store_completeness``: the share of all messages that each store had."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

STORE_COMPLETENESS: Final = "source string, messages bigint, of bigint, missing bigint"
"""The table of stores: ``of`` counts the messages that any of them had, ``missing`` those that this one had not."""


def store_completeness(deduplicated: DataFrame, stores: Collection[str] = ()) -> DataFrame:
    """Return ``store_completeness`` (`STORE_COMPLETENESS`) of what `deduplicated` gives, one row for each store.

    ``stores`` names all stores that were read, so that an empty one has a row too.
    """
    # Which stores had a message takes few values, so that what is exploded is small.
    together = deduplicated.groupBy("sources").agg(F.count("*").alias("messages"))
    # One partition, of few rows; named, for Spark Connect warns of a window without any.
    total = F.sum("messages").over(Window.partitionBy(F.lit(0)))
    held = together.withColumn("of", total).select(F.explode("sources").alias("source"), "messages", "of")
    if stores:
        asked = F.explode(F.array(*(F.lit(store) for store in sorted(stores)))).alias("source")
        size = together.agg(F.coalesce(F.sum("messages"), F.lit(0)).alias("of"))
        held = held.unionByName(size.select(asked, F.lit(0).cast("bigint").alias("messages"), "of"))
    return (
        held.groupBy("source")
        .agg(F.sum("messages").alias("messages"), F.max("of").alias("of"))
        .withColumn("missing", F.col("of") - F.col("messages"))
    )
