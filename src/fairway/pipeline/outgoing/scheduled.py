"""From ``outgoing_messages`` to ``scheduled``: the time of sending of each message, within the rate limit.

A batch is sent through one node, and the rate limit is that of the node's membership (17/WAKU2-RLN-RELAY): all senders
and channels share it. Their messages are ordered by the earliest time of sending, then by the number of payloads of
their sender before them in the channel, so that senders and channels take turns, and within a payload by segment. Each
message takes the first free place in an epoch in which it may be sent; place n is in epoch n / limit. With ``released``
the first epoch in which a message may be sent,

    place(i) = i + max over j <= i of (released(j) * limit - j)

Messages with the same time of release and the same number of payloads before them are a group. ``released`` is the same
within a group, so SQL computes the maximum over the first messages of the groups. Epochs are aligned to the Unix epoch,
as `rate_utilisation` counts them.

Ephemeral messages are not in that order, because they must not wait (RELIABLE-CHANNEL-API, "Ephemeral messages"). They
are sent in the epoch of their release until the threshold for dropping them is reached; the column ``dropped`` of the
others has the reason.

Every transmission is charged, as RLN does and RELIABLE-CHANNEL-API says.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.pipeline.instants import frame_with_instants
from fairway.pipeline.outgoing.tables import SCHEDULED
from fairway.units import NS_PER_MS

NO_ROOM: Final = "the rate limit has no room for it in its epoch"
"""The reason why an ephemeral message is not sent."""
_EPHEMERAL_SHARE: Final = Fraction(str(RateLimitConfig().approached_threshold))


def scheduled(
    outgoing_messages: DataFrame,
    rate_limit: int | None = None,
    *,
    epoch_ms: int = RateLimitConfig().epoch_ms,
    start_ms: int = 0,
) -> DataFrame:
    """Return ``scheduled`` (`SCHEDULED`): every message with its epoch, its time and its WakuMessage's hash.

    ``rate_limit`` is the number of transmissions in an epoch of ``epoch_ms``, None for no limit. No message is sent
    before ``start_ms``. ``timestamp_ns`` grows with the order of sending, and is unique for each sender. Raises
    `ConfigurationError` for invalid numbers.
    """
    check_limit(rate_limit, epoch_ms)
    sender = Window.partitionBy("sender_id")
    order = ("release_ms", "payload_number", "channel_id", "sender_id", "chunk_index")
    released = F.floor(F.col("release_ms") / F.lit(epoch_ms)).cast("bigint")
    table = (
        outgoing_messages.withColumn("release_ms", F.greatest("release_ms", F.lit(start_ms)))
        .withColumn("ephemeral", F.coalesce("ephemeral", F.lit(False)))
        .withColumn("epoch", released)
        .withColumn("dropped", F.lit(None).cast("string"))
    )
    if rate_limit is not None:
        table = _within(table, rate_limit, order)
    table = table.withColumn("place", F.row_number().over(sender.orderBy("epoch", *order)).cast("bigint") - 1)
    in_epoch = Window.partitionBy("sender_id", "epoch").orderBy("place")
    stamp = F.col("not_before_ms") * NS_PER_MS + F.row_number().over(in_epoch) - 1
    stamped = (
        table.withColumn("epoch_start_ms", F.col("epoch") * epoch_ms)
        .withColumn("not_before_ms", F.greatest("release_ms", "epoch_start_ms"))
        .withColumn("not_after_ms", F.when(F.col("ephemeral"), F.col("epoch_start_ms") + epoch_ms))
        .withColumn("timestamp_ns", stamp)
        .withColumn("message_hash", _message_hash())
    )
    return frame_with_instants(stamped, SCHEDULED)


def _within(table: DataFrame, rate_limit: int, order: tuple[str, ...]) -> DataFrame:
    """Return messages whose ``epoch`` is that of their release with the epoch of their sending instead."""
    # Only the sizes of the groups are in one task, not the messages.
    group = ("ephemeral", "release_ms", "payload_number")
    sizes = table.groupBy(*group, "epoch").agg(F.count(F.lit(1)).alias("size"))
    so_far = Window.partitionBy("ephemeral").orderBy(*group[1:])
    groups = sizes.withColumn("before", F.sum("size").over(so_far) - F.col("size"))
    groups = groups.withColumn("lead", F.max(F.col("epoch") * rate_limit - F.col("before")).over(so_far))
    table = table.join(groups.drop("epoch", "size"), list(group))
    in_group = F.row_number().over(Window.partitionBy(*group).orderBy(*order)) - 1
    table = table.withColumn("turn", F.col("before") + in_group)
    waited_for = F.expr(f"(turn + lead) div {rate_limit}")
    table = table.withColumn("epoch", F.when(F.col("ephemeral"), F.col("epoch")).otherwise(waited_for))
    lasting = F.sum((~F.col("ephemeral")).cast("bigint")).over(Window.partitionBy("epoch"))
    before = F.row_number().over(Window.partitionBy("epoch", "ephemeral").orderBy(*order)) - 1
    no_room = F.col("ephemeral") & (lasting + before >= math.ceil(rate_limit * _EPHEMERAL_SHARE))
    return table.withColumn("dropped", F.when(no_room, F.lit(NO_ROOM)))


def check_limit(rate_limit: int | None, epoch_ms: int) -> None:
    """Raise `ConfigurationError` for an invalid rate limit."""
    if rate_limit is not None and rate_limit < 1:
        raise ConfigurationError(f"rate_limit must be at least 1, not {rate_limit}; leave it out when there is none")
    if epoch_ms < 1:
        raise ConfigurationError(f"epoch_ms must be positive, not {epoch_ms}")


def _message_hash() -> Column:
    """Return the deterministic hash of a message (14/WAKU2-MESSAGE) as `fairway.wire.waku_message` computes it."""
    stamp = F.unhex(F.lpad(F.hex("timestamp_ns"), 16, "0"))
    topics = (F.col("pubsub_topic").cast("binary"), F.col("content_topic").cast("binary"))
    whole = F.concat(topics[0], F.col("payload"), topics[1], F.coalesce("meta", F.lit(b"")), stamp)
    return F.unhex(F.sha2(whole, 256))
