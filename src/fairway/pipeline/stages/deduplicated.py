"""To ``waku_messages``: each message once, and which stores had it.

The same message is in several stores, and a store node asked page by page may give it twice. Its hash
(14/WAKU2-MESSAGE, "Deterministic message hashing") tells that it is the same, for the hash covers everything but
``version``. Should a store show something else under a hash, the row that comes first in the order of all its columns
stands, whatever the order in which rows come.
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
