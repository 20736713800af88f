"""The figures of a report that need a pass over a large table: counted batch by batch, with Arrow and numpy.

Memory is bounded by the number of bins, lanes and reasons, not by the input. Only timestamps, sizes and latencies are
read, never a payload.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.run.reading import RunTables

_BINS: Final = 60
SAMPLE: Final = 65_536
_ORDINARY: Final = (2.0, 98.0)
"""Percentiles between which timestamps count as plausible."""
_FAR_OUT: Final = 10
"""Largest distance of a timestamp on the axis from the plausible span, in lengths of this span."""
_STEPS_PER_DECADE: Final = 12
_MICROSECOND_NS: Final = 1_000
_SHORTEST_NS: Final = 1_000_000

LATENCIES_MS: Final = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""The latencies for which the report has exact counts."""

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """Stretches of time of the same length, in nanoseconds since the Unix epoch and whole microseconds."""

    begin_ns: int
    width_ns: int
    bins: int

    @property
    def end_ns(self) -> int:
        """Return the first moment after the axis."""
        return self.begin_ns + self.width_ns * self.bins

    def finer(self, times: int) -> TimeAxis:
        """Return an axis of the same length, or slightly longer, with ``times`` as many bins."""
        width_us = -(-self.width_ns // (times * _MICROSECOND_NS))
        return TimeAxis(begin_ns=self.begin_ns, width_ns=width_us * _MICROSECOND_NS, bins=self.bins * times)

    def bin_of(self, timestamps: _Ints) -> _Ints:
        """Return the bin of each timestamp: -1 before the axis, ``bins`` after it."""
        # In microseconds: the difference of two nanosecond timestamps from the network may overflow 64 bits.
        passed_us = timestamps // _MICROSECOND_NS - self.begin_ns // _MICROSECOND_NS
        return np.clip(passed_us // (self.width_ns // _MICROSECOND_NS), -1, self.bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOverTime:
    """Distinct WakuMessages over time, quarantined ones included."""

    axis: TimeAxis
    messages: tuple[int, ...]
    bytes: tuple[int, ...]
    outside: int
    """Messages that are not on the axis because their timestamps are too far from all others."""
    outside_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Numbers of content messages by the time until their acknowledgement."""

    total: int
    """Content messages."""
    acknowledged: int
    within: tuple[tuple[int, int], ...]
    """Pairs of a time in milliseconds and the number of messages that were acknowledged within it."""

    def share(self, latency_ms: int) -> int:
        """Return the number of messages acknowledged within a time, one of `LATENCIES_MS`."""
        return dict(self.within)[latency_ms]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason for quarantine, and its messages."""

    status: str
    messages: int
    bytes: int
    example: str | None


def time_axis(tables: RunTables) -> TimeAxis | None:
    """Return the axis of the messages, except those far from all others; None if there are no messages."""
    sample = _sample(tables)
    return _axis(sample, tables.range_of("waku_messages", "timestamp_ns")) if sample.size else None


def traffic(tables: RunTables, axis: TimeAxis) -> TrafficOverTime:
    """Return messages and bytes over time."""
    messages, sizes = np.zeros(axis.bins + 2, dtype=np.int64), np.zeros(axis.bins + 2, dtype=np.int64)
    for timestamps, payload_bytes in _timed(tables):
        places = axis.bin_of(timestamps) + 1
        np.add.at(messages, places, 1)
        np.add.at(sizes, places, payload_bytes)
    return TrafficOverTime(
        axis=axis,
        messages=tuple(messages[1:-1].tolist()),
        bytes=tuple(sizes[1:-1].tolist()),
        outside=int(messages[0] + messages[-1]),
        outside_bytes=int(sizes[0] + sizes[-1]),
    )


def latencies(tables: RunTables) -> Latencies:
    """Return the distribution of the time until the first acknowledgement."""
    decades = math.ceil(math.log10(LATENCIES_MS[-1])) + 1
    steps = {round(10 ** (step / _STEPS_PER_DECADE)) for step in range(decades * _STEPS_PER_DECADE + 1)}
    edges = np.array(sorted(steps | set(LATENCIES_MS)), dtype=np.int64)
    counts, acknowledged = np.zeros(len(edges) + 1, dtype=np.int64), 0
    for batch in tables.batches("ack_latency", ["latency_ms"]):
        told = _ints(batch.column(0).drop_null())
        acknowledged += len(told)
        # The first edge that is at least the latency.
        counts += np.bincount(np.searchsorted(edges, told, side="left"), minlength=len(counts))
    within = zip(edges.tolist(), np.cumsum(counts[:-1]).tolist(), strict=True)
    return Latencies(total=tables.rows("ack_latency"), acknowledged=acknowledged, within=tuple(within))


def first_cited(
    tables: RunTables, channels: Sequence[str], axis: TimeAxis
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return for each channel, for each bin, the number of lost messages and the number of known messages.

    A lost message counts in the bin of its first citation, any other message in the bin of its timestamp.
    """
    known = pa.array(list(channels), type=pa.string())
    lost, there = (np.zeros((len(channels), axis.bins + 2), dtype=np.int64) for _ in range(2))
    for counts, table, time in ((lost, "missing_messages", "first_cited_ns"), (there, "sds_ordered", "timestamp_ns")):
        for batch in tables.batches(table, ["channel_id", time]):
            rows = pa.table(
                {"lane": pc.index_in(batch.column(0), value_set=known), "time": batch.column(1)}
            ).drop_null()
            np.add.at(counts, (_ints(rows["lane"]), axis.bin_of(_ints(rows["time"])) + 1), 1)
    return [
        (tuple(gone[1:-1].tolist()), tuple((gone + here)[1:-1].tolist()))
        for gone, here in zip(lost, there, strict=True)
    ]


def quarantine(tables: RunTables) -> list[Reason]:
    """Return the reasons for quarantine, the most frequent first."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    examples: dict[str, str | None] = {}
    for batch in tables.batches("quarantine", ["status", "error", "payload_bytes"]):
        grouped = pa.Table.from_batches([batch]).group_by("status", use_threads=False)
        for row in grouped.aggregate([([], "count_all"), ("payload_bytes", "sum"), ("error", "first")]).to_pylist():
            counts[row["status"]] += row["count_all"]
            sizes[row["status"]] += row["payload_bytes_sum"] or 0
            examples.setdefault(row["status"], row["error_first"])
    ordered = sorted(counts.items(), key=lambda reason: (-reason[1], str(reason[0])))
    return [
        Reason(status=status, messages=number, bytes=sizes[status], example=examples[status])
        for status, number in ordered
    ]


def utilisation(tables: RunTables, shares_pct: Sequence[float]) -> list[int]:
    """Return for each share the number of pairs of sender and epoch at or above it and below the next share."""
    counts = np.zeros(len(shares_pct), dtype=np.int64)
    for batch in tables.batches("rate_utilisation", ["charged", "rate_limit"], ds.field("rate_limit").is_valid()):
        told = 100 * batch.column(0).to_numpy() / batch.column(1).to_numpy()  # the column pct is rounded
        for place, (low, high) in enumerate(pairwise([*shares_pct, math.inf])):
            counts[place] += int(np.count_nonzero((told >= low) & (told < high)))
    return [int(number) for number in counts]


def _timed(tables: RunTables) -> Iterator[tuple[_Ints, _Ints]]:
    """Yield timestamps and payload sizes of all distinct WakuMessages: each is decoded or in quarantine."""
    for name in ("sds_messages", "repeats", "quarantine"):
        for batch in tables.batches(name, ["timestamp_ns", "payload_bytes"]):
            whole = pa.Table.from_batches([batch]).drop_null()
            yield _ints(whole["timestamp_ns"]), _ints(whole["payload_bytes"])


def _sample(tables: RunTables) -> _Ints:
    """Return every n-th timestamp, about `SAMPLE` in all."""
    every = max(tables.rows("waku_messages") // SAMPLE, 1)
    kept: list[_Ints] = []
    begin = 0
    for timestamps, _ in _timed(tables):
        kept.append(timestamps[begin::every].copy())
        begin = (begin - len(timestamps)) % every
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _axis(sample: _Ints, known: tuple[int | None, int | None]) -> TimeAxis:
    """Return the axis of a sample; ``known`` are the first and the last timestamp of all messages, its bounds."""
    ordered = np.sort(sample)
    low_pct, high_pct = _ORDINARY
    low = int(ordered[math.floor((len(ordered) - 1) * low_pct / 100)])
    high = int(ordered[math.ceil((len(ordered) - 1) * high_pct / 100)])
    slack = _FAR_OUT * max(high - low, 1_000_000_000)
    inside = ordered[(ordered >= max(low - slack, -(2**63))) & (ordered <= min(high + slack, 2**63 - 1))]
    begin, end = int(inside[0]), int(inside[-1]) + 1
    # The sample may not contain the first and the last timestamp, so the axis gets a margin on both sides.
    margin = (end - begin) // _BINS
    first, last = (begin if told is None else told for told in known)
    begin = min(max(begin - margin, first), begin) // _MICROSECOND_NS * _MICROSECOND_NS
    end = max(min(end + margin, last + 1), end)
    width_us = -(-(end - begin) // (_BINS * _MICROSECOND_NS))
    return TimeAxis(begin_ns=begin, width_ns=max(width_us * _MICROSECOND_NS, _SHORTEST_NS), bins=_BINS)


def _ints(column: Any) -> _Ints:
    told = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return np.asarray(told, dtype=np.int64)
