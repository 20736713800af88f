"""From ``waku_messages`` to the same table with each message once, and the stores that had it.

A message may be in several stores, and a store node may give it on two pages. Rows with the same message hash
(14/WAKU2-MESSAGE, "Deterministic message hashing") are the same message; the hash covers everything except ``version``.
If rows under one hash differ, the first in the order of all columns is kept, whatever the order of the input.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

_COLUMNS: Final = ("message_hash", "pubsub_topic", "content_topic", "payload", "version", "timestamp", "meta")


def deduplicated(waku_messages: DataFrame, *, unique: bool = False) -> DataFrame:
    """Return one row for each message hash.

    Columns: those of ``waku_messages`` with ``sources`` (the names of all stores that had it, sorted) in place of
    ``source``, and ``copies`` (in how many rows of the input it was). With ``unique`` the caller knows that no hash
    comes twice, as in a single archive, and nothing needs to be shuffled.
    """
    if unique:
        return waku_messages.select(
            *_COLUMNS, F.array("source").alias("sources"), F.lit(1).cast("bigint").alias("copies")
        )
    same = Window.partitionBy("message_hash")
    first = same.orderBy("timestamp", "source", "content_topic", "pubsub_topic", "version", "payload", "meta")
    return (
        # The window with the order goes first: its sorting serves the other as well.
        waku_messages.withColumn("copy", F.row_number().over(first))
        .withColumn("sources", F.sort_array(F.collect_set("source").over(same)))
        .withColumn("copies", F.count("*").over(same))
        .where("copy = 1")
        .select(*_COLUMNS, "sources", "copies")
    )
