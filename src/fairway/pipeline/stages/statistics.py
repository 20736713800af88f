"""To ``sender_stats`` and ``channel_stats``: the counts of messages sent and lost by each participant and channel.

Every task adds up its rows by channel and sender. The sums go to one task for each group of participants. The counts of
a channel are the sums of its participants. So a busy channel is spread over several tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.codes import codes_of
from fairway.pipeline.exchange import Bucket, Cut, bucketed
from fairway.pipeline.stages.sds_messages import retransmissions
from fairway.pipeline.stages.sums import as_numbers, grouped, ones

FIGURES: Final = (
    "content",
    "sync",
    "ephemeral",
    "repeats",
    "payload_bytes",
    "acknowledged",
    "delivered",
    "delivered_bytes",
    "reassembled",
    "recovered",
    "incomplete",
    "missing",
)
"""The counts that both tables have."""

_WHO: Final = ("channel_id", "sender_id")
_SEEN: Final = ("first_seen_ns", "last_seen_ns")
_PERCENTILES: Final = {"latency_p50_ms": 50, "latency_p95_ms": 95, "latency_p99_ms": 99}
_MEASURED: Final = ", ".join(
    [
        *(f"{name} bigint" for name in FIGURES),
        *(f"{name} timestamp, {name}_ns bigint" for name in ("first_seen", "last_seen")),
        *(f"{name} bigint" for name in _PERCENTILES),
    ]
)
SENDER_STATS: Final = f"channel_id string, sender_id string, {_MEASURED}"
CHANNEL_STATS: Final = f"channel_id string, senders int, {_MEASURED}"
SUMS: Final = pa.schema([*((name, pa.string()) for name in _WHO), *((name, pa.int64()) for name in (*FIGURES, *_SEEN))])
"""Sums of figures, any number of rows for one participant: they can be added up in any order."""
CHANNEL_SUMS: Final = pa.schema(
    [("channel_id", pa.string()), *((name, pa.int64()) for name in ("senders", *FIGURES, *_SEEN))]
)
"""The sums of a channel, any number of rows for one."""
LATENCIES: Final = pa.schema(
    [*((name, pa.string()) for name in _WHO), ("latency_ms", pa.int64()), ("messages", pa.int64())]
)
"""Messages of a participant that were acknowledged after ``latency_ms``, by count."""


def sender_stats(
    sds_messages: DataFrame,
    repeats: DataFrame,
    ack_latency: DataFrame,
    delivered: DataFrame,
    incomplete: DataFrame,
    missing_messages: DataFrame,
) -> DataFrame:
    """Return one row for each participant of each channel.

    Columns: channel_id, sender_id, `FIGURES`, first_seen and last_seen (timestamps of messages; null for an author
    known only from citations), latency_p50_ms, latency_p95_ms, latency_p99_ms (of the first acknowledgement).
    ``sender_id`` is null for missing messages without a known author.
    """
    cuts = [
        Cut(frame=frame.select(*STATISTICS_INPUT[name]), by=_WHO, prepare=SUMS_OF[name])
        for name, frame in {
            "sds_messages": sds_messages,
            "repeats": repeats,
            "ack_latency": ack_latency,
            "delivered": delivered,
            "incomplete": incomplete,
            "missing_messages": missing_messages,
        }.items()
    ]

    def rows(bucket: Bucket) -> list[pa.Table]:
        return [sender_rows(bucket.table("sums", SUMS), bucket.table("latencies", LATENCIES))]

    return bucketed(cuts, rows, SENDER_STATS)


def channel_stats(sender_stats: DataFrame, ack_latency: DataFrame) -> DataFrame:
    """Return one row for each channel.

    Columns: channel_id, senders (with at least one message), `FIGURES`, first_seen, last_seen, latency_p50_ms,
    latency_p95_ms, latency_p99_ms.
    """
    sums = Cut(
        frame=sender_stats.select(*SUMS.names),
        by=_WHO[:1],
        prepare=lambda table: {"sums": channel_sums(table)},
    )
    latencies = Cut(
        frame=ack_latency.select("channel_id", "sender_id", "latency_ms"),
        by=_WHO[:1],
        prepare=lambda table: {"latencies": latency_counts(table)},
    )

    def rows(bucket: Bucket) -> list[pa.Table]:
        return [channel_rows(bucket.table("sums", CHANNEL_SUMS), bucket.table("latencies", LATENCIES))]

    return bucketed([sums, latencies], rows, CHANNEL_STATS)


def sums_of_messages(sds_messages: pa.Table) -> pa.Table:
    """Return the sums (`SUMS`) that SDS messages add to."""
    kind = sds_messages.column("kind")
    table = sds_messages.select([*_WHO, "payload_bytes", "timestamp_ns"])
    for name in ("content", "sync", "ephemeral"):
        table = table.append_column(name, as_numbers(pc.equal(kind, name)))
    figures = ("content", "sync", "ephemeral", "payload_bytes")
    seen = {"first_seen_ns": ("timestamp_ns", "min"), "last_seen_ns": ("timestamp_ns", "max")}
    return _completed(grouped(table, _WHO, {**{name: (name, "sum") for name in figures}, **seen}))


def sums_of_deliveries(delivered: pa.Table) -> pa.Table:
    """Return the sums (`SUMS`) that delivered messages add to."""
    table = delivered.select(list(_WHO))
    table = table.append_column("delivered", ones(table))
    table = table.append_column("delivered_bytes", delivered.column("size_bytes"))
    table = table.append_column("reassembled", as_numbers(pc.greater(delivered.column("segments"), 1)))
    table = table.append_column("recovered", as_numbers(delivered.column("recovered")))
    return _completed(grouped(table, _WHO, {name: (name, "sum") for name in table.schema.names[2:]}))


def sums_of_rows(table: pa.Table, figure: str) -> pa.Table:
    """Return the sums (`SUMS`) that the rows of a table add to one figure."""
    counted = table.select(list(_WHO)).append_column(figure, ones(table))
    return _completed(grouped(counted, _WHO, {figure: (figure, "sum")}))


def sums_of_acknowledged(ack_latency: pa.Table) -> pa.Table:
    """Return the sums (`SUMS`) that the latencies of messages add to."""
    return sums_of_rows(ack_latency.filter(pc.greater(ack_latency.column("ackers"), 0)), "acknowledged")


def latency_counts(ack_latency: pa.Table) -> pa.Table:
    """Return how often each participant's messages were acknowledged after each latency (`LATENCIES`)."""
    known = ack_latency.filter(pc.is_valid(ack_latency.column("latency_ms"))).select([*_WHO, "latency_ms"])
    return added_latencies(known.append_column("messages", ones(known)), _WHO)


