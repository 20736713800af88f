"""From the tables of the stages to the values of a report: small aggregates and the heads of sorted lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, Row
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


def channels(channel_stats: DataFrame) -> tuple[ChannelReport, ...]:
    """Return all channels, the busiest first."""
    rows = channel_stats.orderBy(F.desc("content"), F.desc("sync"), "channel_id").collect()
    return tuple(_known(ChannelReport, row) for row in rows)


def busiest(sender_stats: DataFrame, limit: int) -> tuple[SenderReport, ...]:
    """Return the senders of whom there are messages, the busiest first."""
    present = sender_stats.where("first_seen IS NOT NULL")
    rows = present.orderBy(F.desc("content"), F.desc("sync"), "channel_id", "sender_id").limit(limit).collect()
    return tuple(_known(SenderReport, row) for row in rows)


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


def _known(make: type[_Value], row: Row) -> _Value:
    """Return a report of those columns that it has a field for."""
    told = row.asDict()
    return make(**{field.name: told[field.name] for field in fields(make)})  # type: ignore[arg-type]
