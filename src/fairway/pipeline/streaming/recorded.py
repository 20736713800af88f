"""The recorded micro-batches as a source of Spark, in their order: the input of the query ``deliver``.

An offset is the number of a micro-batch. So neither the offset nor Spark's checkpoint grows with the stream, and the
table can be compacted at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fairway.pipeline.schema import arrow_schema, columns_of
from fairway.pipeline.sources.stream import short_errors
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES
from fairway.pipeline.streaming.batch_table import BatchTable, between
from fairway.pipeline.versions import OneVersion

_FORMAT: Final = "fairway-recorded"
_BEFORE_ALL: Final = -1
_BATCH_ROWS: Final = 1_000


def recorded_rows(spark: SparkSession, table: BatchTable, files_per_batch: int) -> DataFrame:
    """Return a table as a stream of whole micro-batches, about ``files_per_batch`` files at a time."""
    spark.dataSource.register(RecordedSource)
    reader = spark.readStream.format(_FORMAT).option("filesPerTrigger", files_per_batch)
    return reader.load(str(table.place))


class RecordedSource(DataSource):
    """The source, only for streams of this package."""

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
        return RecordedReader(Path(given["path"]), int(given["filespertrigger"]))


class RecordedReader(OneVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads on the executors."""

    def __init__(self, place: Path, files_per_batch: int) -> None:
        self._table = BatchTable(place, WAKU_MESSAGES, place)
        self._files = files_per_batch
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the offset before the first micro-batch."""
        return {"batch": _BEFORE_ALL}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """End at the last micro-batch that is recorded now."""
        self._target = self._table.last()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """Return the last of the next micro-batches: at least one, or ``start`` if there is none."""
        begun = int(start["batch"])
        last = self._table.last() if self._target is None else self._target
        files = self._table.files(begun, last)
        if len(files) <= self._files:
            return {"batch": max(begun, last)}
        ends = [end for _, end in files]
        within = [end for end in ends[: self._files] if end < ends[self._files]]
        return {"batch": min(last, max(within, default=ends[0]))}

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a part for each file with rows of the micro-batches."""
        after, through = int(start["batch"]), int(end["batch"])
        return [InputPartition((str(file), after, through)) for file, _ in self._table.files(after, through)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part."""
        file, after, through = partition.value
        rows = ds.dataset(file, schema=arrow_schema(self._table.schema), format="parquet")
        chosen = between(after, through)
        for batch in rows.to_batches(columns=list(columns_of(WAKU_MESSAGES)), filter=chosen, batch_size=_BATCH_ROWS):
            if batch.num_rows:
                yield batch
