"""Changes of the tables of figures, and of the balance of rows, by changes of the other tables.

Sums are added up as in a run; removed rows count negative. Percentiles of latencies and the first and last time of a
participant are not sums: for affected channels they are computed from a few narrow columns of all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.run.growth.held_rows import HeldRows, Span, TableChange, among, are_among
from fairway.pipeline.run.summing import balance_terms_of
from fairway.pipeline.stages.bandwidth import added_bytes, bytes_by_part, occurring, repeated_bytes
from fairway.pipeline.stages.rate_utilisation import EPOCH, RATE_INPUT, epoch_starts, transmissions, utilisation
from fairway.pipeline.stages.sds_messages import retransmissions
from fairway.pipeline.stages.statistics import (
    CHANNEL_SUMS,
    FIGURES,
    SUMS,
    SUMS_OF,
    added_latencies,
    added_sums,
    channel_rows,
    channel_sums,
    latency_counts,
    seen_times,
    sender_rows,
)
from fairway.pipeline.stages.store_completeness import HOLDINGS, completeness, holdings, named_stores
from fairway.pipeline.tables.files import exact_schema_of
from fairway.units import NS_PER_MS

_WHO: Final = ("channel_id", "sender_id")
_SEEN: Final = ("first_seen_ns", "last_seen_ns")
_FIRST_NS: Final = -(2**63)
_LAST_NS: Final = 2**63 - 1
_LAST_MS: Final = _LAST_NS // NS_PER_MS


def figure_changes(
    held: Mapping[str, HeldRows],
    changes: Mapping[str, TableChange],
    *,
    epoch_ms: int,
    rate_limit: int | None,
    stores: Collection[str],
) -> dict[str, TableChange]:
    """Return the changes of the tables of figures; ``stores`` are the names of all stores that were read."""
    return {
        **_of_participants(held, changes),
        "bandwidth": _bandwidth(held["bandwidth"], changes),
        "rate_utilisation": _rate_utilisation(held, changes, epoch_ms, rate_limit),
        "store_completeness": _completeness(held["store_completeness"], changes["waku_messages"], stores),
    }


def balance_change(changes: Mapping[str, TableChange]) -> dict[str, int]:
    """Return the increase of each term of the balance (`fairway.pipeline.run.summing.balance_terms`)."""
    grown: dict[str, int] = {}
    for name, change in changes.items():
        for sign, rows in ((1, change.added), (-1, change.removed)):
            for term, count in balance_terms_of(name, rows).items():
                grown[term] = grown.get(term, 0) + sign * count
    return grown


def _of_participants(held: Mapping[str, HeldRows], changes: Mapping[str, TableChange]) -> dict[str, TableChange]:
    parts = [SUMS.empty_table()]
    for name, sums_of in SUMS_OF.items():
        for sign, rows in ((1, changes[name].added), (-1, changes[name].removed)):
            parts.append(_signed(sums_of(rows)["sums"], sign))
    moved = pa.concat_tables(parts)
    touched = moved.select(["channel_id"])
    of_channel = among(touched, ("channel_id",))
    senders = held["sender_stats"].found(("channel_id",), of_channel)
    known = senders.select(SUMS.names)
    gone = changes["sds_messages"].removed
    both = pa.concat_tables([known.cast(SUMS), moved])
    if gone.num_rows:  # a removed row may be the first or last of its sender
        both = _with_times(both, gone, held["sds_messages"].changed(changes["sds_messages"]))
    sums = added_sums(both).select(SUMS.names).cast(SUMS)
    sums = sums.filter(_any_figure(sums))
    acked = held["ack_latency"].changed(changes["ack_latency"])
    answered = (*_WHO, "latency_ms")
    latencies = latency_counts(acked.found(answered, of_channel, answered))
    by_channel = channel_sums(sums).select(CHANNEL_SUMS.names).cast(CHANNEL_SUMS)
    channels = held["channel_stats"].found(("channel_id",), of_channel)
    return {
        "sender_stats": TableChange.of("sender_stats", senders, sender_rows(sums, latencies)),
        "channel_stats": TableChange.of(
            "channel_stats", channels, channel_rows(by_channel, added_latencies(latencies, _WHO[:1]))
        ),
    }


def _signed(sums: pa.Table, sign: int) -> pa.Table:
    """Return sums unchanged, or negated and without times."""
    if sign > 0:
        return sums
    columns = {
        name: pc.negate(sums[name]) if name in FIGURES else sums[name] for name in SUMS.names if name not in _SEEN
    }
    return pa.table({**columns, **{name: pa.nulls(sums.num_rows, pa.int64()) for name in _SEEN}}, schema=SUMS)


def _with_times(sums: pa.Table, participants: pa.Table, sds: HeldRows) -> pa.Table:
    """Return sums with the times of some participants taken from their messages."""
    again = are_among(sums, participants, _WHO)
    times = sds.found(_WHO, among(participants, _WHO), (*_WHO, "timestamp_ns"))
    timeless = _signed(_signed(sums.filter(pa.array(again)), -1), -1)
    return pa.concat_tables([sums.filter(pa.array(~again)), timeless, seen_times(times)])


def _any_figure(sums: pa.Table) -> pa.Array:
    counted = np.zeros(sums.num_rows, np.bool_)
    for name in FIGURES:
        counted |= sums[name].to_numpy() != 0
    return pa.array(counted)


def _bandwidth(held: HeldRows, changes: Mapping[str, TableChange]) -> TableChange:
    sds, repeats = changes["sds_messages"], changes["repeats"]
    added = pa.concat_tables([bytes_by_part(sds.added), repeated_bytes(repeats.added)])
    removed = pa.concat_tables([bytes_by_part(sds.removed), repeated_bytes(repeats.removed)])
    taken = removed
    for name in ("bytes", "messages"):
        taken = taken.set_column(taken.schema.get_field_index(name), name, pc.negate(removed[name]))
    channels = pa.concat_tables([added, removed]).select(["channel_id"])
    known = held.found(("channel_id",), among(channels, ("channel_id",)))
    parts = pa.concat_tables(part.select(exact_schema_of("bandwidth").names) for part in (known, added, taken))
    return TableChange.of("bandwidth", known, occurring(added_bytes(parts)))


def _rate_utilisation(
    held: Mapping[str, HeldRows], changes: Mapping[str, TableChange], epoch_ms: int, limit: int | None
) -> TableChange:
    sds, repeats = changes["sds_messages"], changes["repeats"]
    parts = (sds.added, sds.removed, retransmissions(repeats.added), retransmissions(repeats.removed))
    moved = pa.concat_tables(part.select(list(RATE_INPUT)) for part in parts)
    touched = transmissions(moved, epoch_ms).select(list(EPOCH))
    times = np.unique(touched["epoch_start_ms"].to_numpy())

    def in_epochs(rows: pa.Table) -> NDArray[np.bool_]:
        return np.isin(epoch_starts(rows["timestamp_ns"], epoch_ms).to_numpy(), times)

    by, span = ("timestamp_ns",), _within(times, epoch_ms)
    sent = held["sds_messages"].changed(sds).found(by, in_epochs, RATE_INPUT, span)
    again = held["repeats"].changed(repeats).found(by, in_epochs, (*RATE_INPUT, "reason"), span)
    counted = pa.concat_tables(transmissions(part, epoch_ms) for part in (sent, retransmissions(again)))
    counted = counted.filter(pa.array(are_among(counted, touched, EPOCH)))
    known = held["rate_utilisation"].found(EPOCH, among(touched, EPOCH))
    return TableChange.of("rate_utilisation", known, utilisation(counted, limit))


def _within(starts_ms: NDArray[np.int64], epoch_ms: int) -> Span:
    """Return the span of timestamps in epochs, by their starts in ascending order."""
    # Before 1970 a fraction of a millisecond counts with the one after it.
    starts_ms, ends_ms = starts_ms - 1, starts_ms + min(epoch_ms, _LAST_MS)
    starts = np.where(starts_ms <= -_LAST_MS, _FIRST_NS, np.maximum(starts_ms, -_LAST_MS) * NS_PER_MS)
    ends = np.where(ends_ms >= _LAST_MS, _LAST_NS, np.minimum(ends_ms, _LAST_MS) * NS_PER_MS - 1)
    return Span("timestamp_ns", starts.tolist(), ends.tolist())


def _completeness(held: HeldRows, waku: TableChange, stores: Collection[str]) -> TableChange:
    known = held.all(exact_schema_of("store_completeness").names)
    of = pc.max(known["known"]).as_py() or 0
    had = pa.table(
        {
            "source": pa.concat_arrays([*known["source"].chunks, pa.nulls(1, pa.string())]),
            "messages": pa.concat_arrays([*known["messages"].chunks, pa.array([0], pa.int64())]),
            "damaged": pa.concat_arrays([*known["damaged"].chunks, pa.array([0], pa.int64())]),
            "known": pa.array([0] * known.num_rows + [of], pa.int64()),
        },
        schema=HOLDINGS,
    )
    gone = holdings(waku.removed)
    taken = pa.table([gone["source"], *(pc.negate(gone[name]) for name in HOLDINGS.names[1:])], schema=HOLDINGS)
    return TableChange.of(
        "store_completeness",
        known,
        completeness(pa.concat_tables([had, holdings(waku.added), taken, named_stores(stores)])),
    )
