"""The job that looks messages up: ``missing_messages``, ``acknowledgements`` and ``ack_latency``.

::

    tasks over files of sds_messages: citations, content messages -+
    tasks over files of computed_segments: their ids               +-> by (channel_id, message_id): the tables
    tasks over files of bloom_evidence: evidence of filters        |
                                                                   v
                                                             notes of split channels

It reads ids and causal histories, but no content. Its notes also describe the channels that are split among ranges.
`split_facts` turns these notes into facts for the next job, which examines all other channels itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.codes import NOTHING, ranked
from fairway.pipeline.exchange import BLOBS, Batches, Cutter, exchanged, filtered, gathered, in_tasks, note, shared_out
from fairway.pipeline.ranges import Place, range_of, split_channels
from fairway.pipeline.stages.acknowledgements import EVIDENCE, SENT, acknowledgement_rows, latency_rows
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.keyed import KEY, Keyed, keyed
from fairway.pipeline.stages.missing_messages import MESSAGE_KEYS, missing_rows, rebuilt_in
from fairway.pipeline.tables.files import TableFiles

WRITTEN: Final = ("missing_messages", "acknowledgements", "ack_latency")
"""The tables that the job writes."""

_READ: Final = {
    "sds_messages": (*CITING_COLUMNS, "lamport"),
    "computed_segments": (*MESSAGE_KEYS.names, "is_guess"),
    "bloom_evidence": tuple(EVIDENCE.names),
}
"""The columns of each table that are read."""

_CLOCK: Final = pa.field("clock", pa.int64())
"""The Lamport timestamp of a content message in a split channel; else null."""
_SENT: Final = SENT.append(_CLOCK)
_CITED: Final = CITED.append(_CLOCK)
_COUNTED: Final = ("channel_id", "lamport", "message_id")

Starts = Sequence[tuple[int, int]]
"""The ranges of a channel, each with the number of the channel's content messages in earlier ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """The inputs of the tasks of the job."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    bounds: Sequence[Place]
    """The ends of the ranges of the next job."""
    possible_acks_threshold: int

    def frame(self, spark: SparkSession, names: Mapping[str, Sequence[str]], tasks: int) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`.

        ``names`` has the files of ``sds_messages``, ``computed_segments`` and, if it was made, ``bloom_evidence``.
        """
        places = [(table, name) for table in _READ for name in names.get(table, ())]
        rows = shared_out(spark, places, tasks, self._cut)
        return in_tasks(exchanged(rows, self.buckets), self._hear, BLOBS)

    def _cut(self, places: Sequence[tuple[str, str]]) -> Batches:
        cutters = {kind: Cutter(kind, self.buckets) for kind in ("sent", "cited", "rebuilt", "evidence")}
        messages: Counter[tuple[str, int]] = Counter()
        for table, name in places:
            for rows in self.files.read(table, [name], _READ[table]):
                if table == "sds_messages":
                    found = self._sent_and_cited(rows)
                    messages.update(self._in_ranges(rows))
                elif table == "computed_segments":
                    found = {"rebuilt": rebuilt_in(rows)}
                else:
                    found = {"evidence": rows}
                for kind, part in found.items():
                    by = self.keys.by_columns([part.column(name) for name in KEY], self.buckets)
                    yield from cutters[kind].add(part, by)
        for cutter in cutters.values():
            yield from cutter.close()
        yield note(split=[[*place, count] for place, count in messages.items()])

    def _sent_and_cited(self, sds_messages: pa.Table) -> dict[str, pa.Table]:
        is_content = pc.equal(sds_messages.column("kind"), "content")
        clocked = pc.and_(is_content, self._are_split(sds_messages))
        clocks = pc.if_else(clocked, pc.fill_null(sds_messages.column("lamport"), 0), pa.scalar(None, pa.int64()))
        messages = sds_messages.append_column(_CLOCK, clocks)
        return {
            "sent": filtered(messages.select(_SENT.names), is_content),
            "cited": citations_in(messages, (_CLOCK.name,)).select(_CITED.names),
        }

    def _are_split(self, messages: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(messages.column("channel_id"), value_set=pa.array(split_channels(self.bounds), pa.string()))

    def _in_ranges(self, sds_messages: pa.Table) -> dict[tuple[str, int], int]:
        """Return the number of content messages of each split channel in each range."""
        chosen = pc.and_(pc.equal(sds_messages.column("kind"), "content"), self._are_split(sds_messages))
        messages = sds_messages.select(_COUNTED).filter(chosen)
        (channels,), names = ranked(messages.column("channel_id"))
        counts = np.bincount(channels * (len(self.bounds) + 1) + range_of(self.bounds, *messages.columns))
        places = (divmod(place, len(self.bounds) + 1) for place in np.flatnonzero(counts).tolist())
        numbers = ((names[channel].as_py(), number) for channel, number in places)
        return dict(zip(numbers, counts[counts > 0].tolist(), strict=True))

    def _hear(self, batches: Batches) -> Batches:
        bucket = gathered(batches)
        yield from bucket.notes
        if not bucket.tables:
            return
        tables = [bucket.table("sent", _SENT), bucket.table("cited", _CITED), bucket.table("rebuilt", MESSAGE_KEYS)]
        if "evidence" in bucket.tables:
            tables.append(bucket.tables["evidence"])
        sent, cited, rebuilt, *evidence = keyed(*tables)
        missing = missing_rows(sent, cited, rebuilt)
        acknowledged = acknowledgement_rows(
            sent, cited, *evidence, possible_acks_threshold=self.possible_acks_threshold
        )
        made = {
            "missing_messages": missing,
            "acknowledgements": acknowledged.table,
            "ack_latency": latency_rows(sent, acknowledged),
        }
        for name, table in made.items():
            if table.num_rows:
                yield self.files.write(name, bucket.number, table)
        gappy = missing.column("channel_id").filter(self._are_split(missing))
        troubled = pa.chunked_array([*gappy.chunks, *_out_of_order(sent, cited).chunks], pa.string())
        yield note(troubled=troubled.unique().to_pylist())


def split_facts(notes: Iterable[Mapping[str, Any]]) -> dict[str, Starts | None]:
    """Return the starts of each split channel in the notes of the job, by name.

    They are None if a message of the channel cites a missing one, or one whose timestamp is not below its own.
    """
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    troubled: set[str] = set()
    for told in notes:
        troubled.update(told.get("troubled", ()))
        for channel, number, messages in told.get("split", ()):
            counts[channel][number] += messages
    return {name: None if name in troubled else _starts(own) for name, own in counts.items()}


def _starts(counts: Mapping[int, int]) -> Starts:
    numbers = sorted(counts)
    before = accumulate((counts[number] for number in numbers), initial=0)
    return list(zip(numbers, before, strict=False))


def _out_of_order(sent: Keyed, cited: Keyed) -> pa.ChunkedArray:
    """Return the split channels in which a message cites another whose timestamp is not below its own."""
    rows = sent.rows()[cited.keys]
    known = np.flatnonzero((rows != NOTHING) & pc.is_valid(cited.table.column("clock")).to_numpy())
    own = pc.fill_null(sent.table.column("clock"), 0).to_numpy()[rows[known]]
    citing = cited.table.column("clock").take(pa.array(known)).to_numpy()
    return sent.table.column("channel_id").take(pa.array(rows[known][own >= citing]))
