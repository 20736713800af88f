"""`Oddity`: rows of the archives of interest to an operator that are neither a loss nor an outage.

The kinds are damaged copies, messages of other applications, messages on several shards, implausible timestamps, and
messages that reached an archive after a stream had passed their time. Each kind has a count and a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.dataset as ds

from fairway.pipeline.report.stores import StoreReport
from fairway.pipeline.report.words import short_name
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.decoding import Status
from fairway.units import counted

EARLIEST_NS: Final = 1_420_070_400_000_000_000
"""2015-01-01; Waku messages are younger."""
_FOREIGN: Final = (Status.NOT_SDS.value, Status.NO_ID.value)
"""Statuses in quarantine of messages of other applications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """One kind of rows."""

    kind: str
    count: int
    text: str
    """A sentence about the rows."""


def oddities(
    tables: RunTables, stores: Sequence[StoreReport], quarantined: Mapping[str, int], now_ns: int
) -> tuple[Oddity, ...]:
    """Return the kinds with rows; ``quarantined`` counts messages by their status."""
    repairable = sum(store.repairable for store in stores)
    damaged = quarantined.get(Status.HASH_MISMATCH.value, 0)
    early, future = _untimely(tables, now_ns)
    foreign = sum(quarantined.get(status, 0) for status in _FOREIGN)
    shards = tables.balance.other_shards
    late = sum(source.get("late", 0) for source in tables.manifest["sources"])
    topics = quarantined.get(Status.BAD_TOPIC.value, 0)
    rows = ", ".join(f"{store.damaged:,} in {short_name(store.source)}" for store in stores if store.damaged)
    by_store = f" (damaged rows: {rows})"
    found = (
        ("damaged-copies", repairable, f"{_are(repairable, 'copy', 'copies')} damaged, and intact elsewhere{by_store}"),
        (
            "damaged-messages",
            damaged,
            f"{_are(damaged, 'message')} damaged in every store that has {'it' if damaged == 1 else 'them'}{by_store}",
        ),
        ("bad-topics", topics, f"{_have(topics)} a topic that is not UTF-8"),
        ("foreign", foreign, f"{_are(foreign, 'message')} of other applications"),
        ("several-shards", shards, f"{_are(shards, 'message')} the sending of another one on a further shard"),
        ("before-2015", early, f"{_have(early)} a time before 2015"),
        ("future", future, f"{_have(future)} a time in the future"),
        ("late", late, f"{counted(late, 'message')} reached an archive late; the stream read them at a refresh"),
    )
    return tuple(Oddity(kind=kind, count=count, text=f"{text}.") for kind, count, text in found if count)


def _are(count: int, what: str, plural: str | None = None) -> str:
    return f"{counted(count, what, plural)} {'is' if count == 1 else 'are'}"


def _have(count: int) -> str:
    return f"{counted(count, 'message')} {'has' if count == 1 else 'have'}"


def _untimely(tables: RunTables, now_ns: int) -> tuple[int, int]:
    """Return the number of WakuMessages with a time before `EARLIEST_NS`, and of those with one after ``now_ns``."""
    early = late = 0
    time = ds.field("timestamp_ns")
    for batch in tables.batches("waku_messages", ["timestamp_ns"], (time < EARLIEST_NS) | (time > now_ns)):
        told = batch.column(0).to_numpy(zero_copy_only=False)
        early += int(np.count_nonzero(told < EARLIEST_NS))
        late += int(np.count_nonzero(told > now_ns))
    return early, late
