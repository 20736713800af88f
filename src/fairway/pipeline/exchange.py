"""Exchanges whole tables between tasks: Spark's shuffle transports one blob for each bucket, not single rows.

A task cuts its tables by bucket and returns rows of `BLOBS` to Spark. A blob is an Arrow IPC stream, which the JVM does
not parse. `exchanged` brings the blobs of a bucket into one task, and `gathered` decodes them to tables. `BucketKeys`
computes the bucket of a row.

The columns in a blob are compressed with LZ4, which saves a quarter of the bytes. The JVM copies each byte several
times, and these copies cost more than the compression. Contents that do not get smaller are not compressed.

Some rows are notes: small facts for the driver, as JSON, which later tasks pass on.

The functions over batches need no Spark; they run within `in_tasks`.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import itemgetter
from typing import IO, Any, Final, Self, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.pipeline.bucket_keys import MAX_BUCKETS, BucketKeys
from fairway.pipeline.instants import with_instants
from fairway.pipeline.packing import dense_columns
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.versions import OneVersion

BLOBS: Final = "bucket int, kind string, blob binary"
"""The rows in Spark's shuffle: a bucket, a kind, and some rows of this bucket and kind."""
NOTE: Final = "note"
"""The kind of a blob that is a note."""

FLUSH_BYTES: Final = 33_554_432
"""Bytes that a `Cutter` collects before it cuts; more bytes give larger blobs. The C library requests memory for a
larger value from the system every time, and new pages cost more than the copy into them."""
MAX_BLOB_BYTES: Final = 1_048_576
"""Size of the largest blob; a larger part of a bucket becomes several blobs. With 16 MiB Java needs half as much time
again for each byte, because it allocates memory for every copy."""
SPILL_BYTES: Final = 268_435_456
"""Size above which a bucket is gathered in a file: an archive may hold one SDS message a million times."""
PIECE_BYTES: Final = 67_108_864
"""Size of the pieces in which a bucket that does not fit in memory is processed."""
RESULT_BYTES: Final = 8_388_608
"""Largest batch that a stage returns to Spark."""
_WIDE_ROW_BYTES: Final = 2_048
"""Size above which rows and values are copied one by one, because sorting them first would copy them twice."""

_SCHEMA: Final = arrow_schema(BLOBS)
_ALIGNMENT: Final = 8
"""Alignment of Arrow's buffers. The length of an IPC stream is a multiple of it; a note is padded."""
_STREAM_END_BYTES: Final = 8
"""Length of the end mark of an IPC stream, an empty message."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_BULK_SHARE: Final = 0.9
"""Least share of incompressible columns in a table that is not compressed."""
_ALONE: Final = pa.ipc.IpcReadOptions(use_threads=False)

PLAN_BYTES: Final = 1_048_576
"""Largest plan inside a task's function, which Spark copies to every task."""

Item = TypeVar("Item")
Part = TypeVar("Part")
Batches = Iterator[pa.RecordBatch]
BatchMapper = Callable[[Batches], Batches]
"""The type of function for Spark's ``mapInArrow``."""


class _Work(OneVersion):
    """A function for tasks."""

    def __init__(self, work: BatchMapper) -> None:
        self.work = work


def in_tasks(frame: DataFrame, work: BatchMapper, schema: str) -> DataFrame:
    """Return the result of ``work`` over the batches of each partition; ``schema`` is Spark's DDL. It starts no job.

    A job raises `fairway.errors.PipelineError` if an executor has another version of fairway.
    """
    held = _Work(work)

    def checked(batches: Batches) -> Batches:
        _begin_task()
        return held.work(batches)

    return frame.mapInArrow(checked, schema)


def in_parts(spark: SparkSession, parts: Sequence[Part], work: Callable[[Part], Batches], schema: str) -> DataFrame:
    """Return the result of ``work`` over each part; task n processes part n. It starts no job.

    Parts of more than `PLAN_BYTES` are exchanged as rows, so that each task gets only its own part.
    """
    pickled = [pickle.dumps(part) for part in parts]
    if sum(map(len, pickled)) <= PLAN_BYTES:
        numbers = spark.range(0, len(parts), 1, len(parts))
        return in_tasks(numbers, lambda ids: _each(work, (parts[number] for number in _values(ids))), schema)
    plan = pa.table({"id": pa.array(range(len(parts)), pa.int32()), "part": pa.array(pickled, pa.binary())})
    rows = spark.createDataFrame(plan).repartitionById(len(parts), "id").select("part")
    return in_tasks(rows, lambda blobs: _each(work, map(pickle.loads, _values(blobs))), schema)


