"""Violations of the rate limit: `over_limit`, senders above it, and `double_signals`, senders that reused message ids.

A sender here is a pair of a channel and a sender id. For messages with RLN proofs the message ids count towards the
limit, for others every message (``charged``). Two messages with one message id are a violation under any limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from fairway.pipeline.report.bounded import Divided, Order, Top
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.sums import grouped

IS_OVER: Final = ds.field("charged") > ds.field("rate_limit")
"""The condition for epochs of senders above the limit. The column ``pct`` is rounded."""
_WHO: Final = ("channel_id", "sender_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverLimit:
    """A sender, and the epoch in which it was furthest above the limit."""

    channel_id: str
    sender_id: str
    epochs: int
    """Number of epochs in which it was above the limit."""
    epoch_start_ms: int
    messages: int
    """Messages that counted towards the limit in that epoch."""
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleSignals:
    """A sender that used message ids of RLN for more than one message, and the first epoch in which it did."""

    channel_id: str
    sender_id: str
    epoch_start_ms: int
    message_ids: int
    """Message ids that it used for more than one message, in all epochs."""


def over_limit(tables: RunTables, most: int) -> tuple[tuple[OverLimit, ...], int]:
    """Return the senders above the limit, the furthest first and at most ``most``, and the number of all of them."""
    columns = ["epoch_start_ms", "charged", "rate_limit"]
    rows, total = _worst_senders(
        tables,
        columns,
        IS_OVER,
        [("charged", "descending"), ("epoch_start_ms", "ascending")],
        {name: (name, "first") for name in columns} | {"epochs": ("charged", "count")},
        [("charged", "descending"), ("epochs", "descending")],
        most,
    )
    told = (
        OverLimit(
            channel_id=row["channel_id"],
            sender_id=row["sender_id"],
            epochs=row["epochs"],
            epoch_start_ms=row["epoch_start_ms"],
            messages=row["charged"],
            limit=row["rate_limit"],
        )
        for row in rows
    )
    return tuple(told), total


def double_signals(tables: RunTables, most: int) -> tuple[tuple[DoubleSignals, ...], int]:
    """Return the senders that used message ids twice, those with the most first and at most ``most``, and their number.

    The proofs are not verified.
    """
    rows, total = _worst_senders(
        tables,
        ["epoch_start_ms", "double_signals"],
        ds.field("double_signals") > 0,
        [],
        {"epoch_start_ms": ("epoch_start_ms", "min"), "message_ids": ("double_signals", "sum")},
        [("message_ids", "descending")],
        most,
    )
    return tuple(DoubleSignals(**row) for row in rows), total


def _worst_senders(
    tables: RunTables,
    columns: Sequence[str],
    where: ds.Expression,
    within: Order,
    figures: Mapping[str, tuple[str, str]],
    order: Order,
    most: int,
) -> tuple[list[dict[str, Any]], int]:
    """Return the first senders in ``order``, and the number of all of them.

    ``figures`` are functions over the epochs of a sender, which are sorted by ``within``.
    """
    top, total = Top([*order, ("channel_id", "ascending"), ("sender_id", "ascending")], most), 0
    with Divided(_WHO, tables.rows("rate_utilisation")) as epochs:
        for batch in tables.batches("rate_utilisation", [*_WHO, *columns], where):
            epochs.add(pa.Table.from_batches([batch]))
        for part in epochs:
            senders = grouped(part.sort_by(list(within)) if within else part, _WHO, figures)
            total += senders.num_rows
            top.add(senders)
    return top.rows(), total
