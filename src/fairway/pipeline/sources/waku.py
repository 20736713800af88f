"""The Spark data source ``waku``: stored Waku messages as a table or a stream, without any jar.

Name: ``waku``

Schema: `WAKU_MESSAGES`, or some columns of it (``spark.read.format("waku").schema(...)``).

Options (their names in any case):

- ``path``, also the argument of ``load``: an archive, as for `open_source` (``sqlite:PATH`` or a path alone,
  ``postgresql://...``, ``parquet:DIR``, ``json:FILE``, ``csv:FILE``, ``lip76:DIR``, ``http://...``). The driver and
  every executor must see the same files. ``load([one, other])`` reads several archives as one table.
- ``label``: the value of the column ``source``; the default is the place without credentials.
- ``since``, ``until``: the first and last time wanted, both included, as ISO text or in
  milliseconds since 1970 (`fairway.pipeline.times`).
- ``startingOffsets``: ``earliest`` (default, also of a stream), ``latest``, or an offset in the form of a checkpoint,
  ``{"timestamp": 1760000000000000000, "hash": "0x..."}``: the read begins after this message.
- ``endingOffsets``: ``latest`` (default) or an offset, whose message is the last one of the table.
- ``topics``: only messages of these content topics: a JSON list, or separated by commas.
- ``topicsPattern``: only messages whose whole content topic matches this regular expression (RE2); not with ``topics``.
- ``pubsubTopic``: only messages of this shard.
- ``channels``: only messages that contain one of these channel ids in clear text: a JSON list, or separated by
  commas. The source decodes nothing: the option is a first filter, for channels without encryption; ``channel_id`` of
  ``sds_messages`` is exact.
- ``partitions``: number of parts of the archive, or of a micro-batch (default: by size and cores).
- ``maxOffsetsPerTrigger``: largest number of messages in a micro-batch.
- ``minOffsetsPerTrigger``, ``maxTriggerDelay``: a micro-batch waits for so many messages, but at most this time after
  the last one (milliseconds, ISO text, or Spark's ``15m``, the default). The first micro-batch of a start, and
  ``availableNow``, do not wait.
- ``pageSize``, ``requestTimeoutMs``, ``maxConcurrentRequests``: requests to a node, as in the query of its URI
  (`fairway.pipeline.sources.store_node`).
- ``failOnDataLoss``: whether to stop (default), or warn, if a store may have removed messages after the offset (it
  may be a false alarm: `fairway.pipeline.sources.source_stream`).
- ``settleMs``: age, by its timestamp, at which a stream reads a message, in milliseconds (default 30,000); for Parquet,
  age at which a file without a footer counts as damaged.

A batch is split into ranges of (timestamp, message hash), LIP-76 folders into archives, Parquet into row groups. The
executors read the parts directly, without the driver. `source_stream` describes streams.

Conditions on ``timestamp``, ``content_topic`` and ``pubsub_topic`` are pushed down into the archive. `register` sets
``spark.sql.python.filterPushdown.enabled`` for it; without this setting Spark rejects a source with pushdown.

Examples::

    register(spark)
    spark.read.format("waku").option("topics", "/app/1/team/proto").load("sqlite:store.sqlite3")
    spark.readStream.format("waku").option("maxOffsetsPerTrigger", 10_000).load("postgresql://waku@db/postgres")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from fairway.errors import ConfigurationError
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.schema import types_of
from fairway.pipeline.sinks.waku import WakuStreamWriter, WakuWriter
from fairway.pipeline.sources.filters import push_filters
from fairway.pipeline.sources.options import LATEST, SourceOptions
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.source_stream import check_for_data_loss
from fairway.pipeline.sources.stream import WakuStreamReader, short_errors
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, ArchiveScan, MessageScan
from fairway.pipeline.versions import OneVersion
from fairway.storage.archive import ArchiveCursor

_ALL: Final = tuple(types_of(WAKU_MESSAGES))
PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"


class WakuDataSource(DataSource):
    """The data source; the docstring of the module describes options, schema and partitions."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "waku"

    @short_errors
    def schema(self) -> str:
        """Return all columns; raise `ConfigurationError` for invalid options.

        Spark calls this in ``load``. An error that only `streamReader` raises is hidden behind one of Spark's.
        """
        SourceOptions.parse(self.options)
        return WAKU_MESSAGES

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one query."""
        return WakuReader(self.options, columns_of_user(schema))

    @short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as Spark calls it
        """Return the reader of one stream."""
        return WakuStreamReader(SourceOptions.parse(self.options), columns_of_user(schema))

    @short_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of one table: it sends each row as a message (`fairway.pipeline.sinks`)."""
        return WakuWriter(self.options, schema.fieldNames(), overwrite=overwrite)

    @short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Return the writer of one stream."""
        return WakuStreamWriter(self.options, schema.fieldNames(), overwrite=overwrite)


def columns_of_user(schema: StructType | None) -> list[str]:
    """Return the columns that the user chose; raise `ConfigurationError` for an unknown column."""
    known = types_of(WAKU_MESSAGES)
    if schema is None:
        return list(known)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise ConfigurationError(
                f"the source 'waku' has no column {field.name} {kind}; leave the schema out, or choose columns of "
                f"{WAKU_MESSAGES}"
            )
    return schema.fieldNames()


class WakuReader(OneVersion, DataSourceReader):
    """The reader of a table: it plans on the driver; copies of it read on the executors."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str] = _ALL) -> None:
        self._columns = columns
        self._options = SourceOptions.parse(options)
        if self._options.starting == LATEST:
            raise ConfigurationError("a table from startingOffsets=latest on would be empty; that is for streams")
        if isinstance(self._options.starting, dict):
            raise ConfigurationError("a table begins at the offset of an archive; those of files are for streams")
        after = self._options.starting if isinstance(self._options.starting, ArchiveCursor) else None
        self._selection = replace(self._options.selection, after=after)

    @short_errors
    def partitions(self) -> list[InputPartition]:
        """Return the parts of the archives; an empty archive is one empty part."""
        parts: list[InputPartition] = []
        for number, scan in enumerate(self._scans()):
            if isinstance(scan, ArchiveScan) and self._selection.after is not None:
                with scan.open() as archive:
                    check_for_data_loss(
                        archive, self._selection.after, scan.source, fail=self._options.fail_on_data_loss
                    )
            parts += [InputPartition((number, part)) for part in scan.plan(self._options.min_partitions)]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part, one Arrow batch a page."""
        archive, part = partition.value
        batches = self._scans()[archive].for_tasks().read(part)
        for batch in batches_with_instants(batches, WAKU_MESSAGES):
            yield batch.select(self._columns)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - as Spark calls it
        """Narrow the read by the conditions that the archives support, and return the others for Spark."""
        self._selection, left = push_filters(self._selection, filters)
        return left

    def _scans(self) -> list[MessageScan]:
        return [scan_of(uri, self._selection, self._options.label) for uri in self._options.uris]


def register(spark: SparkSession) -> None:
    """Make the format ``waku`` known to a session, for reading and writing. Can be called twice.

    Conditions of queries are pushed down into sources in Python from then on (`PUSHDOWN_CONF`).
    """
    spark.conf.set(PUSHDOWN_CONF, "true")
    # Spark's workers make and plan a source. Only the class has the version of this program.
    spark.dataSource.register(type(WakuDataSource.__name__, (WakuDataSource,), {"version": OneVersion()}))
