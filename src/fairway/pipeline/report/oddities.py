"""`Oddity`: rows of the archives that are neither a loss nor an outage, and that an operator should know of.

Copies that a store damaged, messages of other applications, messages on several shards, timestamps that no clock
showed, and messages that a stream passed. Each has a count and a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.dataset as ds

from fairway.pipeline.report.words import short_name
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.decoding import Status
from fairway.units import counted

EARLIEST_NS: Final = 1_420_070_400_000_000_000
"""2015-01-01: no Waku message is older."""
DAMAGED: Final = frozenset({Status.HASH_MISMATCH.value, Status.BAD_TOPIC.value})
"""What is in quarantine because the archive has something else than what was sent."""
_REMEDY: Final = "'fairway pipeline run' over the archives has them"
_FOREIGN: Final = (Status.NOT_SDS.value, Status.NO_ID.value)
"""What is in quarantine because it is of another application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """One kind of rows."""

    kind: str
    count: int
    text: str
    """A sentence about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedCopies:
    """What a store has damaged."""

    source: str
    count: int
    """Messages of which its copy has another hash than it says."""
    repairable: int
    """Those of them that another store has intact."""


def oddities(
    tables: RunTables, stores: Sequence[DamagedCopies], quarantined: Mapping[str, int], now_ns: int
) -> tuple[Oddity, ...]:
    """Return the kinds of which there are some rows; ``quarantined`` counts messages by their status."""
    repairable = sum(store.repairable for store in stores)
    damaged = quarantined.get(Status.HASH_MISMATCH.value, 0)
    early, future = _untimely(tables, now_ns)
    foreign = sum(quarantined.get(status, 0) for status in _FOREIGN)
    shards = tables.balance.other_shards
    late = sum(source.get("late") or 0 for source in tables.manifest["sources"])
    topics = quarantined.get(Status.BAD_TOPIC.value, 0)
    rows = ", ".join(f"{store.count:,} in {short_name(store.source)}" for store in stores if store.count)
    by_store = f" (damaged rows: {rows})"
    found = (
        ("damaged-copies", repairable, f"{_are(repairable, 'copy', 'copies')} damaged, and intact elsewhere{by_store}"),
        ("damaged-messages", damaged, f"{_are(damaged, 'message')} damaged in every store that has it{by_store}"),
        ("bad-topics", topics, f"{_have(topics)} a topic that is not UTF-8"),
        ("foreign", foreign, f"{_are(foreign, 'message')} of other applications"),
        ("several-shards", shards, f"{_are(shards, 'message')} the sending of another one on a further shard"),
        ("before-2015", early, f"{_have(early)} a time before 2015"),
        ("future", future, f"{_have(future)} a time in the future"),
        ("late", late, f"{counted(late, 'message')} reached an archive too late for the stream; {_REMEDY}"),
    )
    return tuple(Oddity(kind=kind, count=count, text=f"{text}.") for kind, count, text in found if count)


def _are(count: int, what: str, plural: str | None = None) -> str:
    return f"{counted(count, what, plural)} {'is' if count == 1 else 'are'}"


def _have(count: int) -> str:
    return f"{counted(count, 'message')} {'has' if count == 1 else 'have'}"


def _untimely(tables: RunTables, now_ns: int) -> tuple[int, int]:
    """Return how many WakuMessages have a time before Waku, and how many one after ``now_ns``."""
    early = late = 0
    time = ds.field("timestamp_ns")
    for batch in tables.batches("waku_messages", ["timestamp_ns"], (time < EARLIEST_NS) | (time > now_ns)):
        told = batch.column(0).to_numpy(zero_copy_only=False)
        early += int(np.count_nonzero(told < EARLIEST_NS))
        late += int(np.count_nonzero(told > now_ns))
    return early, late
