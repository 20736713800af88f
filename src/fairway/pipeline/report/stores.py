"""`store_lacks`: the messages that each store lacks and another store has, by content topic and over time.

One pass over the topics, timestamps and stores of ``waku_messages``, without payloads. Memory is bounded by the number
of stores and time intervals, and by `MOST_TOPICS`: any sender can invent topics, so that further ones are counted
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.run.reading import RunTables

MOST_TOPICS: Final = 10_000
OTHER_TOPICS: Final = "(all other topics)"

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLack:
    """A store and a content topic of which it lacked messages that another store had."""

    source: str
    content_topic: str
    lacked: int
    of: int
    """Distinct messages of the topic that any store had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLacks:
    """What stores lacked."""

    topics: tuple[TopicLack, ...]
    """Those of which most is lacking first, at most the limit."""
    total: int
    """How many pairs of a store and a topic there are in which something is lacking."""
    stretches: tuple[tuple[int, ...], ...]
    """For each store how many messages it lacked in each stretch of time."""


def store_lacks(
    tables: RunTables, stores: Sequence[str], limit: int, bins: int, bin_of: Callable[[_Ints], _Ints]
) -> StoreLacks:
    """Return what each of ``stores`` lacked.

    ``bin_of`` tells the stretch of each timestamp, from 0 to ``bins``; what it puts outside is of no stretch.
    """
    places = pa.array(list(stores), type=pa.string())
    topics: set[str] = set()
    known: Counter[str] = Counter()
    lacking: list[Counter[str]] = [Counter() for _ in stores]
    stretches = np.zeros((len(stores), bins + 2), dtype=np.int64)
    for batch in tables.batches("waku_messages", ["content_topic", "timestamp", "sources"]):
        had = _had(batch.column("sources"), places)
        named = [_counted_as(topic, topics) for topic in batch.column("content_topic").to_pylist()]
        known.update(named)
        times = np.asarray(batch.column("timestamp").to_numpy(zero_copy_only=False), dtype=np.int64)
        stretch = np.clip(bin_of(times), -1, bins) + 1
        for store, lack in enumerate(lacking):
            absent = np.flatnonzero(~had[store])
            lack.update(named[row] for row in absent.tolist())
            np.add.at(stretches[store], stretch[absent], 1)
    found = [
        TopicLack(source=source, content_topic=topic, lacked=lacked, of=known[topic])
        for source, lack in zip(stores, lacking, strict=True)
        for topic, lacked in lack.items()
    ]
    found.sort(key=lambda told: (-told.lacked, told.source, told.content_topic))
    return StoreLacks(
        topics=tuple(found[:limit]),
        total=len(found),
        stretches=tuple(tuple(lane) for lane in stretches[:, 1:-1].tolist()),
    )


def _had(sources: Any, stores: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each store which rows it had."""
    had = np.zeros((len(stores), len(sources)), dtype=np.bool_)
    store = pc.index_in(pc.list_flatten(sources), value_set=stores)
    row = pc.list_parent_indices(sources)
    told = pc.is_valid(store)
    had[_plain(store.filter(told)), _plain(row.filter(told))] = True
    return had


def _plain(column: Any) -> _Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _counted_as(topic: str | None, topics: set[str]) -> str:
    """Return the topic, or what those are counted as that came after `MOST_TOPICS` others."""
    named = topic or ""
    if named in topics:
        return named
    if len(topics) >= MOST_TOPICS:
        return OTHER_TOPICS
    topics.add(named)
    return named
