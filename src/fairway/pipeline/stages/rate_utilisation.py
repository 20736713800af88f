"""From ``sds_messages`` and ``repeats`` to ``rate_utilisation``: the transmissions of each sender in each epoch.

Every transmission, also of a retry or a sync message, counts in the epoch of its timestamp, as for validators of RLN.
Epochs are aligned to the Unix epoch. One sending on several shards counts once. The limit belongs to a membership,
which an archive does not show: several senders may share a node, and another participant may transmit a repair. This
stage charges the author, in each channel separately, because equal sender ids in two channels may be two senders.

For messages with RLN proofs, the nullifiers give the number of message ids used. Copies of a signal count once. Two
signals under one nullifier are a violation, which reveals the secret of the membership. A message without a proof
counts as one. Proofs are not verified (`fairway.pipeline.stages.proof_columns`).
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.pipeline.exchange import Cut, bucketed
from fairway.pipeline.stages.sds_messages import RETRANSMISSION
from fairway.pipeline.stages.sums import as_numbers, grouped, ones
from fairway.units import NS_PER_MS

RATE_UTILISATION: Final = (
    "channel_id string, sender_id string, epoch_start timestamp, epoch_start_ms bigint, messages bigint,"
    " message_ids bigint, double_signals bigint, charged bigint, rate_limit bigint, pct double"
)
"""The table of the rate limit; ``charged`` counts towards the limit. ``rate_limit`` and ``pct`` (``charged`` in per
cent of it) are null if no limit is known."""

RATE_INPUT: Final = ("channel_id", "sender_id", "timestamp_ns", "nullifier", "share_x")
"""The columns of ``sds_messages`` and ``repeats`` that are read; of ``repeats`` also ``reason``."""
TRANSMISSIONS: Final = pa.schema(
    [
        ("channel_id", pa.string()),
        ("sender_id", pa.string()),
        ("epoch_start_ms", pa.int64()),
        ("nullifier", pa.binary()),
        ("share_x", pa.binary()),
        ("messages", pa.int64()),
    ]
)
"""Transmissions of a sender of a channel in an epoch; those with a proof apart for each signal."""
EPOCH: Final = ("channel_id", "sender_id", "epoch_start_ms")
"""The key of ``rate_utilisation``."""
_FIGURES: Final = ("messages", "message_ids", "double_signals", "charged")
"""The sums of a sender and epoch; ``charged`` counts towards the limit."""


def transmissions(messages: pa.Table, epoch_ms: int) -> pa.Table:
    """Return the transmissions (`TRANSMISSIONS`) of rows of ``sds_messages``, or of `retransmissions`."""
    table = messages.select(["channel_id", "sender_id", "nullifier", "share_x"])
    table = table.append_column("epoch_start_ms", epoch_starts(messages.column("timestamp_ns"), epoch_ms))
    return added_transmissions(table.append_column("messages", ones(table)))


def epoch_starts(timestamp: pa.ChunkedArray, epoch_ms: int) -> pa.ChunkedArray:
    """Return the start of the epoch of each message, in milliseconds."""
    # Arrow divides towards zero, as Spark's ``div`` does; an epoch begins at or before its messages.
    timestamp_ms = pc.divide(timestamp, NS_PER_MS)
    since_ms = pc.subtract(timestamp_ms, pc.multiply(pc.divide(timestamp_ms, epoch_ms), epoch_ms))
    since_ms = pc.if_else(pc.less(since_ms, 0), pc.add(since_ms, epoch_ms), since_ms)
    return pc.subtract(timestamp_ms, since_ms)


def added_transmissions(counted: pa.Table) -> pa.Table:
    """Return one row for each sender of a channel, epoch and signal with a proof."""
    return grouped(counted, TRANSMISSIONS.names[:-1], {"messages": ("messages", "sum")}).cast(TRANSMISSIONS)


def utilisation(counted: pa.Table, limit: int | None) -> pa.Table:
    """Return ``rate_utilisation`` of transmissions (`TRANSMISSIONS`), which must include all of each sender."""
    sent = added_transmissions(counted)
    proven = pc.is_valid(sent.column("nullifier"))
    signals = grouped(sent.filter(proven), (*EPOCH, "nullifier", "share_x"), {})
    ids = grouped(
        signals.append_column("signals", ones(signals)), (*EPOCH, "nullifier"), {"signals": ("signals", "sum")}
    )
    figures = pa.concat_tables(
        (
            _figures(
                sent,
                messages=sent.column("messages"),
                charged=pc.if_else(proven, pa.scalar(0, pa.int64()), sent.column("messages")),
            ),
            _figures(
                ids,
                message_ids=ones(ids),
                double_signals=as_numbers(pc.greater(ids.column("signals"), 1)),
                charged=ones(ids),
            ),
        )
    )
    found = grouped(figures, EPOCH, {name: (name, "sum") for name in _FIGURES})
    charged = found.column("charged")
    if limit is None:
        nothing = pa.nulls(found.num_rows, pa.int64())
        return found.append_column("rate_limit", nothing).append_column("pct", nothing.cast(pa.float64()))
    found = found.append_column("rate_limit", pa.array(np.full(found.num_rows, limit), pa.int64()))
    counts = charged.unique()
    shares = pa.array([_per_cent(count, limit) for count in counts.to_pylist()], pa.float64())
    return found.append_column("pct", shares.take(pc.index_in(charged, counts)))


def _figures(rows: pa.Table, **known: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return rows of senders and epochs with all figures (`_FIGURES`), 0 for absent ones."""
    columns = {name: rows.column(name) for name in EPOCH}
    nothing = pa.array(np.zeros(rows.num_rows, np.int64))
    return pa.table(columns | {name: known.get(name, nothing) for name in _FIGURES})


def _per_cent(messages: int, limit: int) -> float:
    """Return the share in per cent with two decimals; halves are rounded up, as Spark's ``round`` does."""
    return float(Decimal(repr(100 * messages / limit)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def rate_utilisation(
    sds_messages: DataFrame,
    repeats: DataFrame,
    *,
    epoch_ms: int = RateLimitConfig().epoch_ms,
    limit: int | None = None,
) -> DataFrame:
    """Return ``rate_utilisation`` (`RATE_UTILISATION`), one row for each sender of a channel and epoch with a message.

    ``epoch_ms`` is the length of an epoch, ``limit`` the transmissions allowed in each.
    """
    if epoch_ms <= 0:
        raise ConfigurationError(f"epoch_ms must be positive, not {epoch_ms}")
    if limit is not None and limit <= 0:
        raise ConfigurationError(f"limit must be positive, not {limit}; leave it out when there is none")
    counted = Cut(
        frame=sds_messages.select(*RATE_INPUT).unionAll(
            repeats.where(F.col("reason") == RETRANSMISSION).select(*RATE_INPUT)
        ),
        by=["channel_id", "sender_id"],
        prepare=lambda table: {"transmissions": transmissions(table, epoch_ms)},
    )
    return bucketed([counted], lambda bucket: [utilisation(bucket.tables["transmissions"], limit)], RATE_UTILISATION)
