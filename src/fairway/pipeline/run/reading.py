"""`RunTables`: reads the tables of a finished run, batch by batch and only the wanted columns, or as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.location import Location
from fairway.pipeline.run.folder import kind_of, read_run
from fairway.pipeline.run.summary import Balance, balance_from
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import Table, table_named
from fairway.pipeline.tables.delta import file_names, opened
from fairway.pipeline.tables.files import TableFiles

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

_BATCH = "send"
"""The kind of a folder with a batch (`fairway.pipeline.outgoing`)."""
BATCH_ROWS = 16_384
_PAYLOAD_BATCH_ROWS = 256
_PART_BYTES = 16_777_216
"""Bytes of the row groups of a file that are read at a time, of all columns."""

TABLE_BYTES: Final = 67_108_864
"""Size from which `in_tables` ends a table."""

Columns = Sequence[str] | Mapping[str, ds.Expression]
"""Names of columns, or expressions over columns under new names."""


class RunTables:
    """The folder of a run, or of a batch that was sent, for reading, on any storage (`Location`).

    `pandas` and `batches` need no Spark; `dataframe` opens a table of any size in Spark. All raise `ConfigurationError`
    for a table that the folder does not have.
    """

    def __init__(self, path: str | PathLike[str] | Location) -> None:
        """Open a folder by the path given to a run or named in `RunSummary`.

        Raises `ConfigurationError` if it holds no finished run. In a partly sent batch, each complete table can be
        read. Later commits do not affect this reader.
        """
        self.place = path if isinstance(path, Location) else Location.of(path, "the run folder")
        self.manifest = read_run(self.place)
        """The content of ``run.json``."""
        self._is_batch = kind_of(self.manifest) == _BATCH
        self._names: dict[str, list[str]] = {}

    def _table(self, name: str) -> Table:
        """Return a table of the folder; raise `ConfigurationError` for an unknown name."""
        if not self._is_batch:
            return table_named(name)
        # The package of batches imports this module.
        from fairway.pipeline.outgoing.tables import OUTGOING_TABLES  # noqa: PLC0415

        known = {table.name: table for table in OUTGOING_TABLES}
        if name not in known:
            raise self._of_no_run()
        if name not in self.manifest["tables"]:
            raise ConfigurationError(f"the batch in {self.place} has no table {name} yet: give its command again")
        return known[name]

    def _of_no_run(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.place} holds the tables of 'fairway pipeline {_BATCH}': give the folder of a run"
        )

    @property
    def balance(self) -> Balance:
        """Return the balance of the rows of the input; raise `ConfigurationError` for a batch."""
        if self._is_batch:
            raise self._of_no_run()
        return balance_from(self.manifest["balance"])

    def rows(self, name: str) -> int:
        """Return how many rows a table has."""
        return int(self.manifest["tables"][self._table(name).name]["rows"])

    def files(self, name: str) -> list[Location]:
        """Return the files of the version of a table that belongs to the run."""
        place = self.place / "tables" / self._table(name).name
        if name not in self._names:
            table = opened(place, int(self.manifest["tables"][name]["version"]))
            self._names[name] = [] if table is None else file_names(table)
        return [place / file for file in self._names[name]]

    def batches(
        self, name: str, columns: Columns | None = None, where: ds.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield a table in batches."""
        wanted = columns or self._table(name).columns
        wanted = dict(wanted) if isinstance(wanted, Mapping) else {column: ds.field(column) for column in wanted}
        for file in self.files(name):
            yield from _rows(file, wanted, where)

    def all(self, name: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return all rows of a small table."""
        return [row for batch in self.batches(name, columns) for row in batch.to_pylist()]

    def pandas(
        self, name: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None
    ) -> pd.DataFrame:
        """Return a table, or some of its columns and rows, as a DataFrame of pandas, in memory.

        ``where`` is an expression of Arrow, such as ``pyarrow.dataset.field("channel_id") == "team"``. Integers have
        nullable types: pandas would turn a column with nulls into floats, which cannot represent a time in nanoseconds
        exactly.
        """
        import pandas as pd  # noqa: PLC0415 - takes half a second; reports do not need it

        nullable = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
        batches = list(self.batches(name, columns, where))
        if batches:
            table = pa.Table.from_batches(batches)
        else:
            known = self._table(name)
            table = arrow_schema(known.schema).empty_table().select(columns or known.columns)
        frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
        return frame

    def dataframe(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table as a DataFrame of Spark, for tables of any size; executors read it from the same place."""
        reading = TableFiles(root=self.place.path, filesystem=self.place.filesystem)
        return reading.frame(spark, name, [file.name for file in self.files(name)], self._table(name).schema)

    def range_of(self, name: str, column: str) -> tuple[int | None, int | None]:
        """Return the least and the greatest value of a column of numbers, from the footers of the files."""
        lows: list[int] = []
        highs: list[int] = []
        for file in self.files(name):
            try:
                footer = pq.read_metadata(file.path, filesystem=file.filesystem)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(file, error) from error
            place = footer.schema.names.index(column)
            for group in range(footer.num_row_groups):
                told = footer.row_group(group).column(place).statistics
                if told is not None and told.has_min_max:
                    lows.append(told.min)
                    highs.append(told.max)
        return min(lows, default=None), max(highs, default=None)


def in_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches in tables of about `TABLE_BYTES`."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= TABLE_BYTES:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _rows(
    file: Location, columns: Mapping[str, ds.Expression], where: ds.Expression | None
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a file."""
    size = _PAYLOAD_BATCH_ROWS if "payload" in columns else BATCH_ROWS
    try:
        for fragment in ds.dataset(file.path, filesystem=file.filesystem, format="parquet").get_fragments():
            for part in _parts(fragment):
                yield from part.to_batches(columns=dict(columns), filter=where, batch_size=size)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from error


def _parts(file: ds.ParquetFileFragment) -> Iterator[ds.ParquetFileFragment]:
    """Yield a file in parts of some row groups: Arrow reads ahead of a slow reader, but not beyond a part."""
    groups: list[int] = []
    size_bytes = 0
    for group in file.row_groups:
        groups.append(group.id)
        size_bytes += group.total_byte_size
        if size_bytes >= _PART_BYTES:
            yield file.subset(row_group_ids=groups)
            groups, size_bytes = [], 0
    if groups:
        yield file.subset(row_group_ids=groups)


def _unreadable(file: Location, error: Exception) -> StorageError:
    return StorageError(f"{file} cannot be read ({error}): the 'fairway pipeline run' that made it makes it anew")