def added_sums(sums: pa.Table) -> pa.Table:
    """Return one row for each participant."""
    figures = {name: (name, "sum") for name in FIGURES}
    return grouped(
        sums, _WHO, {**figures, "first_seen_ns": ("first_seen_ns", "min"), "last_seen_ns": ("last_seen_ns", "max")}
    )


def added_latencies(latencies: pa.Table, who: Sequence[str]) -> pa.Table:
    """Return one row for each latency of each participant, or of each channel."""
    return grouped(latencies, [*who, "latency_ms"], {"messages": ("messages", "sum")})


def sender_rows(sums: pa.Table, latencies: pa.Table) -> pa.Table:
    """Return ``sender_stats`` of the sums and latencies of its participants."""
    return _with_percentiles(added_sums(sums), latencies, _WHO)


def channel_sums(sums: pa.Table) -> pa.Table:
    """Return one row for each channel, with the number of its ``senders``, from one row for each participant."""
    return added_channels(sums.append_column("senders", as_numbers(pc.is_valid(sums.column("first_seen_ns")))))


def added_channels(sums: pa.Table) -> pa.Table:
    """Return one row for each channel, from several results of `channel_sums`."""
    summed = {name: (name, "sum") for name in ("senders", *FIGURES)}
    return grouped(
        sums, _WHO[:1], {**summed, "first_seen_ns": ("first_seen_ns", "min"), "last_seen_ns": ("last_seen_ns", "max")}
    )


