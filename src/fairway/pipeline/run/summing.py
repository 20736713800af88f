"""The last job of a run: the tables of figures, from sums over the tables before them.

::

    tasks over files of tables: sums -> by sender: sender_stats, rate_utilisation, bandwidth, store_completeness
                                     -> by channel: channel_stats

A task reads the counted columns of some files, and yields sums. So the exchange grows with the participants of
channels, not with their messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, Batches, Bucket, Cutter, exchanged, gathered, in_tasks, note, shared_out
from fairway.pipeline.stages.bandwidth import (
    BANDWIDTH_INPUT,
    REPEATED_INPUT,
    added_bytes,
    bytes_by_part,
    repeated_bytes,
)
from fairway.pipeline.stages.rate_utilisation import RATE_INPUT, added_transmissions, transmissions, utilisation
from fairway.pipeline.stages.sds_messages import OTHER_SHARD, retransmissions
from fairway.pipeline.stages.statistics import (
    CHANNEL_SUMS,
    LATENCIES,
    STATISTICS_INPUT,
    SUMS,
    SUMS_OF,
    added_latencies,
    added_sums,
    channel_rows,
    channel_sums,
    sender_rows,
)
from fairway.pipeline.stages.store_completeness import added_holdings, completeness, holdings, named_stores
from fairway.pipeline.tables.files import TableFiles

_HELD_ROWS: Final = 500_000
"""Rows of sums that a task holds before it adds them up."""
_WHO: Final = ("channel_id", "sender_id")
_ADDED: Final[dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]]] = {
    "sums": (added_sums, _WHO),
    "latencies": (lambda table: added_latencies(table, _WHO), _WHO),
    "transmissions": (added_transmissions, _WHO),
    "parts": (added_bytes, ("channel_id",)),
    "held": (added_holdings, ()),
}
"""For each kind of sums: its function of addition, and the columns that choose the bucket; none for one bucket."""
SUMMED_COLUMNS: Final = {
    "waku_messages": ("sources", "damaged", "copies"),
    **STATISTICS_INPUT,
    "incomplete": (*STATISTICS_INPUT["incomplete"], "held"),
    "sds_messages": tuple(dict.fromkeys([*STATISTICS_INPUT["sds_messages"], *BANDWIDTH_INPUT, *RATE_INPUT])),
    "repeats": tuple(dict.fromkeys([*STATISTICS_INPUT["repeats"], *REPEATED_INPUT, *RATE_INPUT])),
}
"""The columns of each table that are read."""
SUMMED: Final = tuple(SUMMED_COLUMNS)
"""The tables that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summing:
    """The inputs of the tasks of the job."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    epoch_ms: int
    rate_limit: int | None
    stores: Collection[str]
    """The names of all stores that were read."""

    def frame(self, spark: SparkSession, names: Mapping[str, Sequence[str]], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`; ``names`` has the files of each table that is read."""
        places = [(table, name) for table in SUMMED_COLUMNS for name in names[table]]
        sums = shared_out(spark, places, tasks, self._sums)
        by_sender = in_tasks(exchanged(sums, self.buckets), self._by_sender, BLOBS)
        return in_tasks(exchanged(by_sender, self.buckets), self._by_channel, BLOBS)

    def _sums(self, places: Sequence[tuple[str, str]]) -> Batches:
        held = defaultdict[str, list[pa.Table]](list, {"held": [named_stores(self.stores)]})
        most = defaultdict[str, int](lambda: _HELD_ROWS)
        counted: Counter[str] = Counter()
        for table, name in places:
            if table == "delivered":  # counted from the footers, without reading ids
                counted["carriers"] += self.files.count_values(table, name, "sds_ids")
            for rows in self.files.read(table, [name], SUMMED_COLUMNS[table]):
                if table != "delivered":
                    counted.update(balance_terms_of(table, rows))
                for kind, sums in counted_in(table, rows, self.epoch_ms).items():
                    held[kind].append(sums)
                    if sum(part.num_rows for part in held[kind]) > most[kind]:
                        held[kind] = [_ADDED[kind][0](pa.concat_tables(held[kind]))]
                        # Many senders leave many sums: the limit grows, so that they are not added up for every row
                        # group.
                        most[kind] = max(_HELD_ROWS, 2 * held[kind][0].num_rows)
        yield note(**counted)
        for kind, parts in held.items():
            add, shared = _ADDED[kind]
            yield from self._cut(kind, add(pa.concat_tables(parts)), shared)

    def _cut(self, kind: str, table: pa.Table, shared: Sequence[str]) -> Batches:
        if shared:
            buckets = self.keys.by_columns([table.column(name) for name in shared], self.buckets)
        else:
            buckets = _first_bucket(table.num_rows)
        cutter = Cutter(kind, self.buckets)
        yield from cutter.add(table, buckets)
        yield from cutter.close()

    def _by_sender(self, batches: Batches) -> Batches:
        bucket = gathered(batches)
        yield from bucket.notes
        sums, latencies = added_sums(bucket.table("sums", SUMS)), bucket.table("latencies", LATENCIES)
        for name, table in self._rows_by_sender(bucket, sums, latencies):
            if table.num_rows:
                yield self.files.write(name, bucket.number, table)
        channels = channel_sums(sums).select(CHANNEL_SUMS.names).cast(CHANNEL_SUMS)
        yield from self._cut("channels", channels, _WHO[:1])
        yield from self._cut("latencies", added_latencies(latencies, _WHO[:1]), _WHO[:1])

    def _rows_by_sender(self, bucket: Bucket, sums: pa.Table, latencies: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        yield "sender_stats", sender_rows(sums, latencies)
        if "transmissions" in bucket.tables:
            yield "rate_utilisation", utilisation(bucket.tables["transmissions"], self.rate_limit)
        if "parts" in bucket.tables:
            yield "bandwidth", added_bytes(bucket.tables["parts"])
        if "held" in bucket.tables:
            yield "store_completeness", completeness(bucket.tables["held"])

    def _by_channel(self, batches: Batches) -> Batches:
        bucket = gathered(batches)
        yield from bucket.notes
        if bucket.tables:
            sums, latencies = bucket.table("channels", CHANNEL_SUMS), bucket.table("latencies", _CHANNEL_LATENCIES)
            yield self.files.write("channel_stats", bucket.number, channel_rows(sums, latencies))


def counted_in(table: str, rows: pa.Table, epoch_ms: int) -> Mapping[str, pa.Table]:
    """Return the sums that some rows of a table add to, by kind."""
    if table == "waku_messages":
        return {"held": holdings(rows)}
    sums = SUMS_OF[table](rows)
    if table == "sds_messages":
        sums |= {"parts": bytes_by_part(rows), "transmissions": transmissions(rows, epoch_ms)}
    if table == "repeats":
        again = transmissions(retransmissions(rows), epoch_ms)
        sums |= {"parts": repeated_bytes(rows), "transmissions": again}
    return sums


def figures_of(rows: Mapping[str, pa.Table], epoch_ms: int, rate_limit: int | None) -> dict[str, pa.Table]:
    """Return the tables of figures of some channels, from all rows of them in the tables of `STATISTICS_INPUT`."""
    found = defaultdict[str, list[pa.Table]](list)
    for table in STATISTICS_INPUT:
        for kind, counted in counted_in(table, rows[table], epoch_ms).items():
            found[kind].append(counted)
    sums, latencies = added_sums(pa.concat_tables(found["sums"])), pa.concat_tables(found["latencies"])
    channels = channel_sums(sums).select(CHANNEL_SUMS.names).cast(CHANNEL_SUMS)
    return {
        "sender_stats": sender_rows(sums, latencies),
        "channel_stats": channel_rows(channels, added_latencies(latencies, _WHO[:1])),
        "bandwidth": added_bytes(pa.concat_tables(found["parts"])),
        "rate_utilisation": utilisation(pa.concat_tables(found["transmissions"]), rate_limit),
    }


def balance_terms(notes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the terms of the balance of rows from the notes of the job.

    They are ``rows_in``, ``sync`` (SDS messages that are sync), ``other_shards`` (repeats on another shard),
    ``carriers`` (SDS messages that carried delivered messages) and ``held`` (segments of incomplete messages).
    """
    total = Counter({"rows_in": 0, "sync": 0, "other_shards": 0, "carriers": 0, "held": 0})
    for told in notes:
        total.update(told)
    return dict(total)


def balance_terms_of(table: str, rows: pa.Table) -> Mapping[str, int]:
    """Return the terms of the balance (`balance_terms`) for some rows of a table."""
    if table == "delivered":
        return {"carriers": _sum(pc.max_element_wise(pc.list_value_length(rows.column("sds_ids")), 1))}
    if table == "waku_messages":
        return {"rows_in": _sum(rows.column("copies"))}
    if table == "incomplete":
        return {"held": _sum(rows.column("held"))}
    if table == "sds_messages":
        return {"sync": _sum(pc.equal(rows.column("kind"), "sync"))}
    if table == "repeats":
        return {"other_shards": _sum(pc.equal(rows.column("reason"), OTHER_SHARD))}
    return {}


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _first_bucket(rows: int) -> NDArray[np.uint16]:
    return np.zeros(rows, np.uint16)


_CHANNEL_LATENCIES: Final = pa.schema([field for field in LATENCIES if field.name != "sender_id"])
