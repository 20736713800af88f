"""Stage 4, ``unique_messages`` to ``acknowledgements``: who has what, and how soon they said so.

A participant acknowledges a message of somebody else by citing it in a causal history (design 5.5). The other evidence,
a bloom filter together with a cited descendant, needs the filters, which this stage does not read: counts here are a
lower bound. Times are the senders' own timestamps, so a latency holds the difference of two clocks; one that comes out
negative is counted as 0.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.stages.missing_messages import citations


def acknowledgements(unique_messages: DataFrame) -> DataFrame:
    """Return one row for each content message.

    Columns: channel_id, message_id, sender_id, sent_at, acknowledged_by (how many participants), first_by (who was
    first, null for nobody), acknowledged_at, latency_ns (from sent_at to acknowledged_at).
    """
    sent = unique_messages.where("kind = 'content'").select(
        "channel_id", "message_id", "sender_id", F.col("timestamp").alias("sent_at")
    )
    heard = citations(unique_messages).select("channel_id", "message_id", "citing_sender_id", "cited_at")
    by_others = (
        sent.join(heard, ["channel_id", "message_id"])
        # Own messages never acknowledge themselves.
        .where("citing_sender_id <> sender_id")
        .groupBy("channel_id", "message_id")
        .agg(
            F.count_distinct("citing_sender_id").alias("acknowledged_by"),
            F.min(F.struct("cited_at", "citing_sender_id")).alias("first"),
        )
    )
    return (
        sent.join(by_others, ["channel_id", "message_id"], "left")
        .withColumn("first_by", F.col("first.citing_sender_id"))
        .withColumn("acknowledged_at", F.col("first.cited_at"))
        .drop("first")
        .fillna(0, ["acknowledged_by"])
        .withColumn("latency_ns", F.greatest(F.lit(0), F.col("acknowledged_at") - F.col("sent_at")))
        .withColumn("latency_ns", F.when(F.col("acknowledged_at").isNotNull(), F.col("latency_ns")))
    )
