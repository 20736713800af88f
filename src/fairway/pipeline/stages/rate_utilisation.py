"""From ``sds_messages`` to ``rate_utilisation``: the transmissions of each sender in each epoch of the rate limit.

Every transmission, also of a retry or a sync message, counts in the epoch of its timestamp, as for validators of RLN;
epochs are aligned to the Unix epoch. The limit is that of a membership, which an archive does not show: several senders
may share a node, and another participant than the author transmits a repair. Here the author is charged, and equal
sender ids in several channels count as one sender.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.stages.sums import grouped, ones
from fairway.units import NS_PER_MS

RATE_UTILISATION: Final = (
    "sender_id string, epoch_start timestamp, epoch_start_ms bigint, messages bigint, channels bigint, limit bigint,"
    " pct double"
)
"""The table of the rate limit; ``limit`` and ``pct`` (per cent of the limit) are null when no limit is known."""

RATE_INPUT: Final = ("channel_id", "sender_id", "timestamp_ns")
"""The columns of ``sds_messages`` that are read."""
TRANSMISSIONS: Final = pa.schema(
    [("sender_id", pa.string()), ("epoch_start_ms", pa.int64()), ("channel_id", pa.string()), ("messages", pa.int64())]
)
"""Transmissions of a sender in an epoch in one channel."""
_EPOCH: Final = ("sender_id", "epoch_start_ms")


def transmissions(sds_messages: pa.Table, epoch_ms: int) -> pa.Table:
    """Return the transmissions (`TRANSMISSIONS`) among some rows of ``sds_messages``."""
    table = sds_messages.select(["sender_id", "channel_id"])
    table = table.append_column("epoch_start_ms", epoch_starts(sds_messages.column("timestamp_ns"), epoch_ms))
    return added_transmissions(table.append_column("messages", ones(table)))


def epoch_starts(timestamp: pa.ChunkedArray, epoch_ms: int) -> pa.ChunkedArray:
    """Return in which epochs messages were sent: the milliseconds at which these began."""
    # Arrow divides towards zero, as Spark's ``div`` does; an epoch begins at or before its messages.
    timestamp_ms = pc.divide(timestamp, NS_PER_MS)
    since_ms = pc.subtract(timestamp_ms, pc.multiply(pc.divide(timestamp_ms, epoch_ms), epoch_ms))
    since_ms = pc.if_else(pc.less(since_ms, 0), pc.add(since_ms, epoch_ms), since_ms)
    return pc.subtract(timestamp_ms, since_ms)


def added_transmissions(counted: pa.Table) -> pa.Table:
    """Return one row for each sender, epoch and channel."""
    return grouped(counted, TRANSMISSIONS.names[:3], {"messages": ("messages", "sum")}).cast(TRANSMISSIONS)


def utilisation(counted: pa.Table, limit: int | None) -> pa.Table:
    """Return ``rate_utilisation`` of transmissions (`TRANSMISSIONS`), all that there are of each sender."""
    channels = added_transmissions(counted)
    channels = channels.append_column("channels", ones(channels))
    found = grouped(channels, _EPOCH, {"messages": ("messages", "sum"), "channels": ("channels", "sum")})
    found = found.append_column("limit", pa.array(np.full(found.num_rows, limit or 0), pa.int64()))
    if limit is None:
        found = found.set_column(4, "limit", pa.nulls(found.num_rows, pa.int64()))
        return found.append_column("pct", pa.nulls(found.num_rows, pa.float64()))
    counts = found.column("messages").unique()
    shares = pa.array([_per_cent(count, limit) for count in counts.to_pylist()], pa.float64())
    return found.append_column("pct", shares.take(pc.index_in(found.column("messages"), counts)))


def _per_cent(messages: int, limit: int) -> float:
    """Return the share in per cent with two decimals; halves are rounded up, as Spark's ``round`` does."""
    return float(Decimal(repr(100 * messages / limit)).quantize(Decimal("0.01"), ROUND_HALF_UP))


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
    counted = Cut(
        frame=sds_messages.select(*RATE_INPUT),
        by=["sender_id"],
        prepare=lambda table: {"transmissions": transmissions(table, epoch_ms)},
    )
    return bucketed([counted], lambda bucket: [utilisation(bucket.tables["transmissions"], limit)], RATE_UTILISATION)
