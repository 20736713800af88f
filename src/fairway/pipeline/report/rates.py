"""Violations of the rate limit: `over_limit`, senders above it, and `double_signals`, senders that reused message ids.

A sender here is a pair of a channel and a sender id. For messages with RLN proofs the message ids count towards the
limit, for others every message (``charged``). Two messages with one message id are a violation under any limit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import pyarrow.dataset as ds

from fairway.pipeline.run.reading import RunTables

_FULL_PCT: Final = 100.0


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


def epochs_over_limit(tables: RunTables) -> frozenset[tuple[str, str, int]]:
    """Return channel, sender and beginning of each epoch in which a sender was above the limit."""
    columns = ["channel_id", "sender_id", "epoch_start_ms"]
    return frozenset(
        (row["channel_id"], row["sender_id"], row["epoch_start_ms"])
        for batch in tables.batches("rate_utilisation", columns, ds.field("pct") > _FULL_PCT)
        for row in batch.to_pylist()
    )


def over_limit(tables: RunTables) -> tuple[OverLimit, ...]:
    """Return the senders above the limit, the furthest first; none if the run has no limit."""
    epochs: Counter[tuple[str, str]] = Counter()
    worst: dict[tuple[str, str], OverLimit] = {}
    columns = ["channel_id", "sender_id", "epoch_start_ms", "charged", "rate_limit"]
    for batch in tables.batches("rate_utilisation", columns, ds.field("pct") > _FULL_PCT):
        for row in batch.to_pylist():
            sender, counted = (row["channel_id"], row["sender_id"]), row["charged"]
            epochs[sender] += 1
            if sender not in worst or counted > worst[sender].messages:
                worst[sender] = OverLimit(
                    channel_id=row["channel_id"],
                    sender_id=row["sender_id"],
                    epochs=0,
                    epoch_start_ms=row["epoch_start_ms"],
                    messages=counted,
                    limit=row["rate_limit"],
                )
    found = [replace(told, epochs=epochs[sender]) for sender, told in worst.items()]
    return tuple(sorted(found, key=lambda told: (-told.messages, -told.epochs, told.channel_id, told.sender_id)))


def double_signals(tables: RunTables) -> tuple[DoubleSignals, ...]:
    """Return the senders that used message ids twice, those with the most first. The proofs are not verified."""
    found: dict[tuple[str, str], DoubleSignals] = {}
    columns = ["channel_id", "sender_id", "epoch_start_ms", "double_signals"]
    for batch in tables.batches("rate_utilisation", columns, ds.field("double_signals") > 0):
        for row in batch.to_pylist():
            sender = row["channel_id"], row["sender_id"]
            begin, ids = row["epoch_start_ms"], row["double_signals"]
            if before := found.get(sender):
                begin, ids = min(begin, before.epoch_start_ms), ids + before.message_ids
            found[sender] = DoubleSignals(
                channel_id=sender[0], sender_id=sender[1], epoch_start_ms=begin, message_ids=ids
            )
    return tuple(sorted(found.values(), key=lambda told: (-told.message_ids, told.channel_id, told.sender_id)))