def shared_out(
    spark: SparkSession, items: Sequence[Item], tasks: int, work: Callable[[Sequence[Item]], Batches]
) -> DataFrame:
    """Return the result of ``work`` over items as rows of `BLOBS`; ``tasks`` tasks share the items evenly."""
    return in_parts(spark, [items[number::tasks] for number in range(tasks)], work, BLOBS)


def _values(batches: Batches) -> Iterator[Any]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _each(work: Callable[[Part], Batches], parts: Iterable[Part]) -> Batches:
    for part in parts:
        yield from work(part)


def _begin_task() -> None:
    """Prepare a worker process for a task of Spark. Arrow gets one core, because the tasks already share the cores.

    Spark runs the garbage collector in a worker after each task. The objects at the beginning of a task are code and a
    few constants; they are frozen, so that the collector skips them.
    """
    pa.set_cpu_count(1)
    gc.freeze()


def task_number() -> int:
    """Return the number of this task's partition; 0 outside of Spark's tasks."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def note(**told: Any) -> pa.RecordBatch:
    """Return a row of `BLOBS` with a note for the driver; the arguments are values for JSON."""
    text = json.dumps(told).encode()
    return _row(0, NOTE, pa.py_buffer(text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)))


def notes_of(blobs: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the contents of notes, from their blobs."""
    return [json.loads(bytes(blob)) for blob in blobs]


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with 32-bit offsets; a session with ``arrow.useLargeVarTypes`` has 64-bit offsets."""
    kinds = [_narrow(field.type) for field in batch.schema]
    if kinds == batch.schema.types:
        return batch
    return pa.RecordBatch.from_arrays(
        [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)], names=batch.schema.names
    )


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_narrow(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _narrow(field.type)) for field in kind])
    return kind


def pieces(table: pa.Table, size_bytes: int) -> Iterator[pa.Table]:
    """Yield a table in slices of at most ``size_bytes``, or of one row; no slice for a table without rows."""
    if table.num_rows > 1 and table.nbytes > size_bytes:
        half = table.num_rows // 2
        yield from pieces(table.slice(0, half), size_bytes)
        yield from pieces(table.slice(half), size_bytes)
    elif table.num_rows:
        yield table


def filtered(table: pa.Table, chosen: pa.ChunkedArray | pa.Array | NDArray[np.bool_]) -> pa.Table:
    """Return the chosen rows; if all rows are chosen, the same table, which Arrow would copy."""
    chosen = pa.array(chosen) if isinstance(chosen, np.ndarray) else chosen
    return table if pc.all(chosen, skip_nulls=False, min_count=0).as_py() else table.filter(chosen)


def taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return some rows of a table in the given order; unlike Arrow's ``take``, it avoids copying the whole table.

    Arrow first joins all chunks of a column, which may be a bucket that does not fit in memory. Here large values are
    copied once.
    """
    if not len(rows):
        return table.slice(0, 0)
    wide = [name for name in table.column_names if table.column(name).nbytes > _WIDE_ROW_BYTES * table.num_rows]
    found = {name: _values_at(table.column(name), rows) for name in wide}
    others = table.drop_columns(wide)
    if others.num_columns:
        found |= dict(zip(others.column_names, _taken(others, rows).columns, strict=True))
    return pa.table([found[name] for name in table.column_names], schema=table.schema)


def _values_at(column: pa.ChunkedArray, rows: NDArray[np.int64]) -> pa.Array:
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    of_row = np.searchsorted(ends, rows, side="right")
    places = rows - np.append(0, ends)[of_row]
    chunks = column.chunks
    return pa.concat_arrays(
        [chunks[number].slice(place, 1) for number, place in zip(of_row.tolist(), places.tolist(), strict=True)]
    )


def _taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    if 2 * len(rows) >= table.num_rows:
        return table.combine_chunks().take(pa.array(rows))
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    chunks = np.searchsorted(ends, rows, side="right")
    order = np.argsort(chunks, kind="stable")
    found = np.split(order, np.cumsum(np.bincount(chunks, minlength=len(batches)))[:-1])
    parts = [
        batch.take(pa.array(rows[places] - (end - batch.num_rows)))
        for batch, end, places in zip(batches, ends.tolist(), found, strict=True)
        if len(places)
    ]
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.Table.from_batches(parts, table.schema).combine_chunks().take(pa.array(back))


