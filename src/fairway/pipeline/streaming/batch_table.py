"""`BatchTable`: a Delta table of a stream, to which each micro-batch is appended once.

Spark repeats the last micro-batch if it was killed before it recorded the end. Each append is a transaction with the
number of the micro-batch, so that a repetition is computed but not written. The column ``batch`` of each row has this
number, so that readers can continue after a micro-batch even if its files were compacted.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from fairway.pipeline.instants import with_instants
from fairway.pipeline.location import Location
from fairway.pipeline.schema import arrow_schema, columns_of
from fairway.pipeline.tables.delta import TableFile, append, compact, opened, vacuum
from fairway.pipeline.tables.statistics import statistics_of

BATCH: Final = "batch"
"""The column with the number of the micro-batch."""
_OF_ONE: Final = re.compile(r"batch-(-?\d+)-")
MICRO_BATCHES: Final = "micro-batches"
SETTLEMENTS: Final = "settlements"
"""The application of settlements in the Delta log; the rows of settlement n have the batch number -n."""


class BatchTable:
    """A table at a place; the first append creates it."""

    def __init__(self, place: Path, schema: str, aside: Path) -> None:
        """Keep rows with this schema, in Spark's DDL; ``aside`` is a folder of the same file system."""
        self.place: Final = Location.of(place, "a table of the stream")
        self.schema: Final = f"{BATCH} int, {schema}"
        """The schema of the table, in Spark's DDL."""
        self._columns: Final = columns_of(schema)
        self._aside: Final = aside

    def last(self, application: str = MICRO_BATCHES) -> int:
        """Return the number of the last transaction: -1 without micro-batches, 0 without settlements."""
        table = opened(self.place)
        found = None if table is None else table.transaction_version(application)
        return found if found is not None else -1 if application == MICRO_BATCHES else 0

    def append(self, frame: DataFrame, number: int) -> None:
        """Append a micro-batch, or a settlement with a negative number.

        A committed one is computed again but not written: the computation changes Spark's state.
        """
        if self.has(number):
            frame.write.format("noop").mode("overwrite").save()
            return
        rows = frame.selectExpr(f"CAST({number} AS INT) AS {BATCH}", *self._columns)
        self.put(number, lambda place: rows.write.option("compression", "zstd").parquet(str(place)))

    def has(self, number: int) -> bool:
        """Return whether a micro-batch, or a settlement, was committed."""
        application, count = _transaction(number)
        return self.last(application) >= count

    def put(self, number: int, write: Callable[[Path], None]) -> None:
        """Call ``write`` with an unused path, and commit the Parquet files that it writes there.

        A number that was committed before is not committed again.
        """
        written = self._aside / f"{self.place.name}-{number}-{secrets.token_hex(4)}"
        written.parent.mkdir(parents=True, exist_ok=True)
        write(written)
        self.place.make_folder()
        files = []
        for part, file in enumerate(sorted(written.glob("part-*.parquet"))):
            footer, size = pq.read_metadata(file), file.stat().st_size
            if footer.num_rows:
                name = f"batch-{number}-{part:03d}-{written.name[-8:]}.parquet"
                file.rename(self.place.local / name)
                files.append(TableFile(name, footer.num_rows, size, statistics_of(footer)))
        shutil.rmtree(written)
        append(self.place, arrow_schema(self.schema), files, _transaction(number))

    def append_rows(self, rows: pa.Table) -> None:
        """Append rows without Spark, as the next micro-batch."""
        number = self.last() + 1
        schema = arrow_schema(self.schema)
        numbered = rows.append_column(BATCH, pa.array([number] * rows.num_rows, pa.int32()))

        def write(place: Path) -> None:
            place.mkdir()
            pq.write_table(with_instants(numbered, schema), place / "part-0.parquet", compression="zstd")

        self.put(number, write)

    def dataset(self) -> ds.Dataset:
        """Return all rows, to be read with a filter."""
        schema, table = arrow_schema(self.schema), opened(self.place)
        files = [] if table is None else [str(self.place.local / name) for name, *_ in _spans(table)]
        return ds.dataset(files, schema=schema, format="parquet") if files else ds.dataset(schema.empty_table())

    def state(self) -> tuple[int, int]:
        """Return the version of the table and its last micro-batch; (-1, -1) if there is no table."""
        table = opened(self.place)
        if table is None:
            return -1, -1
        last = table.transaction_version(MICRO_BATCHES)
        return table.version(), -1 if last is None else last

    def count(self) -> int:
        """Return the number of rows."""
        table = opened(self.place)
        return 0 if table is None else sum(pa.table(table.get_add_actions())["num_records"].to_pylist())

    def files(self, after: int, through: int) -> list[tuple[Path, int]]:
        """Return the files with rows of the micro-batches ``after`` < number <= ``through``.

        Each path has the last micro-batch of its file beside it.
        """
        table = opened(self.place)
        if table is None:
            return []
        return [
            (self.place.local / name, last)
            for name, first, last in sorted(_spans(table), key=lambda span: span[1:])
            if last > after and first <= through
        ]

    def rows(self, after: int, through: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the micro-batches ``after`` < number <= ``through``, in their order."""
        schema = arrow_schema(self.schema)
        files = [str(file) for file, _ in self.files(after, through)]
        shape = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        if not files:
            return shape.empty_table()
        found = ds.dataset(files, schema=schema, format="parquet")
        rows = found.to_table(columns=shape.names, filter=between(after, through))
        return rows.sort_by(BATCH) if BATCH in shape.names else rows

    def compact(self, many: int) -> None:
        """Compact the table if it has at least ``many`` files; delete the files that the last compaction replaced."""
        table = opened(self.place)
        if table is None or len(table.file_uris()) < many:
            return
        done = compact(self.place)
        assert done is not None, "there is a table"
        vacuum(self.place, done, 0, uncommitted=False)


def between(after: int, through: int) -> ds.Expression:
    """Return the condition that a row belongs to the micro-batches ``after`` < number <= ``through``."""
    return (ds.field(BATCH) > after) & (ds.field(BATCH) <= through)


def _transaction(number: int) -> tuple[str, int]:
    """Return the application and the number of the transaction that appends a micro-batch, or a settlement."""
    return (MICRO_BATCHES, number) if number >= 0 else (SETTLEMENTS, -number)


def _spans(table: DeltaTable) -> list[tuple[str, int, int]]:
    """Return the name of each file, and the first and the last micro-batch in it."""
    told: dict[str, list[Any]] = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    unknown = [None] * len(told["path"])
    spans = []
    columns = (told.get(column, unknown) for column in ("path", f"min.{BATCH}", f"max.{BATCH}"))
    for name, first, last in zip(*columns, strict=True):
        match = _OF_ONE.match(name)
        # The log may have no statistics for an appended file, if a message has long names.
        spans.append((name, int(match[1]), int(match[1])) if match is not None else (name, first, last))
    return spans
