"""`over_limit`: the senders that sent more in an epoch than the rate limit allows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow.dataset as ds

from fairway.pipeline.run.reading import RunTables

_FULL_PCT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OverLimit:
    """A sender, and the epoch in which it was furthest above the limit."""

    sender_id: str
    epochs: int
    """In how many epochs it was above the limit."""
    epoch_start_ms: int
    messages: int
    """What it sent in that epoch."""
    limit: int


def epochs_over_limit(tables: RunTables) -> frozenset[tuple[str, int]]:
    """Return sender and beginning of each epoch in which a sender was above the limit."""
    columns = ["sender_id", "epoch_start_ms"]
    return frozenset(
        (row["sender_id"], row["epoch_start_ms"])
        for batch in tables.batches("rate_utilisation", columns, ds.field("pct") > _FULL_PCT)
        for row in batch.to_pylist()
    )


def over_limit(tables: RunTables) -> tuple[OverLimit, ...]:
    """Return the senders above the limit, the furthest first; none if the run was not given a limit."""
    epochs: Counter[str] = Counter()
    worst: dict[str, OverLimit] = {}
    columns = ["sender_id", "epoch_start_ms", "messages", "limit"]
    for batch in tables.batches("rate_utilisation", columns, ds.field("pct") > _FULL_PCT):
        for row in batch.to_pylist():
            sender_id = row["sender_id"]
            epochs[sender_id] += 1
            if sender_id not in worst or row["messages"] > worst[sender_id].messages:
                worst[sender_id] = OverLimit(epochs=0, **row)
    found = [
        OverLimit(
            sender_id=sender_id,
            epochs=number,
            epoch_start_ms=worst[sender_id].epoch_start_ms,
            messages=worst[sender_id].messages,
            limit=worst[sender_id].limit,
        )
        for sender_id, number in epochs.items()
    ]
    return tuple(sorted(found, key=lambda told: (-told.messages, -told.epochs, told.sender_id)))
