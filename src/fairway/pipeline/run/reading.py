"""`RunTables`: reads the tables of a finished run without Spark, batch by batch and only the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError
from fairway.pipeline.location import local_path
from fairway.pipeline.run.folder import kind_of, read_manifest
from fairway.pipeline.run.summary import Balance, balance_from
from fairway.pipeline.tables import table_named

_BATCH_ROWS = 16_384
_PAYLOAD_BATCH_ROWS = 256

Columns = Sequence[str] | Mapping[str, ds.Expression]
"""Names of columns, or expressions over columns under new names."""


class RunTables:
    """A run folder, for reading."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open a folder; raise `ConfigurationError` if it holds no finished run, or tables that need Spark."""
        self.path = local_path(path, "the run folder")
        self.manifest = read_manifest(self.path)
        if kind_of(self.manifest) != "run":
            raise ConfigurationError(
                f"{path} holds the tables of 'fairway pipeline {kind_of(self.manifest)}': give the folder of a run"
            )
        if self.manifest.get("state") != "complete":
            raise ConfigurationError(f"the run in {path} did not end: start it again, it goes on where it stopped")
        written = self.manifest["options"]["format"]
        if written != "parquet":
            raise ConfigurationError(
                f"the tables in {path} are in the format {written}, and only Parquet is read without Spark: "
                f"spark.read.format({written!r}).load('{self.path / 'tables' / 'NAME'}') reads one of them, or run the "
                "pipeline once more with --format parquet and another --out"
            )

    @property
    def balance(self) -> Balance:
        """Return the balance of the rows of the input."""
        return balance_from(self.manifest["balance"])

    def rows(self, name: str) -> int:
        """Return how many rows a table has."""
        return int(self.manifest["tables"][table_named(name).name]["rows"])

    def files(self, name: str) -> list[Path]:
        """Return the files of a table, in the order of its rows."""
        place = self.path / "tables" / table_named(name).name
        return sorted(file for file in place.glob("*.parquet") if not file.name.startswith((".", "_")))

    def batches(
        self, name: str, columns: Columns | None = None, where: ds.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield a table in batches, in the order of its rows."""
        wanted = columns or table_named(name).columns
        wanted = dict(wanted) if isinstance(wanted, Mapping) else list(wanted)
        size = _PAYLOAD_BATCH_ROWS if "payload" in wanted or "content" in wanted else _BATCH_ROWS
        for file in self.files(name):
            yield from ds.dataset(file, format="parquet").to_batches(columns=wanted, filter=where, batch_size=size)

    def all(self, name: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return all rows of a small table."""
        return [row for batch in self.batches(name, columns) for row in batch.to_pylist()]

    def head(
        self,
        name: str,
        columns: Columns,
        order: Sequence[tuple[str, str]],
        limit: int,
        where: ds.Expression | None = None,
    ) -> list[dict[str, Any]]:
        """Return the first rows in an order, such as ``[("size_bytes", "descending")]``; memory holds twice as many."""
        kept: pa.Table | None = None
        for batch in self.batches(name, columns, where):
            table = pa.Table.from_batches([batch])
            together = table if kept is None else pa.concat_tables([kept, table])
            kept = together.sort_by(list(order)).slice(0, limit)
        return [] if kept is None else list(kept.to_pylist())

    def range_of(self, name: str, column: str) -> tuple[int | None, int | None]:
        """Return the least and the greatest value of a column of numbers, from the footers of the files."""
        lows: list[int] = []
        highs: list[int] = []
        for file in self.files(name):
            footer = pq.read_metadata(file)
            place = footer.schema.names.index(column)
            for group in range(footer.num_row_groups):
                told = footer.row_group(group).column(place).statistics
                if told is not None and told.has_min_max:
                    lows.append(told.min)
                    highs.append(told.max)
        return min(lows, default=None), max(highs, default=None)
