"""Finds out which messages a Parquet source has more than once, before any is written.

Most archives have nearly every message once: each WakuMessage, and each SDS message, of which every retransmission is
another WakuMessage. If a run knows which come again, only these have to be brought together; all others are written
where they are read, and their payloads do not go through Spark's shuffle.

A WakuMessage is recognised by the first 8 bytes of its hash, its *head*. Two messages may share one: then, and wherever
rows of one hash differ in what is decoded, `disagree` says so, and the run brings all rows together instead. An SDS
message is recognised by a hash of its ids, its *key*: those that share one are brought together, and no more. So
neither a coincidence nor a forged table changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from fairway.pipeline.bucket_keys import HEAD_BYTES, BucketKeys, Hashes, found_in
from fairway.pipeline.codes import codes_of, dense
from fairway.pipeline.exchange import (
    BLOBS,
    Batches,
    Cutter,
    begin_task,
    cut,
    exchanged,
    gathered,
    in_tasks,
    note,
    notes_of,
    task_number,
)
from fairway.pipeline.sources.open_source import mapped_parts
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.message_hashes import HASHED

LEAST_BYTES: Final = 134_217_728
"""For a smaller source a job more costs more than it saves."""
MOST_REPEATED: Final = 1_000_000
"""So many repeated messages of either kind each task can hold: 20 MB."""
_MOST_SHARE: Final = 0.125
"""If more of the rows have repeated heads, to bring all together by hash costs hardly more."""

_HEADS: Final = "heads"
_KEYS: Final = "keys"
"""The kinds of blobs: of WakuMessages, and of those with an SDS message. First of all, then of what comes again."""
_HEADS_SCHEMA: Final = pa.schema([("head", pa.uint64()), ("part", pa.int32())])
_KEYS_SCHEMA: Final = pa.schema([("key", pa.uint64()), ("head", pa.uint64())])
_READ: Final = ("message_hash", "content_topic", "payload", "meta")
"""The columns of a source in which a message's head, the first one, and key are."""
_DECODED: Final = (*HASHED, "rate_limit_proof")
"""What decoding reads of a message."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The messages that are in a source more than once."""

    heads: Hashes
    """The heads of WakuMessages, ascending."""
    parts: NDArray[np.int32]
    """For each the first part of the source that has it."""
    keys: Hashes | None
    """The keys of SDS messages in several WakuMessages, ascending; None if they are too many, or not looked for."""


class RepeatedInPart:
    """Tells of the rows of a part, some at a time in their order, which are repeated and which of these come first."""

    def __init__(self, repeated: Repeated, part: int) -> None:
        self._heads = repeated.heads
        self._is_left = repeated.parts == part

    def split(self, heads: Hashes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows are repeated, and which rows are the first in the source of their message."""
        is_repeated, places = found_in(self._heads, heads)
        is_first = ~is_repeated
        rows = np.flatnonzero(is_repeated)
        rows = rows[self._is_left[places[rows]]]
        own, firsts = np.unique(places[rows], return_index=True)
        self._is_left[own] = False
        is_first[rows[firsts]] = True
        return is_repeated, is_first


def repeated_in(
    spark: SparkSession,
    scan: ParquetScan,
    parts: Sequence[Any],
    keys: BucketKeys,
    decoder: BatchDecoder | None,
) -> Repeated | None:
    """Return which messages come more than once in the parts of a source, of which their ids are decoded.

    Without a decoder only hashes are read, and no keys are known. None if too many WakuMessages come again to gain by
    it, or if a row has a hash of another length than 32 bytes, or none.
    """
    buckets = len(parts)  # so that a bucket has about as many rows as a part

    def cut_numbers(batches: Batches) -> Batches:
        begin_task()
        part = task_number()
        heads_cutter, keys_cutter = Cutter(_HEADS, buckets), Cutter(_KEYS, buckets)
        for batch in batches:
            heads = keys.heads(batch.column("message_hash"))
            if heads is None:
                yield note(irregular=True)
                return
            table = pa.table([heads, np.full(len(heads), part, np.int32)], schema=_HEADS_SCHEMA)
            yield from heads_cutter.add(table, keys.by_number(heads, buckets))
            if decoder is None:
                continue
            ids = decoder.ids(batch)
            is_sds = ids["message_id"].is_valid().to_numpy(zero_copy_only=False)
            own = keys.hashes([ids["channel_id"], ids["message_id"]])[is_sds]
            table = pa.table([own, heads[is_sds]], schema=_KEYS_SCHEMA)
            yield from keys_cutter.add(table, keys.by_number(own, buckets))
        yield from heads_cutter.close()
        yield from keys_cutter.close()

    columns = _READ[:1] if decoder is None else _READ
    rows = mapped_parts(spark, partial(scan.for_tasks().read_columns, columns), parts, cut_numbers, BLOBS)
    most = MOST_REPEATED // buckets
    found = in_tasks(exchanged(rows, buckets), lambda blobs: _repeated(blobs, most), BLOBS)
    bucket = gathered(found.toArrow().to_batches())
    too_many = {told.get("too_many") for told in notes_of(row["blob"][0].as_py() for row in bucket.notes)}
    if too_many - {_KEYS}:
        return None
    table = bucket.table(_HEADS, _HEADS_SCHEMA)
    order = np.argsort(table["head"].to_numpy())
    several = None if too_many or decoder is None else np.sort(bucket.table(_KEYS, _KEYS_SCHEMA)["key"].to_numpy())
    return Repeated(table["head"].to_numpy()[order], table["part"].to_numpy()[order], several)


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
    """Yield what of a bucket comes more than once, or a note of which kind it is too much."""
    begin_task()
    bucket = gathered(blobs)
    yield from bucket.notes
    heads = _grouped(bucket.table(_HEADS, _HEADS_SCHEMA), "head", "part")
    again = heads.filter(pc.greater(heads["part_count"], 1))
    rows, all_rows = (pc.sum(each["part_count"]).as_py() or 0 for each in (again, heads))
    if again.num_rows > most or rows > _MOST_SHARE * all_rows:
        yield note(too_many=_HEADS)
    else:
        yield from _row_of(_HEADS, again.select(["head", "part_min"]), _HEADS_SCHEMA)
    # Copies of one WakuMessage are decoded once, and are one here.
    keys = _grouped(bucket.table(_KEYS, _KEYS_SCHEMA), "key", "head")
    again = keys.filter(pc.not_equal(keys["head_min"], keys["head_max"]))
    if again.num_rows > most:
        yield note(too_many=_KEYS)
    else:
        yield from _row_of(_KEYS, again.select(["key", "head_min"]), _KEYS_SCHEMA)


def _grouped(table: pa.Table, number: str, value: str) -> pa.Table:
    """Return for each number how many rows have it, and the least and the greatest of their values."""
    return table.group_by(number, use_threads=False).aggregate([(value, how) for how in ("count", "min", "max")])


def _row_of(kind: str, table: pa.Table, schema: pa.Schema) -> Batches:
    yield from cut(table.rename_columns(schema.names), np.zeros(table.num_rows, np.uint16), 1, kind)
