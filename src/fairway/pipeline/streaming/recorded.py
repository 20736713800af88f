"""The recorded micro-batches as a source of Spark, in their order: what the query of the cores reads.

An offset is the number of a micro-batch, so that neither it nor Spark's checkpoint grows with the stream, and folders
that were read can be removed: up to the number in a file that this source keeps (`taken_through`), Spark asks for
nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fairway.errors import StorageError
from fairway.pipeline import machine
from fairway.pipeline.durable import write_json
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.location import Location
from fairway.pipeline.sources.parquet_scan import FileRows, ParquetScan
from fairway.pipeline.sources.short_errors import short_errors
from fairway.pipeline.sources.stream import StreamPartition
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES
from fairway.pipeline.streaming.joined import parquet_files

_FORMAT: Final = "fairway-recorded"
_PREFIX: Final = "batch="
_BEFORE_ALL: Final = -1
_TASK_ROWS: Final = 5_000


def recorded_rows(spark: SparkSession, place: Path, taken: Path, files_per_batch: int) -> DataFrame:
    """Return the rows of the micro-batches at a place as a stream, whole ones, of about so many files at a time.

    ``taken`` is the file for `taken_through`.
    """
    spark.dataSource.register(RecordedSource)
    reader = spark.readStream.format(_FORMAT).option("taken", str(taken)).option("filesPerTrigger", files_per_batch)
    return reader.load(str(place))


def taken_through(taken: Path) -> int:
    """Return the number of the last micro-batch that need not be there any more, or -1."""
    try:
        return int(json.loads(taken.read_text(encoding="utf-8"))["batch"])
    except FileNotFoundError:
        return _BEFORE_ALL


class RecordedSource(DataSource):
    """The source; it is only for streams, and only for this package."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return _FORMAT

    def schema(self) -> str:
        """Return the columns."""
        return WAKU_MESSAGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - as Spark calls it
        """Return the reader of one stream."""
        given = {name.lower(): value for name, value in self.options.items()}
        return RecordedReader(given["path"], Path(given["taken"]), int(given["filespertrigger"]))


class RecordedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors."""

    def __init__(self, place: str, taken: Path, files_per_batch: int) -> None:
        self._place = Path(place)
        self._taken = taken
        self._files = files_per_batch
        self._target: int | None = None
        self._scan = ParquetScan(place=Location.of(place, "the recorded rows"), source="", is_labelled=False)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the offset before the first micro-batch."""
        return {"batch": _BEFORE_ALL}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """End with what is recorded now."""
        self._target = max(self._numbers(), default=_BEFORE_ALL)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """Return the last of the next micro-batches, one at least if there is one."""
        begun = end = int(start["batch"])
        files = 0
        for number in self._numbers():
            if number <= begun or (self._target is not None and number > self._target):
                continue
            files += len(parquet_files(self._folder(number)))
            if files > self._files and end > begun:
                break
            end = number
        return {"batch": end}

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts of some micro-batches."""
        files = []
        for number in range(int(start["batch"]) + 1, int(end["batch"]) + 1):
            folder = self._folder(number)
            if not folder.is_dir():
                raise StorageError(f"{folder} is not there any more: somebody removed it; begin the stream anew")
            files += [FileRows(str(file.relative_to(self._place)), 0, None) for file in parquet_files(folder)]
        return [StreamPartition(part) for part in self._scan.plan_files(files, machine.cores(), _TASK_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        assert isinstance(partition, StreamPartition), "what `partitions` returned"
        return batches_with_instants(self._scan.read(partition.part), WAKU_MESSAGES)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that Spark will not ask for a micro-batch up to this one again."""
        write_json(self._taken, end)

    def _numbers(self) -> list[int]:
        return sorted(int(child.name.removeprefix(_PREFIX)) for child in self._place.glob(f"{_PREFIX}*"))

    def _folder(self, number: int) -> Path:
        return self._place / f"{_PREFIX}{number}"
