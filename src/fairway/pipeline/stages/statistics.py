"""To ``sender_stats`` and ``channel_stats``: the counts of messages sent and lost by each participant and channel.

The rows to count, from all tables, are put into one and grouped by channel and sender; the counts of a channel are the
sums of its participants. So the work is spread by both, and a busy channel is not the work of one task.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FIGURES: Final = (
    "content",
    "sync",
    "ephemeral",
    "repeats",
    "payload_bytes",
    "acknowledged",
    "delivered",
    "delivered_bytes",
    "reassembled",
    "recovered",
    "incomplete",
    "missing",
)
"""The counts that both tables have."""

_WHO: Final = ["channel_id", "sender_id"]
_PERCENTILES: Final = (0.5, 0.95, 0.99)
_PERCENTILE_ACCURACY: Final = 10_000
_LATENCIES: Final = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms")


def sender_stats(
    unique_messages: DataFrame,
    ack_latency: DataFrame,
    delivered: DataFrame,
    incomplete: DataFrame,
    missing_messages: DataFrame,
) -> DataFrame:
    """Return one row for each participant of each channel.

    Columns: channel_id, sender_id, `FIGURES`, first_seen and last_seen (timestamps of messages, nanoseconds; null for
    an author of whom only citations tell), latency_p50_ms, latency_p95_ms, latency_p99_ms (until somebody
    acknowledged). ``sender_id`` is null for missing messages whose author is not named.
    """
    counted = [
        unique_messages.select(
            *_WHO,
            "timestamp",
            "payload_bytes",
            _if("kind = 'content'").alias("content"),
            _if("kind = 'sync'").alias("sync"),
            _if("kind = 'ephemeral'").alias("ephemeral"),
            (F.col("sightings") - 1).alias("repeats"),
        ),
        ack_latency.select(*_WHO, _if("ackers > 0").alias("acknowledged"), "latency_ms"),
        delivered.select(
            *_WHO,
            F.lit(1).alias("delivered"),
            F.col("size_bytes").alias("delivered_bytes"),
            _if("segments > 1").alias("reassembled"),
            _if("recovered").alias("recovered"),
        ),
        incomplete.select(*_WHO, F.lit(1).alias("incomplete")),
        missing_messages.select(*_WHO, F.lit(1).alias("missing")),
    ]
    everything = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), counted)
    return everything.groupBy(*_WHO).agg(
        *_sums(),
        F.min("timestamp").alias("first_seen"),
        F.max("timestamp").alias("last_seen"),
        *_percentiles(),
    )


def channel_stats(sender_stats: DataFrame, ack_latency: DataFrame) -> DataFrame:
    """Return one row for each channel.

    Columns: channel_id, senders (of whom there is a message), `FIGURES`, first_seen, last_seen, latency_p50_ms,
    latency_p95_ms, latency_p99_ms.
    """
    sums = sender_stats.groupBy("channel_id").agg(
        F.count("first_seen").cast("int").alias("senders"),
        *_sums(),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
    )
    latencies = ack_latency.groupBy("channel_id").agg(*_percentiles())
    return sums.join(latencies, "channel_id", "left")


def _sums() -> list[Column]:
    return [F.coalesce(F.sum(name), F.lit(0)).cast("bigint").alias(name) for name in FIGURES]


def _percentiles() -> list[Column]:
    measured = F.percentile_approx("latency_ms", list(_PERCENTILES), _PERCENTILE_ACCURACY)
    return [measured[place].alias(name) for place, name in enumerate(_LATENCIES)]


def _if(condition: str) -> Column:
    return F.expr(condition).cast("int")
