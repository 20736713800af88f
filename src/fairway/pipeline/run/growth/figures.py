"""What changes of the other tables do to the tables of figures, and to the balance of rows.

Sums are added up as in a run; what goes counts negative. Percentiles of latencies and the first and last time of a
participant are no sums: for the channels that are touched they come from a few narrow columns of all rows.
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
from fairway.pipeline.stages.bandwidth import added_bytes, bytes_by_part, occurring
from fairway.pipeline.stages.rate_utilisation import RATE_INPUT, epoch_starts, transmissions, utilisation
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
_COPY: Final = ("message_hash", "sighting")
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
    """Return how the tables of figures change; ``stores`` are the names of all stores that were read."""
    sds = held["sds_messages"].changed(changes["sds_messages"])
    return {
        **_of_participants(held, changes, sds),
        "bandwidth": _bandwidth(held["bandwidth"], changes["sds_messages"]),
        "rate_utilisation": _rate_utilisation(
            held["rate_utilisation"], changes["sds_messages"], sds, epoch_ms, rate_limit
        ),
        "store_completeness": _completeness(held["store_completeness"], changes["waku_messages"], stores),
    }


def balance_change(changes: Mapping[str, TableChange]) -> dict[str, int]:
    """Return by how much the terms of the balance (`fairway.pipeline.run.summing.balance_terms`) grow."""
    grown: dict[str, int] = {}
    for name, change in changes.items():
        for sign, rows in ((1, change.added), (-1, change.removed)):
            for term, count in balance_terms_of(name, rows).items():
                grown[term] = grown.get(term, 0) + sign * count
    return grown


def _of_participants(
    held: Mapping[str, HeldRows], changes: Mapping[str, TableChange], sds: HeldRows
) -> dict[str, TableChange]:
    parts = [SUMS.empty_table()]
    for name, sums_of in SUMS_OF.items():
        for sign, rows in ((1, changes[name].added), (-1, changes[name].removed)):
            counted = rows.filter(pc.equal(rows["sighting"], 1)) if name == "sds_messages" else rows
            parts.append(_signed(sums_of(counted)["sums"], sign))
    moved = pa.concat_tables(parts)
    touched = moved.select(["channel_id"])
    of_channel = among(touched, ("channel_id",))
    senders = held["sender_stats"].found(("channel_id",), of_channel)
    known = senders.select(SUMS.names)
    sent = changes["sds_messages"]
    gone = sent.removed.filter(pa.array(~are_among(sent.removed, sent.added, _COPY)))
    both = pa.concat_tables([known.cast(SUMS), moved])
    if gone.num_rows:  # perhaps the first or the last that its sender sent
        both = _with_times(both, gone, sds)
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
    """Return sums as they are, or as what is taken away; then they tell nothing of times."""
    if sign > 0:
        return sums
    columns = {
        name: pc.negate(sums[name]) if name in FIGURES else sums[name] for name in SUMS.names if name not in _SEEN
    }
    return pa.table({**columns, **{name: pa.nulls(sums.num_rows, pa.int64()) for name in _SEEN}}, schema=SUMS)


def _with_times(sums: pa.Table, participants: pa.Table, sds: HeldRows) -> pa.Table:
    """Return sums with the times of some participants taken from their messages."""
    again = are_among(sums, participants, _WHO)
    columns = (*_WHO, "timestamp_ns", "sighting")
    chosen = among(participants, _WHO)
    times = sds.found(columns, lambda rows: chosen(rows) & pc.equal(rows.column("sighting"), 1).to_numpy(), columns)
    timeless = _signed(_signed(sums.filter(pa.array(again)), -1), -1)
    return pa.concat_tables([sums.filter(pa.array(~again)), timeless, seen_times(times)])


def _any_figure(sums: pa.Table) -> pa.Array:
    counted = np.zeros(sums.num_rows, np.bool_)
    for name in FIGURES:
        counted |= sums[name].to_numpy() != 0
    return pa.array(counted)


def _bandwidth(held: HeldRows, sds: TableChange) -> TableChange:
    added, removed = bytes_by_part(sds.added), bytes_by_part(sds.removed)
    taken = removed
    for name in ("bytes", "messages"):
        taken = taken.set_column(taken.schema.get_field_index(name), name, pc.negate(removed[name]))
    channels = pa.concat_tables([added, removed]).select(["channel_id"])
    known = held.found(("channel_id",), among(channels, ("channel_id",)))
    parts = pa.concat_tables(part.select(exact_schema_of("bandwidth").names) for part in (known, added, taken))
    return TableChange.of("bandwidth", known, occurring(added_bytes(parts)))


def _rate_utilisation(
    held: HeldRows, sds_change: TableChange, sds: HeldRows, epoch_ms: int, limit: int | None
) -> TableChange:
    columns = RATE_INPUT
    moved = pa.concat_tables(part.select(list(columns)) for part in (sds_change.added, sds_change.removed))
    epoch = ("sender_id", "epoch_start_ms")
    touched = transmissions(moved, epoch_ms).select(list(epoch))
    times = np.unique(touched["epoch_start_ms"].to_numpy())

    def in_epochs(rows: pa.Table) -> NDArray[np.bool_]:
        return np.isin(epoch_starts(rows["timestamp_ns"], epoch_ms).to_numpy(), times)

    counted = transmissions(sds.found(columns, in_epochs, columns, _within(times, epoch_ms)), epoch_ms)
    counted = counted.filter(pa.array(are_among(counted, touched, epoch)))
    known = held.found(epoch, among(touched, epoch))
    return TableChange.of("rate_utilisation", known, utilisation(counted, limit))


def _within(starts_ms: NDArray[np.int64], epoch_ms: int) -> Span:
    """Return where the timestamps within epochs are, by their starts in ascending order."""
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