def cut(table: pa.Table, places: NDArray[np.uint16], count: int, *kinds: str) -> Batches:
    """Yield the rows of a table as rows of `BLOBS`, grouped by bucket and kind, each group in the order of the table.

    ``places`` has for each row its bucket, below ``count``, times the number of kinds, plus the number of its kind.
    """
    if not table.num_rows:
        return
    order = np.argsort(places, kind="stable")  # of 16 bits: a radix sort
    is_wide = table.nbytes > _WIDE_ROW_BYTES * table.num_rows
    if not is_wide:
        table = table.take(pa.array(order)).combine_chunks()
    start = 0
    for place, rows in enumerate(np.bincount(places, minlength=count * len(kinds)).tolist()):
        bucket, kind = divmod(place, len(kinds))
        own = _ascending(table, order[start : start + rows]) if is_wide else table.slice(start, rows)
        for piece in pieces(own, MAX_BLOB_BYTES):
            yield _row(bucket, kinds[kind], _compressed_stream(piece))
        start += rows


def _ascending(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return some rows of a table, given in its order, in the chunks of the table; each row is copied once."""
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    parts = [
        batch.take(pa.array(own - (end - batch.num_rows)))
        for batch, end, own in zip(
            batches, ends.tolist(), np.split(rows, np.searchsorted(rows, ends[:-1])), strict=True
        )
        if len(own)
    ]
    return pa.Table.from_batches(parts, table.schema)


class Cutter:
    """Cuts the tables of one or several kinds, many tables at once, so that a bucket has few, large blobs."""

    def __init__(self, kind: str, count: int, *other_kinds: str, flush_bytes: int = FLUSH_BYTES) -> None:
        """Cut into ``count`` buckets; raise `ValueError` if buckets times kinds exceed `MAX_BUCKETS`."""
        self._kinds = (kind, *other_kinds)
        if count * len(self._kinds) > MAX_BUCKETS:
            raise ValueError(f"{count} buckets of {len(self._kinds)} kinds are more than {MAX_BUCKETS} in all")
        self._count = count
        self._flush_bytes = flush_bytes
        self._held: list[tuple[pa.Table, NDArray[np.uint16]]] = []
        self._size_bytes = 0

    def add(
        self, table: pa.Table, buckets: NDArray[np.uint16], kinds: NDArray[np.bool_] | NDArray[np.uint16] | None = None
    ) -> Batches:
        """Add the rows of a table, and yield the blobs that are ready; ``kinds`` has each row's kind, by default 0."""
        places = buckets * np.uint16(len(self._kinds))
        if kinds is not None:
            places += kinds
        done = 0
        for piece in pieces(table, self._flush_bytes):
            self._held.append((piece, places[done : done + piece.num_rows]))
            done += piece.num_rows
            self._size_bytes += piece.nbytes
            if self._size_bytes >= self._flush_bytes:
                yield from self.close()

    def close(self) -> Batches:
        """Yield the blobs of the remaining rows."""
        held, self._held, self._size_bytes = self._held, [], 0
        if held:
            tables, places = zip(*held, strict=True)
            yield from cut(pa.concat_tables(tables), np.concatenate(places), self._count, *self._kinds)


@dataclass(frozen=True, slots=True)
class Bucket:
    """All rows of a bucket."""

    number: int
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """The rows by kind, in the chunks of the blobs; a kind without rows has no entry."""
    notes: list[pa.RecordBatch] = field(default_factory=list)
    """Notes of earlier tasks, for passing on."""

    def table(self, kind: str, schema: pa.Schema) -> pa.Table:
        """Return the rows of a kind; an empty table of this schema if it has none."""
        return self.tables[kind] if kind in self.tables else schema.empty_table()


def gathered(batches: Iterable[pa.RecordBatch], *, spill_bytes: int = SPILL_BYTES) -> Bucket:
    """Return the bucket of a task; bucket 0 without tables if there are no rows.

    Blobs arrive in any order, and are sorted by their contents, so that a repeated task gives the same output. (Spark
    compares checksums of the output, and ends a job if they differ.)

    Tables stay in memory up to ``spill_bytes``. Above that they are in a temporary file, and the result has
    memory-mapped views of it.
    """
    number = 0
    notes: list[pa.RecordBatch] = []
    parts: defaultdict[str, list[pa.Table]] = defaultdict(list)
    with _Tables(spill_bytes) as gathering:
        for batch in map(narrowed, batches):
            kinds, numbers = batch.column("kind").to_pylist(), batch.column("bucket").to_pylist()
            for place, kind in enumerate(kinds):
                if kind == NOTE:
                    notes.append(pa.record_batch(batch.slice(place, 1).columns, schema=_SCHEMA))
                else:
                    number = numbers[place]
                    blob = batch.column("blob")[place].as_buffer()
                    gathering.add((kind, blob.size, crc32(blob)), _table(blob))
        for (kind, *_), table in sorted(gathering.all(), key=itemgetter(0)):
            parts[kind].append(table)
    tables = {kind: pa.concat_tables(own) for kind, own in parts.items()}
    return Bucket(number, tables, sorted(notes, key=lambda told: told["blob"][0].as_py()))


def parted(
    table: pa.Table, places: NDArray[np.uint16], count: int, *, spill_bytes: int = SPILL_BYTES
) -> list[pa.Table]:
    """Return the rows of each place, from 0 and below ``count``, in the order of the table.

    Parts of more than ``spill_bytes`` in all are memory-mapped views of a temporary file.
    """
    parts: list[list[pa.Table]] = [[table.slice(0, 0)] for _ in range(count)]
    done = 0
    with _Tables(spill_bytes) as held:
        for piece in pieces(table, FLUSH_BYTES):
            own = places[done : done + piece.num_rows]
            ends = np.cumsum(np.bincount(own, minlength=count)).tolist()
            ordered = piece.take(pa.array(np.argsort(own, kind="stable"))).combine_chunks()
            for place, (start, end) in enumerate(pairwise([0, *ends])):
                if end > start:
                    held.add((place,), ordered.slice(start, end - start))
            done += piece.num_rows
        for (place,), part in held.all():
            parts[place].append(part)
    return [pa.concat_tables(own) for own in parts]


def exchanged(blobs: DataFrame, count: int) -> DataFrame:
    """Bring the blobs of each bucket into the partition with its number; there are ``count``."""
    return blobs.repartitionById(count, F.col("bucket"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The input of `bucketed`: a DataFrame, and its assignment to buckets."""

    frame: DataFrame
    by: Sequence[str]
    """The columns that determine the bucket; the column with the most values is last."""
    prepare: Callable[[pa.Table], Mapping[str, pa.Table]]
    """Converts some of the rows to tables by kind, each with the columns of ``by``."""


def bucketed(
    cuts: Sequence[Cut],
    work: Callable[[Bucket], Iterable[pa.Table]],
    schema: str,
    count: int | None = None,
) -> DataFrame:
    """Return the result of ``work`` over each bucket, with this schema in Spark's DDL. It starts no job.

    There are ``count`` buckets. Without it, there is one for each of the session's shuffle partitions, and Spark's
    adaptive execution joins small partitions, so that a small table needs few tasks.

    Raises `ConfigurationError` for a streaming DataFrame, because ``work`` needs all rows, not those of a micro-batch.
    """
    if any(each.frame.isStreaming for each in cuts):
        raise ConfigurationError(
            "this stage needs all rows, and a stream comes in micro-batches: write the stream and read it as a table, "
            "or let fairway.pipeline.streaming.stream follow the archives ('decoded' takes a stream)"
        )
    numbers = range(count) if count else spread_numbers(_shuffle_partitions(cuts[0].frame.sparkSession))
    keys = BucketKeys.drawn()
    blobs = [in_tasks(each.frame, _cut_all(each.by, each.prepare, keys, numbers), BLOBS) for each in cuts]
    together = reduce(DataFrame.unionAll, blobs)
    # Spark does not join partitions whose number a program gives.
    placed = exchanged(together, count) if count else together.repartition("bucket")
    return in_tasks(placed, _work_all(work, schema), schema)


def spread_numbers(count: int) -> list[int]:
    """Return numbers that Spark's ``repartition`` by them puts into ``count`` partitions, one into each.

    The partition of a number is its MurmurHash3, with the seed 42, modulo the number of partitions.
    """
    numbers = np.arange(64 * count, dtype=np.uint32)
    mixed = _rotated(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotated(mixed ^ np.uint32(42), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)  # the length of a number in bytes
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    partitions = (mixed ^ (mixed >> np.uint32(16))).view(np.int32) % count
    found, first = np.unique(partitions, return_index=True)
    # If a partition has no number, which is improbable, another one gets two.
    spread = dict(zip(found.tolist(), first.tolist(), strict=True))
    return [spread.get(partition, partition) for partition in range(count)]


def _rotated(numbers: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _shuffle_partitions(session: SparkSession) -> int:
    first = session.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None)
    return int(first or session.conf.get("spark.sql.shuffle.partitions") or 1)


def mapped(frame: DataFrame, work: Callable[[pa.Table], pa.Table], schema: str) -> DataFrame:
    """Return the result of ``work`` over the rows, batch by batch, with this schema in DDL. It starts no job."""

    def map_all(batches: Batches) -> Batches:
        shape = arrow_schema(schema)
        for batch in map(narrowed, batches):
            yield from _given(work(pa.Table.from_batches([batch])), shape)

    return in_tasks(frame, map_all, schema)


def _given(table: pa.Table, shape: pa.Schema) -> Batches:
    """Yield a table for Spark, with instants, in batches of at most `RESULT_BYTES`."""
    for piece in pieces(with_instants(table, shape), RESULT_BYTES):
        yield from piece.combine_chunks().to_batches()


def _cut_all(
    by: Sequence[str], prepare: Callable[[pa.Table], Mapping[str, pa.Table]], keys: BucketKeys, numbers: Sequence[int]
) -> BatchMapper:
    count = len(numbers)

    def cut_all(batches: Batches) -> Batches:
        cutters: dict[str, Cutter] = {}
        for batch in map(narrowed, batches):
            for kind, table in prepare(pa.Table.from_batches([batch])).items():
                cutter = cutters.setdefault(kind, Cutter(kind, count))
                yield from cutter.add(table, keys.by_columns([table[name] for name in by], count))
        for cutter in cutters.values():
            yield from cutter.close()

    def renumbered(batches: Batches) -> Batches:
        for blob in cut_all(batches):
            number = numbers[blob.column("bucket")[0].as_py()]
            yield blob.set_column(0, _SCHEMA.field(0), pa.array([number], pa.int32()))

    return renumbered


def _work_all(work: Callable[[Bucket], Iterable[pa.Table]], schema: str) -> BatchMapper:
    def work_all(batches: Batches) -> Batches:
        shape = arrow_schema(schema)
        bucket = gathered(batches)
        for table in work(bucket) if bucket.tables else ():
            yield from _given(table, shape)

    return work_all


def _row(bucket: int, kind: str, blob: pa.Buffer) -> pa.RecordBatch:
    ends = pa.py_buffer(np.array([0, blob.size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, blob])
    return pa.RecordBatch.from_arrays([pa.array([bucket], pa.int32()), pa.array([kind]), column], schema=_SCHEMA)


def _compressed_stream(table: pa.Table) -> pa.Buffer:
    """Return a table as an IPC stream with compressed columns, or uncompressed if most of it is incompressible."""
    dense_bytes = sum(table[name].nbytes for name in dense_columns(table))
    if dense_bytes > _BULK_SHARE * table.nbytes:
        return _stream(table)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _table(stream: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(stream, options=_ALONE).read_all()


def _stream(table: pa.Table) -> pa.Buffer:
    """Return a table as an IPC stream, in a buffer of the exact size, because a growing buffer is copied repeatedly."""
    sizes = map(pa.ipc.get_record_batch_size, table.to_batches())
    stream = pa.allocate_buffer(table.schema.serialize().size + sum(sizes) + _STREAM_END_BYTES)
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(stream), table.schema) as writer:
        writer.write_table(table)
    return stream


_Key = tuple[Any, ...]


class _Tables:
    """Tables with keys, in their order of arrival, in memory or in an unnamed file."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: list[tuple[_Key, pa.Table]] = []
        self._size_bytes = 0
        self._file: IO[bytes] | None = None
        self._spilled: list[tuple[_Key, int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()  # the mapping stays until its last table is freed

    def add(self, key: _Key, table: pa.Table) -> None:
        self._held.append((key, table))
        self._size_bytes += table.nbytes
        if self._size_bytes > self._most_bytes:
            self._spill()

    def all(self) -> list[tuple[_Key, pa.Table]]:
        if self._file is None:
            return self._held
        self._spill()
        self._file.flush()
        whole = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        return [(key, _table(whole.slice(start, size))) for key, start, size in self._spilled]

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_local_folder())  # noqa: SIM115 - closed with the tables
        for key, table in self._held:
            stream = _stream(table)  # uncompressed, so that the tables can be views of it
            self._spilled.append((key, self._file.tell(), stream.size))
            self._file.write(stream)
        self._held = []


def _local_folder() -> str | None:
    """Return the folder of Spark for a task's files; None without Spark, for the system's temporary folder."""
    # Spark sets this variable for its workers, and uses it for its own spills in Python.
    return next(filter(os.path.isdir, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")), None)
