"""From ``unique_messages`` to ``acknowledgements``: which participants have which messages of others, by what evidence.

A participant acknowledges a message by citing it in a causal history; or by a bloom filter that contains it, together
with the citation of a causal descendant; or, when two participants do so, by a bloom filter alone. Citations are in
``sds_messages``. For the filters `bloom_evidence` reads ``waku_messages`` again; without it the result is a lower
bound. A sender does not acknowledge its own messages.

Times are the timestamps of the senders, so that a latency includes the difference of two clocks; a negative latency
counts as 0.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.options import SdsConfig
from fairway.pipeline.stages.missing_messages import citations
from fairway.units import NS_PER_MS

ACKNOWLEDGEMENTS: Final = (
    "channel_id string, message_id string, sender_id string, acknowledged_by string, how string, at bigint"
)
"""The table of acknowledgements, one row for each content message and participant other than its sender."""

_KEY: Final = ("channel_id", "message_id")
_POSSIBLE: Final = "bloom"


def acknowledgements(
    unique_messages: DataFrame,
    bloom_evidence: DataFrame | None = None,
    *,
    possible_acks_threshold: int = SdsConfig().possible_acks_threshold,
) -> DataFrame:
    """Return ``acknowledgements`` (`ACKNOWLEDGEMENTS`).

    ``bloom_evidence`` is the result of the stage of that name. The earliest evidence counts; evidence by filters alone
    counts once ``possible_acks_threshold`` participants give it.
    """
    cited = citations(unique_messages).select(
        *_KEY,
        F.col("citing_sender_id").alias("acknowledged_by"),
        F.lit("cited").alias("how"),
        F.col("cited_at").alias("at"),
    )
    evidence = cited if bloom_evidence is None else cited.unionByName(bloom_evidence.select(*cited.columns))
    sent = unique_messages.where("kind = 'content'").select(*_KEY, "sender_id")
    known = (
        # One shuffle serves both the grouping and the join.
        evidence.repartition(*_KEY)
        .groupBy(*_KEY, "acknowledged_by")
        .agg(
            F.min(F.when(F.col("how") != _POSSIBLE, F.struct("at", "how"))).alias("certain"),
            F.min("at").alias("at"),
        )
        .join(sent, [*_KEY])
        .where("acknowledged_by <> sender_id")
        .select(
            *_KEY,
            "sender_id",
            "acknowledged_by",
            F.coalesce("certain.how", F.lit(_POSSIBLE)).alias("how"),
            F.coalesce("certain.at", "at").alias("at"),
        )
    )
    if bloom_evidence is None:
        return known
    witnesses = F.sum((F.col("how") == _POSSIBLE).cast("int")).over(Window.partitionBy(*_KEY))
    return (
        known.withColumn("witnesses", witnesses)
        .where((F.col("how") != _POSSIBLE) | (F.col("witnesses") >= possible_acks_threshold))
        .drop("witnesses")
    )


def ack_latency(unique_messages: DataFrame, acknowledgements: DataFrame) -> DataFrame:
    """Return one row for each content message.

    Columns: channel_id, message_id, sender_id, sent_at, ackers (how many participants), first_by (who was first, null
    for nobody), acked_at, latency_ms (from sent_at to acked_at).
    """
    sent = unique_messages.where("kind = 'content'").select(*_KEY, "sender_id", F.col("timestamp").alias("sent_at"))
    heard = acknowledgements.groupBy(*_KEY).agg(
        F.count("*").cast("int").alias("ackers"), F.min(F.struct("at", "acknowledged_by")).alias("first")
    )
    # Senders choose timestamps; a difference that does not fit an integer is no latency.
    latency_ns = F.greatest(F.lit(0), F.try_subtract("first.at", "sent_at"))
    latency_ms = F.floor(latency_ns / NS_PER_MS).cast("bigint")
    return sent.join(heard, [*_KEY], "left").select(
        *_KEY,
        "sender_id",
        "sent_at",
        F.coalesce("ackers", F.lit(0)).alias("ackers"),
        F.col("first.acknowledged_by").alias("first_by"),
        F.col("first.at").alias("acked_at"),
        F.when(F.try_subtract("first.at", "sent_at").isNotNull(), latency_ms).alias("latency_ms"),
    )
