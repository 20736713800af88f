"""Stage 2, ``unique_messages`` to ``sds_ordered``: each channel's log in the order of SDS.

The order is (Lamport timestamp, message id), ascending: the SDS specification's local log. It agrees with causality
wherever senders keep their clocks as the specification says; a message never depends on itself or on a later place.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.stages.missing_messages import citations


def sds_ordered(unique_messages: DataFrame, missing_messages: DataFrame) -> DataFrame:
    """Return the content messages of each channel with their position (from 1) and how many parents are missing."""
    gaps = (
        citations(unique_messages)
        .join(missing_messages.select("channel_id", "message_id"), ["channel_id", "message_id"], "left_semi")
        .groupBy("channel_id", F.col("citing_id").alias("message_id"))
        .agg(F.count("*").alias("missing_parents"))
    )
    order = Window.partitionBy("channel_id").orderBy("lamport", "message_id")
    return (
        unique_messages.where("kind = 'content'")
        .select("channel_id", "message_id", "sender_id", "lamport", "timestamp", "message_hash", "segment_hash")
        .withColumn("position", F.row_number().over(order))
        .join(gaps, ["channel_id", "message_id"], "left")
        .fillna(0, ["missing_parents"])
    )
