"""From ``outgoing_messages`` to ``scheduled``: when each message leaves, within the rate limit.

A sender has one rate limit for all of his channels (seed 002, "Rate Limit Manager"). His messages are put in one order:
by the time at which they may leave at the earliest, then by how many payloads came before in their channel, so that
channels take turns, and within a payload by segment. Each takes the first place that is free in an epoch that has come,
and the n-th place of all is in epoch n / limit. With ``released`` the first epoch in which a message may leave,

    place(i) = i + max over j <= i of (released(j) * limit - j)

which SQL computes in one window. Epochs are aligned to the Unix epoch, as `rate_utilisation` counts them.

The seeds disagree on what counts: in 000 every transmission, in 002 the first segment of a message; see `Counting`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.pipeline.schema import columns_of

SCHEDULED: Final = (
    "sender_id string, place bigint, epoch bigint, epoch_start_ms bigint, not_before_ms bigint, channel_id string,"
    " seq bigint, message_id string, chunk_index int, counted boolean, message_hash binary, timestamp bigint,"
    " content_topic string, pubsub_topic string, payload binary, version int, meta binary, ephemeral boolean"
)
"""The table of the schedule: ``place`` is the order of a sender's messages, from 0; ``counted`` whether it is charged
to the rate limit. It is what the sink ``waku`` takes."""

_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


class Counting(Enum):
    """What is charged to the rate limit."""

    SEGMENTS = "segments"
    """Every transmission (seed 000), as RLN does."""
    MESSAGES = "messages"
    """The first segment of each message (seed 002); the others go in the same epoch."""


def scheduled(
    outgoing_messages: DataFrame,
    rate_limit: int | None = None,
    *,
    epoch_ms: int = RateLimitConfig().epoch_ms,
    start_ms: int = 0,
    counting: Counting = Counting.SEGMENTS,
) -> DataFrame:
    """Return ``scheduled`` (`SCHEDULED`): every message with its epoch, its time and its WakuMessage's hash.

    ``rate_limit`` is what a sender may transmit in an epoch of ``epoch_ms``, None for no limit. Nothing leaves before
    ``start_ms``. ``timestamp`` grows with the order of sending: no two messages of a sender share one. Raises
    `ConfigurationError` for figures that cannot be.
    """
    check_limit(rate_limit, epoch_ms)
    sender = Window.partitionBy("sender_id")
    order = sender.orderBy("release_ms", "payload_number", "channel_id", "chunk_index")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    counted = (F.col("chunk_index") == 0) if counting is Counting.MESSAGES else F.lit(True)
    released = F.floor(F.col("release_ms") / F.lit(epoch_ms)).cast("bigint")
    table = (
        outgoing_messages.withColumn("release_ms", F.greatest("release_ms", F.lit(start_ms)))
        .withColumn("counted", counted)
        .withColumn("place", F.row_number().over(order).cast("bigint") - 1)
        .withColumn("released", released)
    )
    if rate_limit is None:
        table = table.withColumn("epoch", F.col("released"))
    else:
        charge = F.sum(F.col("counted").cast("bigint")).over(so_far) - 1
        lead = F.max(F.col("released") * rate_limit - F.col("charge")).over(so_far)
        table = table.withColumn("charge", charge).withColumn("lead", lead)
        table = table.withColumn("epoch", F.expr(f"(charge + lead) div {rate_limit}"))
    in_epoch = Window.partitionBy("sender_id", "epoch").orderBy("place")
    stamp = F.col("not_before_ms") * _NANOSECONDS_PER_MILLISECOND + F.row_number().over(in_epoch) - 1
    return (
        table.withColumn("epoch_start_ms", F.col("epoch") * epoch_ms)
        .withColumn("not_before_ms", F.greatest("release_ms", "epoch_start_ms"))
        .withColumn("timestamp", stamp)
        .withColumn("message_hash", _message_hash())
        .select(*columns_of(SCHEDULED))
    )


def check_limit(rate_limit: int | None, epoch_ms: int) -> None:
    """Raise `ConfigurationError` for a rate limit that cannot be."""
    if rate_limit is not None and rate_limit < 1:
        raise ConfigurationError(f"rate_limit must be at least 1, not {rate_limit}; leave it out when there is none")
    if epoch_ms < 1:
        raise ConfigurationError(f"epoch_ms must be positive, not {epoch_ms}")


def _message_hash() -> Column:
    """Return the deterministic hash of a message (14/WAKU2-MESSAGE) as `fairway.wire.waku_message` computes it."""
    stamp = F.unhex(F.lpad(F.hex("timestamp"), 16, "0"))
    topics = (F.col("pubsub_topic").cast("binary"), F.col("content_topic").cast("binary"))
    whole = F.concat(topics[0], F.col("payload"), topics[1], F.coalesce("meta", F.lit(b"")), stamp)
    return F.unhex(F.sha2(whole, 256))
