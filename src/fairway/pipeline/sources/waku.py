"""The Spark data source ``waku``: stored Waku messages as a table, without any jar.

Name: ``waku``

Schema: `WAKU_MESSAGES`, always all columns.

Options (their names in any case):

- ``path``: a SQLite archive of a nwaku store node, the same on the driver and on every executor. Also the argument
  of ``load``.
- ``startingTimestamp``, ``endingTimestamp``: the first and last timestamp wanted, nanoseconds, both included.
- ``pubsubTopic``: only messages of this shard.
- ``contentTopics``: only messages of these content topics, separated by commas.
- ``minPartitions``: into how many parts the archive is split (default: what suits its size and the driver's cores).

Partitions are ranges of (timestamp, message hash) that hold equally many messages; each is read by the executor that
owns it, and nothing passes through the driver. Conditions on columns are not pushed down: Spark refuses a source that
can do so unless the session has ``spark.sql.python.filterPushdown.enabled``, which most have not. The options select
just as well.

Example::

    register(spark)
    spark.read.format("waku").option("contentTopics", "/app/1/team/proto").load("store.sqlite3")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, ArchiveScan
from fairway.storage.nwaku_archive import ArchiveSlice


@dataclass(frozen=True)
class ArchivePartition(InputPartition):
    """The part of an archive that one task reads."""

    part: ArchiveSlice


class WakuDataSource(DataSource):
    """See the module's text for options, schema and partitions."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "waku"

    def schema(self) -> str:
        """Return the columns, which are always all of them."""
        return WAKU_MESSAGES

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - a source has one schema
        """Return the reader of one query."""
        return WakuReader(self.options)


class WakuReader(DataSourceReader):
    """Plans on the driver, reads on the executors, which get a copy of it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): value for name, value in options.items()}
        if not known.get("path"):
            raise ConfigurationError("the source 'waku' needs a path: .load('store.sqlite3')")
        self._scan = ArchiveScan(
            path=known["path"],
            start_ns=_integer(known, "startingTimestamp"),
            end_ns=_integer(known, "endingTimestamp"),
            pubsub_topic=known.get("pubsubtopic"),
            content_topics=tuple(filter(None, known.get("contenttopics", "").split(","))),
        )
        self._partition_count = _integer(known, "minPartitions")

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the archive; an empty archive is one empty part."""
        return [ArchivePartition(part) for part in self._scan.plan(self._partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part, one Arrow batch a page."""
        if not isinstance(partition, ArchivePartition):
            raise ConfigurationError(f"the source 'waku' reads its own partitions, not {partition!r}")
        return self._scan.read(partition.part)


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("waku")`` known to a session; again does no harm."""
    spark.dataSource.register(WakuDataSource)


def _integer(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    try:
        return int(value)
    except ValueError as error:
        raise ConfigurationError(f"option {name} must be a whole number, not {value!r}") from error
