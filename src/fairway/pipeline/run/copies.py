"""Finds which message hashes are in a Parquet source more than once, before any message is read whole.

Most archives have nearly every message once. If a run knows which come again, only these have to be brought together by
hash; all others are decoded where they are read, and their payloads are moved, compressed and passed through Java once
less.

A message is recognised by the first 8 bytes of its hash, its *head*. Two messages may share one: then, and wherever
rows of one hash differ in what is decoded, `disagree` says so, and the run brings all rows together instead. So neither
a coincidence nor a forged table changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from fairway.pipeline.bucket_keys import HEAD_BYTES, BucketKeys, Hashes
from fairway.pipeline.codes import codes_of, dense
from fairway.pipeline.exchange import BLOBS, Batches, Cutter, begin_task, exchanged, gathered, note, task_number
from fairway.pipeline.sources.open_source import mapped_parts
from fairway.pipeline.sources.parquet_scan import ParquetScan

LEAST_BYTES: Final = 134_217_728
"""For a smaller source a job more costs more than it saves."""
MOST_REPEATED: Final = 1_000_000
"""So many repeated hashes each task can hold: 12 MB."""
_MOST_SHARE: Final = 0.125
"""If more of the rows are repeated, to bring all together by hash costs hardly more."""

_HEADS: Final = "heads"
_REPEATED: Final = "repeated"
"""The kinds of blobs: of all heads, and of those that come more than once."""
_FOUND: Final = pa.schema([("head", pa.uint64()), ("part", pa.int32())])
_DECODED: Final = ("content_topic", "payload", "meta", "timestamp_ns", "rate_limit_proof")
"""What decoding reads of a message."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The messages that are in a source more than once."""

    heads: Hashes
    """Their heads, ascending."""
    parts: NDArray[np.int32]
    """For each the first part of the source that has it."""


class RepeatedInPart:
    """Tells of the rows of a part, some at a time in their order, which are repeated and which of these come first."""

    def __init__(self, repeated: Repeated, part: int) -> None:
        self._heads = repeated.heads
        self._is_left = repeated.parts == part

    def split(self, heads: Hashes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows are repeated, and which rows are the first in the source of their message."""
        places = np.searchsorted(self._heads, heads)
        np.minimum(places, max(0, len(self._heads) - 1), out=places)
        is_repeated = self._heads[places] == heads if len(self._heads) else np.zeros(len(heads), np.bool_)
        is_first = ~is_repeated
        rows = np.flatnonzero(is_repeated)
        rows = rows[self._is_left[places[rows]]]
        own, firsts = np.unique(places[rows], return_index=True)
        self._is_left[own] = False
        is_first[rows[firsts]] = True
        return is_repeated, is_first


def repeated_in(
    spark: SparkSession, scan: ParquetScan, parts: Sequence[Any], keys: BucketKeys, buckets: int
) -> Repeated | None:
    """Return which messages come more than once in the parts of a source, of which only hashes are read.

    None if they are too many to gain by it, or if a row has a hash of another length than 32 bytes, or none.
    """

    def cut(batches: Batches) -> Batches:
        begin_task()
        part = task_number()
        cutter = Cutter(_HEADS, buckets)
        for batch in batches:
            heads = keys.heads(batch.column("message_hash"))
            if heads is None:
                yield note(irregular=True)
                return
            table = pa.table([heads, np.full(len(heads), part, np.int32)], schema=_FOUND)
            yield from cutter.add(table, keys.by_head(heads, buckets))
        yield from cutter.close()

    heads = mapped_parts(spark, scan.read_hashes, parts, cut, BLOBS)
    found = exchanged(heads, buckets).mapInArrow(lambda blobs: _repeated(blobs, MOST_REPEATED // buckets), BLOBS)
    bucket = gathered(found.toArrow().to_batches())
    if bucket.notes:
        return None
    table = bucket.table(_REPEATED, _FOUND)
    order = np.argsort(table["head"].to_numpy())
    return Repeated(table["head"].to_numpy()[order], table["part"].to_numpy()[order])


def disagree(copies: pa.Table) -> bool:
    """Return whether rows that share a head are not all of one message, decoded alike.

    All rows of each head that is there are needed.
    """
    hashes = copies["message_hash"]
    _, messages = dense(codes_of(hashes))
    _, heads = dense(codes_of(pc.binary_slice(hashes, 0, HEAD_BYTES)))
    _, distinct = dense(codes_of(hashes, *(copies[name] for name in _DECODED)))
    return not messages == heads == distinct


def _repeated(blobs: Batches, most: int) -> Batches:
    """Yield the heads of a bucket that come more than once, or a note that they are too many."""
    begin_task()
    bucket = gathered(blobs)
    yield from bucket.notes
    table = bucket.table(_HEADS, _FOUND)
    heads, parts = table["head"].to_numpy(), table["part"].to_numpy()
    order = np.argsort(heads)
    heads, parts = heads[order], parts[order]
    starts = np.flatnonzero(np.diff(heads, prepend=~heads[:1]))
    counts = np.diff(starts, append=len(heads))
    several = np.flatnonzero(counts > 1)
    if len(several) > most or counts[several].sum() > _MOST_SHARE * len(heads):
        yield note(too_many=int(counts[several].sum()))
    elif len(several):
        first = np.minimum.reduceat(parts, starts)[several]
        cutter = Cutter(_REPEATED, 1)
        yield from cutter.add(pa.table([heads[starts[several]], first], schema=_FOUND), np.zeros(len(first), np.uint16))
        yield from cutter.close()
