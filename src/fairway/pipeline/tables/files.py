"""`TableFiles`: writes and reads the Parquet files of a run's tables, from tasks, on any filesystem of Arrow.

::

    ROOT/tables/NAME/part-00003-000-1f0c9a....parquet    a permanent table (`fairway.pipeline.tables`)
    ROOT/work/NAME/part-...                              a table only for later jobs of the run (`WORK_TABLES`)

Spark may retry a task, or run it twice at once. Each attempt makes the same files. A file is named by its contents, so
that attempts write the same names, and return the same output to Spark. A file is written atomically: by renaming it in
a folder, by one put in an object store. It belongs to its table when the driver commits it
(`fairway.pipeline.tables.delta`), by the note that `TableFiles.write` returns for the task to yield.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.exchange import Batches, in_parts, note, notes_of, taken
from fairway.pipeline.instants import with_instants
from fairway.pipeline.location import has_folders
from fairway.pipeline.packing import dense_columns
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.schema import INSTANT, arrow_schema
from fairway.pipeline.stages.bloom_evidence import BLOOM_EVIDENCE
from fairway.pipeline.stages.decoded import CONTENT
from fairway.pipeline.tables.delta import TableFile
from fairway.pipeline.tables.registry import TABLES
from fairway.pipeline.tables.statistics import statistics_of

TABLES_FOLDER: Final = "tables"
WORK_FOLDER: Final = "work"
WORK_TABLES: Final = {"bloom_evidence": BLOOM_EVIDENCE, "contents": CONTENT}
"""The schemas, as Spark's DDL, of tables only for later jobs of a run, by name. A file of ``contents`` has the rows of
the file of ``sds_messages`` with its name, in their order."""

GROUP_BYTES: Final = 32 * 1_048_576
"""Size of a row group in memory: a reader holds one at a time."""
GROUP_ROWS: Final = 8_192
"""Most rows of a row group; few enough that a lookup reads only a part of a file."""
_PAGE_BYTES: Final = 1_048_576
_PAGE_ROWS: Final = 1_024
"""Most rows between checks of a writer for a full page. A page of 1,024 segments would be 32 MB, held twice."""
_COMPRESSION_LEVEL: Final = 1
"""Level of zstd. Level 3, the default, takes twice the time and does not make payloads smaller: they are mostly
ciphertext and bloom filters."""
_FEW_VALUES: Final = frozenset(
    {
        "acknowledged_by",
        "channel_id",
        "content_topic",
        "error",
        "first_by",
        "first_cited_by",
        "how",
        "kind",
        "last_cited_by",
        "outcome",
        "part",
        "profile",
        "pubsub_topic",
        "reason",
        "sender_id",
        "source",
        "status",
        "waits_for",
    }
)
"""Columns of text with few values, which dictionaries make smaller. For ids and hashes dictionaries only cost time."""
_FEW_VALUES_INSIDE: Final = {
    "sources": "sources.list.element",
    "damaged": "damaged.list.element",
    "causal_history": "causal_history.list.element.sender_id",
    "repair_request": "repair_request.list.element.sender_id",
}
_WITHOUT_STATISTICS: Final = frozenset({"payload", "content", "meta", "rate_limit_proof"})
"""Columns whose least and greatest values are useless, and may be as large as a message."""


BY_TIME: Final = {
    "sds_messages": "timestamp_ns",
    "repeats": "timestamp_ns",
    "missing_messages": "last_cited_ns",
    "acknowledgements": "acknowledged_at_ns",
    "ack_latency": "sent_at_ns",
}
"""Tables whose files are sorted by a time, with its column: the segments of a message are in few row groups."""

_FRAME_ROWS: Final = 1_000
"""Rows in a batch to Spark; they may have payloads."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, as the footer of its file describes it."""

    metadata: pq.RowGroupMetaData

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.metadata.num_rows)

    def nulls(self, column: str) -> int:
        """Return the number of nulls in a column; raise `KeyError` if the footer does not have it."""
        if not self.rows:  # a footer has no statistics of an empty group
            return 0
        found = self._statistics(column)
        if found is None:
            raise KeyError(column)
        return int(found.null_count)

    def _statistics(self, column: str) -> Any:
        for place in range(self.metadata.num_columns):
            found = self.metadata.column(place)
            if found.path_in_schema == column:
                return found.statistics
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """The files of a run's tables; picklable, for use in tasks."""

    root: str
    """The run folder's path on ``filesystem``."""
    filesystem: FileSystem = field(default_factory=LocalFileSystem)

    def folder_of(self, name: str) -> str:
        """Return the folder of a table, as a path on ``filesystem``."""
        return posixpath.join(self.root, WORK_FOLDER if name in WORK_TABLES else TABLES_FOLDER, name)

    def write_messages(self, number: int, messages: pa.Table, part: int) -> Batches:
        """Write a file of ``sds_messages`` and the one of ``contents`` beside it, and yield the notes about both."""
        messages = _in_order(messages, BY_TIME["sds_messages"])
        told = self.write("sds_messages", number, messages, part)
        yield told
        (written,) = notes_of(told["blob"].to_pylist())
        yield self.write("contents", number, messages.select(["content"]), part, file=written["file"])

    def write(
        self, name: str, number: int, table: pa.Table, part: int = 0, *, file: str | None = None
    ) -> pa.RecordBatch:
        """Write a file, and return the note about it: the task yields it to the driver.

        ``number`` is that of the bucket or range, ``part`` counts its files. ``file`` is the name of the file, by
        default derived from its contents. The table has the columns of the table ``name`` in any order, with or without
        instants, in types that a safe cast converts.

        Raises `KeyError` for an unknown table or a missing column, `pyarrow.ArrowInvalid` for another schema, and
        `OSError` if the file cannot be written.
        """
        schema = schema_of(name)
        table = with_instants(table, schema)
        if name in BY_TIME:
            table = _in_order(table, BY_TIME[name])
        compressed = _compressed_columns(table)
        footers: list[pq.FileMetaData] = []
        with pa.BufferOutputStream() as sink:
            pq.write_table(
                table,
                sink,
                row_group_size=_rows_within(GROUP_BYTES, table, GROUP_ROWS),
                write_batch_size=_rows_within(_PAGE_BYTES, table, _PAGE_ROWS),
                compression=dict.fromkeys(compressed, "zstd"),
                compression_level=dict.fromkeys(compressed, _COMPRESSION_LEVEL),
                use_dictionary=_dictionary_columns(schema),
                write_statistics=[column for column in schema.names if column not in _WITHOUT_STATISTICS],
                store_schema=False,
                metadata_collector=footers,
            )
            data = sink.getvalue()
        file = file or f"part-{number:05d}-{part:03d}-{blake2b(data, digest_size=8).hexdigest()}.parquet"
        self._put(self.folder_of(name), file, data)
        return note(table=name, file=file, rows=table.num_rows, bytes=data.size, stats=statistics_of(footers[0]))

    def _put(self, folder: str, file: str, data: pa.Buffer) -> None:
        """Write a file atomically."""
        path = posixpath.join(folder, file)
        if not has_folders(self.filesystem):
            with self.filesystem.open_output_stream(path) as sink:
                sink.write(data)
            return
        self.filesystem.create_dir(folder, recursive=True)
        unfinished = f"{path}.{uuid4().hex[:8]}"
        with self.filesystem.open_output_stream(unfinished) as sink:
            sink.write(data)
        self.filesystem.move(unfinished, path)

    def read(
        self,
        name: str,
        files: Iterable[str],
        columns: Sequence[str] | None = None,
        *,
        wanted: Callable[[RowGroup], bool] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of some files of a table, a row group at a time, with all or some columns in the order given.

        ``wanted`` chooses row groups by their footers, by default all. Raises `KeyError` for an unknown table or
        column, and `OSError` for a file that cannot be read.
        """
        schema = schema_of(name)
        shape = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        for file in files:
            with (
                self.filesystem.open_input_file(posixpath.join(self.folder_of(name), file)) as source,
                opened_parquet(source, self.filesystem) as parquet,
            ):
                for group in range(parquet.num_row_groups):
                    if wanted is None or wanted(RowGroup(parquet.metadata.row_group(group))):
                        table = parquet.read_row_group(group, columns=shape.names, use_threads=False)
                        yield table.select(shape.names).cast(shape)

    def frame(self, spark: SparkSession, name: str, files: Sequence[str], schema: str) -> DataFrame:
        """Return some files of a table as a DataFrame with this schema in DDL; Spark reads only files on a disk itself.

        Of others, tasks read a file for each partition with Arrow, because Spark would need a jar of Hadoop.
        """
        if not files:
            return spark.createDataFrame([], schema)
        if isinstance(self.filesystem, LocalFileSystem):
            return spark.read.schema(schema).parquet(*(posixpath.join(self.folder_of(name), file) for file in files))

        def rows(file: str) -> Batches:
            for table in self.read(name, [file]):
                yield from table.to_batches(max_chunksize=_FRAME_ROWS)

        return in_parts(spark, files, rows, schema)

    def count_values(self, name: str, file: str, column: str) -> int:
        """Return the number of values in all lists of a column of a file; an empty list or null counts as one.

        Only the footer is read. Raises `OSError` for a file that cannot be read.
        """
        with (
            self.filesystem.open_input_file(posixpath.join(self.folder_of(name), file)) as source,
            pq.ParquetFile(source) as parquet,
        ):
            footer = parquet.metadata
            places = [
                place for place in range(footer.num_columns) if footer.schema.column(place).path.split(".")[0] == column
            ]
            groups = (footer.row_group(group) for group in range(footer.num_row_groups))
            return sum(group.column(place).num_values for group in groups for place in places)


def told_file(told: Mapping[str, Any]) -> TableFile:
    """Return the file in a note of `TableFiles.write`."""
    return TableFile(told["file"], told["rows"], told["bytes"], told["stats"])


def schema_of(name: str) -> pa.Schema:
    """Return the schema of a table that a run writes; raise `KeyError` if none has this name."""
    return _SCHEMAS[name]


def exact_schema_of(name: str) -> pa.Schema:
    """Return the schema of a table that a run writes, without its instants; raise `KeyError` if none has this name."""
    return pa.schema([field for field in _SCHEMAS[name] if field.type != INSTANT])


def columns_of_few_values(schema: pa.Schema) -> list[str]:
    """Return the columns of text with few values, which are dictionaries in files."""
    return [column for column in schema.names if column in _FEW_VALUES]


def _in_order(table: pa.Table, column: str) -> pa.Table:
    """Return the rows in ascending order of a column; the same table if it is already sorted."""
    values = pc.fill_null(table.column(column), 0).to_numpy()
    if not (values[1:] < values[:-1]).any():
        return table
    return taken(table, np.argsort(values, kind="stable"))


def _rows_within(size_bytes: int, table: pa.Table, most: int) -> int:
    """Return the number of rows of a table within ``size_bytes``; at least one, at most ``most``."""
    held_rows: int = size_bytes * table.num_rows // max(1, table.nbytes)
    return max(1, min(most, held_rows))


def _compressed_columns(table: pa.Table) -> list[str]:
    """Return the Parquet paths of the compressed columns: all except dense binary ones."""
    left = dense_columns(table)
    return [path for field in table.schema if field.name not in left for path in _leaves(field.type, field.name)]


def _leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of the Parquet columns of a type."""
    if pa.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.list.element")
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{path}.{field.name}")
    else:
        yield path


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    inside = [_FEW_VALUES_INSIDE[column] for column in schema.names if column in _FEW_VALUES_INSIDE]
    return columns_of_few_values(schema) + inside


_SCHEMAS: Final = {
    **{table.name: arrow_schema(table.schema) for table in TABLES},
    **{name: arrow_schema(schema) for name, schema in WORK_TABLES.items()},
}
