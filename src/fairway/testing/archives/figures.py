"""The expected tables of figures for a generated archive, computed from the facts alone.

The tables are about the latency of acknowledgements, participants, channels, bytes, the rate limit and stores. They are
computed by other formulas than in the stages, so that the comparison finds mistakes of a stage. No rows are collected.

Invariant: the result of `told` has the columns of the table, and equals it row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.options import RateLimitConfig
from fairway.units import NS_PER_MS

_KEY: Final = ("channel_id", "message_id")
_SENDER: Final = ("channel_id", "sender_id")
_CHANNEL: Final = ("channel_id",)

_PERCENTS: Final = (50, 95, 99)

_STATS: Final[Mapping[str, str]] = {
    "content": "count_if(is_first AND kind = 'content')",
    "sync": "count_if(is_first AND kind = 'sync')",
    "ephemeral": "count_if(is_first AND kind = 'ephemeral')",
    "repeats": "count_if(fact = 'carrier' AND is_retransmission)",
    "payload_bytes": "coalesce(sum(payload_bytes) FILTER (WHERE is_first), 0)",
    "acknowledged": "count(DISTINCT CASE WHEN fact = 'acknowledged' THEN message_id END)",
    "delivered": "count_if(fact = 'delivered')",
    "delivered_bytes": "coalesce(sum(size_bytes) FILTER (WHERE fact = 'delivered'), 0)",
    "reassembled": "count_if(fact = 'delivered' AND segments > 1)",
    "recovered": "count_if(fact = 'delivered' AND is_recovered)",
    "incomplete": "count_if(fact = 'incomplete')",
    "missing": "count_if(fact = 'missing')",
    "first_seen_ns": "min(timestamp_ns) FILTER (WHERE is_first)",
    "last_seen_ns": "max(timestamp_ns) FILTER (WHERE is_first)",
}
_STATS_OF: Final = (
    "fact IN ('acknowledged', 'delivered', 'incomplete')"
    " OR (fact = 'carrier' AND status = 'ok') OR (fact = 'missing' AND NOT is_rebuilt)"
)

_BYTES: Final[Mapping[str, str]] = {
    "retransmission": "if(is_retransmission, payload_bytes, 0)",
    "sync": "if(NOT is_retransmission AND kind = 'sync', payload_bytes, 0)",
    "content": "if(is_body, content_bytes, 0)",
    "history": "if(is_body, history_bytes, 0)",
    "bloom": "if(is_body, bloom_bytes, 0)",
    "envelope": "if(is_body, payload_bytes - content_bytes - history_bytes - bloom_bytes, 0)",
}
"""Bytes of a whole message by part. A generated archive has no repair requests."""


def told(
    name: str, facts: DataFrame, *, epoch_ms: int = RateLimitConfig().epoch_ms, limit: int | None = None
) -> DataFrame:
    """Return the rows that a table of `FIGURES` must have. The options are those of `stages.rate_utilisation`."""
    if name == "rate_utilisation":
        return _rate_utilisation(facts, epoch_ms, limit)
    return _TOLD[name](facts)


def _ack_latency(facts: DataFrame) -> DataFrame:
    heard = (
        facts.where("fact = 'acknowledged'")
        .withColumn(
            "place",
            F.expr("row_number() OVER (PARTITION BY channel_id, message_id ORDER BY timestamp_ns, acknowledged_by)"),
        )
        .withColumn("ackers", F.expr("count(*) OVER (PARTITION BY channel_id, message_id)"))
        .where("place = 1")
        .select(*_KEY, "ackers", F.col("acknowledged_by").alias("first_by"), F.col("timestamp_ns").alias("acked_at_ns"))
    )
    sent = facts.where("fact = 'carrier' AND kind = 'content' AND NOT is_retransmission")
    return sent.join(heard, [*_KEY], "left").selectExpr(
        *_KEY,
        "sender_id",
        "timestamp_ns AS sent_at_ns",
        "coalesce(ackers, 0) AS ackers",
        "first_by",
        "acked_at_ns",
        # The stores may have only a retry of a message that was acknowledged before.
        "CASE WHEN acked_at_ns < timestamp_ns THEN 0 ELSE (acked_at_ns - timestamp_ns) div 1000000 END AS latency_ms",
    )


def _stats(facts: DataFrame, who: tuple[str, ...], **more: str) -> DataFrame:
    figures = [F.expr(formula).alias(name) for name, formula in {**more, **_STATS}.items()]
    counted = facts.where(_STATS_OF).withColumn("is_first", F.expr("fact = 'carrier' AND NOT is_retransmission"))
    return counted.groupBy(*who).agg(*figures).join(_percentiles(facts, who), [*who], "left")


def _percentiles(facts: DataFrame, who: tuple[str, ...]) -> DataFrame:
    """Return the percentiles of the latencies."""
    every = Window.partitionBy(*who)
    ranked = (
        _ack_latency(facts)
        .where("latency_ms IS NOT NULL")
        # Equal latencies are counted first, so that no channel is one long list for sorting.
        .groupBy(*who, "latency_ms")
        .agg(F.count("*").alias("here"))
        .withColumn("rank", F.sum("here").over(every.orderBy("latency_ms")))
        .withColumn("of", F.sum("here").over(every))
    )
    found = [
        F.expr(f"min(latency_ms) FILTER (WHERE rank >= ({percent} * of + 99) div 100)").alias(f"latency_p{percent}_ms")
        for percent in _PERCENTS
    ]
    return ranked.groupBy(*who).agg(*found)


def _bandwidth(facts: DataFrame) -> DataFrame:
    parts = F.array(*(F.expr(f"struct('{part}' AS part, {size} AS size)") for part, size in _BYTES.items()))
    return (
        facts.where("fact = 'carrier' AND status = 'ok'")
        .withColumn("is_body", F.expr("NOT is_retransmission AND kind <> 'sync'"))
        .select("channel_id", F.inline(parts))
        .where("size > 0")
        .groupBy("channel_id", "part")
        .agg(F.sum("size").alias("bytes"), F.count("*").alias("messages"))
    )


def _rate_utilisation(facts: DataFrame, epoch_ms: int, limit: int | None) -> DataFrame:
    epoch_ns = epoch_ms * NS_PER_MS
    return (
        facts.where("fact = 'carrier' AND status = 'ok'")
        .groupBy("channel_id", "sender_id", F.expr(f"timestamp_ns div {epoch_ns}").alias("epoch"))
        .agg(F.count("*").alias("messages"))
        .select(
            "channel_id",
            "sender_id",
            (F.col("epoch") * epoch_ms).alias("epoch_start_ms"),
            "messages",
            F.lit(0).cast("bigint").alias("message_ids"),
            F.lit(0).cast("bigint").alias("double_signals"),
            F.col("messages").alias("charged"),
            F.lit(limit).cast("bigint").alias("rate_limit"),
            F.round(F.col("messages") * 100 / F.lit(limit).cast("bigint"), 2).alias("pct"),
        )
    )


def _store_completeness(facts: DataFrame) -> DataFrame:
    """Return the number of messages that each store has; a store without messages is not in the run."""
    carriers = facts.where("fact = 'carrier'")
    held = carriers.select(F.explode("sources").alias("source")).groupBy("source").agg(F.count("*").alias("messages"))
    return held.crossJoin(carriers.agg(F.count("*").alias("known"))).selectExpr(
        "source", "messages", "0L AS damaged", "known", "known - messages AS missing"
    )


_TOLD: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "ack_latency": _ack_latency,
    "sender_stats": lambda facts: _stats(facts, _SENDER),
    "channel_stats": lambda facts: _stats(
        facts, _CHANNEL, senders="count(DISTINCT CASE WHEN fact = 'carrier' THEN sender_id END)"
    ),
    "bandwidth": _bandwidth,
    "store_completeness": _store_completeness,
}

FIGURES: Final = (*_TOLD, "rate_utilisation")
"""The tables of figures."""
