"""From ``sds_messages`` to ``rate_utilisation``: the transmissions of each sender in each epoch of the rate limit.

Every transmission, also of a retry or a sync message, counts in the epoch of its timestamp, as for validators of RLN;
epochs are aligned to the Unix epoch. The limit is that of a membership, which an archive does not show: several senders
may share a node, and another participant than the author transmits a repair. Here the author is charged, and equal
sender ids in several channels count as one sender.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.units import NS_PER_MS

RATE_UTILISATION: Final = (
    "sender_id string, epoch_start_ms bigint, messages bigint, channels bigint, limit bigint, pct double"
)
"""The table of the rate limit; ``limit`` and ``pct`` (per cent of the limit) are null when no limit is known."""


def rate_utilisation(
    sds_messages: DataFrame, *, epoch_ms: int = RateLimitConfig().epoch_ms, limit: int | None = None
) -> DataFrame:
    """Return ``rate_utilisation`` (`RATE_UTILISATION`), one row for each sender and epoch in which it sent.

    ``epoch_ms`` is the length of an epoch, ``limit`` the transmissions allowed in each.
    """
    if epoch_ms <= 0:
        raise ConfigurationError(f"epoch_ms must be positive, not {epoch_ms}")
    if limit is not None and limit <= 0:
        raise ConfigurationError(f"limit must be positive, not {limit}; leave it out when there is none")
    timestamp_ms = F.expr(f"timestamp div {NS_PER_MS}")
    allowed = F.lit(limit).cast("bigint")
    return (
        sds_messages.withColumn("timestamp_ms", timestamp_ms)
        .groupBy("sender_id", (F.col("timestamp_ms") - F.pmod("timestamp_ms", F.lit(epoch_ms))).alias("epoch_start_ms"))
        .agg(F.count("*").alias("messages"), F.count_distinct("channel_id").alias("channels"))
        .withColumn("limit", allowed)
        .withColumn("pct", F.round(100 * F.col("messages") / allowed, 2))
    )
