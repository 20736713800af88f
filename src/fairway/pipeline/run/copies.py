"""Finds the messages that a Parquet source has more than once, before any is written.

Most archives have nearly every message once: each WakuMessage, and each SDS message, of which every retransmission is
another WakuMessage. A run that knows the repeated messages groups only these. All others are written by the tasks that
read them, without a shuffle of their payloads.

A WakuMessage is recognised by the first 8 bytes of its hash, its *head*. Two messages may share a head, or rows of one
hash may differ in columns that the decoder reads. `disagree` detects both, and the run then groups all rows. An SDS
message is recognised by a hash of its ids, its *key*: a shared key only groups unrelated messages. So neither a
coincidence nor a forged table changes a result.
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
    cut,
    exchanged,
    gathered,
    in_parts,
    in_tasks,
    note,
    notes_of,
    task_number,
)
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.stages.message_hashes import HASHED

LEAST_BYTES: Final = 134_217_728
"""Smallest source for which the extra job saves more than it costs."""
MOST_REPEATED: Final = 1_000_000
"""Repeated messages of either kind that each task can hold: 20 MB."""
_MOST_SHARE: Final = 0.125
"""Largest share of rows with repeated heads; with more, grouping all rows by hash costs hardly more."""

_HEADS: Final = "heads"
_KEYS: Final = "keys"
"""The kinds of blobs, of WakuMessages and of SDS messages: first of all, then of the repeated ones."""
_HEADS_SCHEMA: Final = pa.schema([("head", pa.uint64()), ("part", pa.int32())])
_KEYS_SCHEMA: Final = pa.schema([("key", pa.uint64()), ("head", pa.uint64())])
_READ: Final = ("message_hash", "content_topic", "payload", "meta")
"""The columns of a source for a message's head (the first column) and key."""
_DECODED: Final = (*HASHED, "rate_limit_proof")
"""The columns that the decoder reads."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The messages that a source has more than once."""

    heads: Hashes
    """The heads of WakuMessages, ascending."""
    parts: NDArray[np.int32]
    """For each head the first part of the source that has it."""
    keys: Hashes | None
    """The keys of SDS messages in several WakuMessages, ascending; None if too many or not searched."""


class RepeatedInPart:
    """Finds the repeated rows of a part, and the first rows of these; takes the rows in order, in pieces."""

    def __init__(self, repeated: Repeated, part: int) -> None:
        self._heads = repeated.heads
        self._is_left = repeated.parts == part

    def split(self, heads: Hashes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows are repeated, and which rows are the first of their message in the source."""
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
    """Return the repeated messages in the parts of a source; only ids are decoded.

    Without a decoder only hashes are read, and ``keys`` is None. Returns None if too many WakuMessages are repeated, or
    if a row has no hash or one of another length than 32 bytes.
    """
    buckets = len(parts)  # so that a bucket has about as many rows as a part

    def cut_numbers(batches: Batches) -> Batches:
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
    read = partial(scan.for_tasks().read_columns, columns)
    rows = in_parts(spark, parts, lambda part: cut_numbers(read(part)), BLOBS)
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
    """Return whether rows that share a head are of several messages, or differ in columns that the decoder reads.

    ``copies`` must have all rows of each head in it.
    """
    hashes = copies["message_hash"]
    _, messages = dense(codes_of(hashes))
    _, heads = dense(codes_of(pc.binary_slice(hashes, 0, HEAD_BYTES)))
    _, distinct = dense(codes_of(hashes, *(copies[name] for name in _DECODED)))
    return not messages == heads == distinct


def _repeated(blobs: Batches, most: int) -> Batches:
    """Yield the repeated messages of a bucket, or a note of the kind that has too many."""
    bucket = gathered(blobs)
    yield from bucket.notes
    heads = _grouped(bucket.table(_HEADS, _HEADS_SCHEMA), "head", "part")
    again = heads.filter(pc.greater(heads["part_count"], 1))
    rows, all_rows = (pc.sum(each["part_count"]).as_py() or 0 for each in (again, heads))
    if again.num_rows > most or rows > _MOST_SHARE * all_rows:
        yield note(too_many=_HEADS)
    else:
        yield from _row_of(_HEADS, again.select(["head", "part_min"]), _HEADS_SCHEMA)
    # Copies of one WakuMessage count once, because they are decoded once.
    keys = _grouped(bucket.table(_KEYS, _KEYS_SCHEMA), "key", "head")
    again = keys.filter(pc.not_equal(keys["head_min"], keys["head_max"]))
    if again.num_rows > most:
        yield note(too_many=_KEYS)
    else:
        yield from _row_of(_KEYS, again.select(["key", "head_min"]), _KEYS_SCHEMA)


def _grouped(table: pa.Table, number: str, value: str) -> pa.Table:
    """Return for each number the count of its rows, and the least and greatest of their values."""
    return table.group_by(number, use_threads=False).aggregate([(value, how) for how in ("count", "min", "max")])


def _row_of(kind: str, table: pa.Table, schema: pa.Schema) -> Batches:
    yield from cut(table.rename_columns(schema.names), np.zeros(table.num_rows, np.uint16), 1, kind)
