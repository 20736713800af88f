"""`store_lacks`: the messages that a store misses and another store has, by content topic and over time.

`store_lacks` makes one pass over the topics, timestamps and stores of ``waku_messages``, without payloads. Memory is
bounded by the number of stores and time intervals, and by `MOST_TOPICS`: a sender can invent any number of topics, so
further topics are counted together.

A message that only one store has is lost with that store. A participant gets such a message only if it queries this
store. No archive holds the times of queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report.figures import TimeAxis
from fairway.pipeline.report.outages import Outage, outages
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.decoding import Status

MOST_TOPICS: Final = 10_000
DAMAGED: Final = frozenset({Status.HASH_MISMATCH.value, Status.BAD_TOPIC.value})
"""Statuses in quarantine of messages that differ from the ones sent."""
OTHER_TOPICS: Final = "(all other topics)"
_FINER: Final = 512
"""Intervals of the search for outages in each interval of the chart; for one day each is about 3 s long."""

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """One store."""

    source: str
    had: int
    lacked: int
    """Messages that another store had intact and of which this one has no copy, not even a damaged one."""
    damaged: int
    """Messages of which its copy does not match the stated hash."""
    repairable: int
    """Damaged messages that another store has intact."""
    of: int
    alone: int
    """Messages that no other store had: only a query to this store returns them."""
    outages: tuple[Outage, ...]
    """In the order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLack:
    """A store and a content topic of which it missed messages that another store had."""

    source: str
    content_topic: str
    lacked: int
    of: int
    """Distinct messages of the topic that any store had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOverTime:
    """A store, and the messages of other stores that it missed, in equal stretches of time."""

    source: str
    alone: int
    """Messages that no other store had, at any time."""
    lacked: tuple[int, ...]
    of: tuple[int, ...]
    """Messages of channels that any other store had."""
    outages: tuple[Outage, ...]
    repairable: int
    """Messages of which its copy is damaged and another store's copy is intact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLacks:
    """The messages that stores missed."""

    topics: tuple[TopicLack, ...]
    """Pairs of a store and a topic, those with the most missing messages first, at most the limit."""
    total: int
    """Number of all pairs of a store and a topic with missing messages."""
    stores: tuple[StoreOverTime, ...]
    """One for each given store, in the given order."""


def store_lacks(tables: RunTables, stores: Sequence[str], limit: int, axis: TimeAxis | None) -> StoreLacks:
    """Return the messages that each of ``stores`` missed; without an axis there are no counts over time."""
    places = pa.array(list(stores), type=pa.string())
    topics: set[str] = set()
    known: Counter[str] = Counter()
    lacking: list[Counter[str]] = [Counter() for _ in stores]
    alone = np.zeros(len(stores), dtype=np.int64)
    fine = None if axis is None else axis.finer(_FINER)
    shape = (len(stores), 0 if fine is None else fine.bins + 2)
    lacked, of = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    repairable = np.zeros(len(stores), dtype=np.int64)
    for batch in tables.batches("waku_messages", ["content_topic", "timestamp_ns", "sources", "damaged"]):
        had = _had(batch.column("sources"), places)
        damaged = _had(batch.column("damaged"), places)
        owners = _plain(pc.fill_null(pc.list_value_length(batch.column("sources")), 0))
        named = [_counted_as(topic, topics) for topic in batch.column("content_topic").to_pylist()]
        known.update(named)
        stretch = None if fine is None else _stretches(fine, batch)
        for store, lack in enumerate(lacking):
            by_others = owners > had[store]
            repairable[store] += int(np.count_nonzero(damaged[store] & ~had[store] & by_others))
            absent = ~had[store] & ~damaged[store] & (owners > 0)
            alone[store] += int(np.count_nonzero(had[store] & ~by_others))
            lack.update(named[row] for row in np.flatnonzero(absent).tolist())
            if stretch is not None:
                of[store] += np.bincount(stretch[by_others], minlength=shape[1])
                lacked[store] += np.bincount(stretch[absent & by_others], minlength=shape[1])
    if fine is not None:
        _leave_out_others(tables, places, fine, lacked, of)
    found = [
        TopicLack(source=source, content_topic=topic, lacked=lacked_of, of=known[topic])
        for source, lack in zip(stores, lacking, strict=True)
        for topic, lacked_of in lack.items()
    ]
    found.sort(key=lambda told: (-told.lacked, told.source, told.content_topic))
    return StoreLacks(
        topics=tuple(found[:limit]),
        total=len(found),
        stores=tuple(
            _over_time(source, int(alone[store]), int(repairable[store]), lacked[store, 1:-1], of[store, 1:-1], fine)
            for store, source in enumerate(stores)
        ),
    )


def _leave_out_others(tables: RunTables, places: pa.Array, fine: TimeAxis, lacked: _Ints, of: _Ints) -> None:
    """Subtract the messages of no channel: a store without the messages of other applications was not out."""
    is_counted = ~ds.field("status").isin([*DAMAGED])
    for batch in tables.batches("quarantine", ["timestamp_ns", "sources"], is_counted):
        had = _had(batch.column("sources"), places)
        owners = _plain(pc.fill_null(pc.list_value_length(batch.column("sources")), 0))
        stretch = _stretches(fine, batch)
        for store in range(len(places)):
            by_others = owners > had[store]
            of[store] -= np.bincount(stretch[by_others], minlength=of.shape[1])
            lacked[store] -= np.bincount(stretch[~had[store] & by_others], minlength=of.shape[1])
    np.maximum(of, 0, out=of)
    np.clip(lacked, 0, of, out=lacked)


def _stretches(fine: TimeAxis, batch: pa.RecordBatch) -> _Ints:
    times = np.asarray(batch.column("timestamp_ns").to_numpy(zero_copy_only=False), dtype=np.int64)
    return fine.bin_of(times) + 1


def _over_time(
    source: str, alone: int, repairable: int, lacked: _Ints, of: _Ints, fine: TimeAxis | None
) -> StoreOverTime:
    if fine is None:
        return StoreOverTime(source=source, alone=alone, repairable=repairable, lacked=(), of=(), outages=())
    return StoreOverTime(
        source=source,
        alone=alone,
        repairable=repairable,
        lacked=tuple(lacked.reshape(-1, _FINER).sum(axis=1).tolist()),
        of=tuple(of.reshape(-1, _FINER).sum(axis=1).tolist()),
        outages=outages(source, lacked, of, fine.begin_ns, fine.width_ns),
    )


def _had(sources: Any, stores: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each store and each row whether the store had the message."""
    had = np.zeros((len(stores), len(sources)), dtype=np.bool_)
    store = pc.index_in(pc.list_flatten(sources), value_set=stores)
    row = pc.list_parent_indices(sources)
    told = pc.is_valid(store)
    had[_plain(store.filter(told)), _plain(row.filter(told))] = True
    return had


def _plain(column: Any) -> _Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _counted_as(topic: str | None, topics: set[str]) -> str:
    """Return the topic, or `OTHER_TOPICS` for a topic beyond the first `MOST_TOPICS`."""
    named = topic or ""
    if named in topics:
        return named
    if len(topics) >= MOST_TOPICS:
        return OTHER_TOPICS
    topics.add(named)
    return named
