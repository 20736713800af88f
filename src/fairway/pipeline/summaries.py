"""From the tables of the stages to the values of a report: small aggregates and the heads of sorted lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.archive_report import (
    ChannelReport,
    DeliveredMessage,
    IncompleteMessage,
    MissingMessage,
    Quarantined,
    SenderReport,
)
from fairway.pipeline.stages import Status

_PERCENTILES: Final = (0.5, 0.95)
_PERCENTILE_ACCURACY: Final = 10_000
_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000

_WHO: Final = ["channel_id", "sender_id"]
_FIGURES: Final = (
    "content",
    "sync",
    "ephemeral",
    "repeats",
    "acknowledged",
    "delivered",
    "delivered_bytes",
    "reassembled",
    "recovered",
    "incomplete",
    "missing",
)

_Value = TypeVar("_Value")


def contents(sds_messages: DataFrame) -> dict[str, Any]:
    """Return messages, payload_bytes, first_ns, last_ns, and quarantined: why the rest could not be decoded."""
    rows = (
        sds_messages.groupBy("status")
        .agg(
            F.count("*").alias("messages"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.min("timestamp").alias("first_ns"),
            F.max("timestamp").alias("last_ns"),
            F.min("error").alias("example"),
        )
        .collect()
    )
    refused = [
        Quarantined(status=row.status, count=row.messages, example=row.example)
        for row in rows
        if row.status != Status.OK.value
    ]
    return {
        "messages": sum(row.messages for row in rows),
        "payload_bytes": sum(row.payload_bytes for row in rows),
        "first_ns": min((row.first_ns for row in rows), default=None),
        "last_ns": max((row.last_ns for row in rows), default=None),
        "quarantined": tuple(sorted(refused, key=lambda reason: (-reason.count, reason.status))),
    }


def figures(
    unique_messages: DataFrame,
    acknowledgements: DataFrame,
    delivered: DataFrame,
    incomplete: DataFrame,
    missing: DataFrame,
    limit: int,
) -> tuple[tuple[ChannelReport, ...], tuple[SenderReport, ...]]:
    """Return all channels and the busiest senders, the busiest first.

    One query for both: what there is to count, from all tables, is grouped by channel and by channel and sender.
    """
    counted = [
        unique_messages.select(
            *_WHO,
            F.col("sender_id").alias("present"),
            _if("kind = 'content'").alias("content"),
            _if("kind = 'sync'").alias("sync"),
            _if("kind = 'ephemeral'").alias("ephemeral"),
            (F.col("sightings") - 1).alias("repeats"),
        ),
        acknowledgements.select(*_WHO, _if("acknowledged_by > 0").alias("acknowledged"), "latency_ns"),
        delivered.select(
            *_WHO,
            F.lit(1).alias("delivered"),
            F.col("size_bytes").alias("delivered_bytes"),
            _if("segments > 1").alias("reassembled"),
            _if("recovered").alias("recovered"),
        ),
        incomplete.select(*_WHO, F.lit(1).alias("incomplete")),
        missing.select(*_WHO, F.lit(1).alias("missing")),
    ]
    everything = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), counted)
    grouped = everything.groupingSets([["channel_id"], _WHO], *_WHO).agg(
        F.grouping("sender_id").alias("is_channel"),
        F.count_distinct("present").alias("senders"),
        F.percentile_approx("latency_ns", list(_PERCENTILES), _PERCENTILE_ACCURACY).alias("latency"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _FIGURES),
    )
    busiest = Window.partitionBy("is_channel").orderBy(F.desc("content"), F.desc("sync"), *_WHO)
    rows = (
        grouped.where("senders > 0")
        .withColumn("rank", F.row_number().over(busiest))
        .where(F.expr("is_channel = 1") | (F.col("rank") <= limit))
        .orderBy("rank")
        .collect()
    )
    return (
        tuple(_channel(row.asDict()) for row in rows if row.is_channel),
        tuple(_sender(row.asDict()) for row in rows if not row.is_channel),
    )


def largest(delivered: DataFrame, limit: int) -> tuple[DeliveredMessage, ...]:
    """Return the largest messages that can be read."""
    table = delivered.select(
        "channel_id",
        "sender_id",
        "message_id",
        "size_bytes",
        "segments",
        "recovered",
        F.col("timestamp").alias("timestamp_ns"),
    )
    return _head(table, [F.desc("size_bytes"), "timestamp_ns", "channel_id", "message_id"], limit, DeliveredMessage)


def nearly_complete(incomplete: DataFrame, limit: int) -> tuple[IncompleteMessage, ...]:
    """Return the sets of segments that give no message, those first that lack least."""
    table = incomplete.select(
        "channel_id",
        "sender_id",
        F.col("segment_hash").alias("payload_hash"),
        "outcome",
        "held",
        F.col("data_segments").alias("needed"),
    )
    lacking = F.asc_nulls_last(F.col("needed") - F.col("held"))
    return _head(table, [lacking, "channel_id", "sender_id", "payload_hash"], limit, IncompleteMessage)


def most_cited(missing: DataFrame, limit: int) -> tuple[MissingMessage, ...]:
    """Return the missing messages that most others cite."""
    table = missing.select(
        "channel_id",
        "message_id",
        "sender_id",
        "retrieval_hint",
        "cited_by",
        F.col("first_cited").alias("first_cited_ns"),
    )
    return _head(table, [F.desc("cited_by"), "first_cited_ns", "channel_id", "message_id"], limit, MissingMessage)


def _head(
    table: DataFrame, order: Sequence[Column | str], limit: int, make: Callable[..., _Value]
) -> tuple[_Value, ...]:
    rows: list[Row] = table.orderBy(*order).limit(limit).collect()
    return tuple(make(**_plain(row)) for row in rows)


def _plain(row: Row) -> dict[str, Any]:
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}


def _if(condition: str) -> Column:
    return F.expr(condition).cast("int")


def _channel(row: dict[str, Any]) -> ChannelReport:
    latencies = row["latency"] or [None] * len(_PERCENTILES)
    p50, p95 = (None if value is None else value // _NANOSECONDS_PER_MILLISECOND for value in latencies)
    return ChannelReport(
        channel_id=row["channel_id"],
        senders=row["senders"],
        latency_p50_ms=p50,
        latency_p95_ms=p95,
        **{name: row[name] for name in _FIGURES},
    )


def _sender(row: dict[str, Any]) -> SenderReport:
    return SenderReport(
        channel_id=row["channel_id"],
        sender_id=row["sender_id"],
        content=row["content"],
        sync=row["sync"],
        acknowledged=row["acknowledged"],
    )