def channel_rows(sums: pa.Table, latencies: pa.Table) -> pa.Table:
    """Return ``channel_stats`` from the result of `channel_sums` and the latencies of its channels."""
    return _with_percentiles(added_channels(sums), latencies, _WHO[:1])


def _with_percentiles(sums: pa.Table, latencies: pa.Table, who: Sequence[str]) -> pa.Table:
    """Add the percentiles of their latencies to the rows of participants or channels."""
    found = percentiles(added_latencies(latencies, who), who)
    both = pa.concat_tables([sums, found], promote_options="default")
    of_sums = {name: (name, "max") for name in sums.schema.names if name not in who}
    return grouped(both, who, {**of_sums, **{name: (name, "max") for name in _PERCENTILES}})


def percentiles(latencies: pa.Table, who: Sequence[str]) -> pa.Table:
    """Return latency_p50_ms, latency_p95_ms and latency_p99_ms of each participant, or channel, that has a latency.

    The percentile p of n latencies is the one at place ceil(p * n / 100) when they are sorted.
    """
    order = pc.sort_indices(latencies, [(name, "ascending") for name in (*who, "latency_ms")])
    latencies = latencies.take(order)
    codes = codes_of(*(latencies.column(name) for name in who))
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    value, messages = (latencies.column(name).to_numpy() for name in ("latency_ms", "messages"))
    upto = np.cumsum(messages)
    before = (upto - messages)[first]
    count = np.add.reduceat(messages, first) if len(first) else messages
    found = latencies.select(list(who)).take(pa.array(first))
    for name, percent in _PERCENTILES.items():
        place = -(-count * percent // 100)
        found = found.append_column(name, pa.array(value[np.searchsorted(upto, before + place)], pa.int64()))
    return found


def _completed(sums: pa.Table) -> pa.Table:
    """Return sums with all figures: 0 for an absent count, null for a time without a message."""
    missing = {
        field.name: pa.nulls(sums.num_rows, field.type)
        if field.name in _SEEN
        else pa.array(np.zeros(sums.num_rows, np.int64))
        for field in SUMS
        if field.name not in sums.schema.names
    }
    for name, column in missing.items():
        sums = sums.append_column(name, column)
    return sums.select(SUMS.names).cast(SUMS)


STATISTICS_INPUT: Final = {
    "sds_messages": (*_WHO, "kind", "timestamp_ns", "payload_bytes"),
    "repeats": (*_WHO, "reason"),
    "ack_latency": (*_WHO, "ackers", "latency_ms"),
    "delivered": (*_WHO, "size_bytes", "segments", "recovered"),
    "incomplete": _WHO,
    "missing_messages": _WHO,
}
"""The columns of each table that are read."""
SUMS_OF: Final[dict[str, Callable[[pa.Table], dict[str, pa.Table]]]] = {
    "sds_messages": lambda table: {"sums": sums_of_messages(table)},
    "repeats": lambda table: {"sums": sums_of_rows(retransmissions(table), "repeats")},
    "ack_latency": lambda table: {"sums": sums_of_acknowledged(table), "latencies": latency_counts(table)},
    "delivered": lambda table: {"sums": sums_of_deliveries(table)},
    "incomplete": lambda table: {"sums": sums_of_rows(table, "incomplete")},
    "missing_messages": lambda table: {"sums": sums_of_rows(table, "missing")},
}
"""By table: the function from rows to their sums, by kind: ``sums`` (`SUMS`) and ``latencies`` (`LATENCIES`)."""
