"""The two queries of a stream.

``record`` copies the rows of the archives; ``deliver`` reads the copies and runs the cores. With a single query, the
tables would need a second read of each archive, which may then return other rows for the same range. Recorded rows do
not change, so tables and deliveries are made from the same rows. Each query continues on its own after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from fairway.errors import ConfigurationError
from fairway.pipeline import stages
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.ingesting import at_sources
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.session import WRITTEN_TIMES
from fairway.pipeline.sources.options import option_texts
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku import register
from fairway.pipeline.sources.waku_messages import ArchiveScan, Selection
from fairway.pipeline.streaming.folder import DELIVER, RECORD, StreamFolder
from fairway.pipeline.streaming.options import StreamOptions
from fairway.pipeline.streaming.processor import emitted
from fairway.pipeline.streaming.recorded import recorded_rows
from fairway.pipeline.streaming.settling import settled_before

_STATE_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch writes its changes, not a whole RocksDB instance.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    **WRITTEN_TIMES,
}


def settings_of(folder: StreamFolder) -> dict[str, str]:
    """Return the settings of Spark SQL for the queries of a stream."""
    return {**_STATE_SETTINGS, "spark.sql.shuffle.partitions": str(folder.state_partitions)}


def check_sources(sources: tuple[RunSource, ...]) -> None:
    """Raise the errors of an unreadable archive, and `ConfigurationError` for a table without a store name."""
    for source in sources:
        scan = scan_of(source.uri, Selection(), source.label)
        if isinstance(scan, ArchiveScan):
            scan.plan(1)
        elif isinstance(scan, ParquetScan) and not scan.names_stores() and source.label is None:
            raise ConfigurationError(f"{source.shown} does not say which store it is of: name it, NAME={source.shown}")


def record(
    spark: SparkSession,
    folder: StreamFolder,
    sources: tuple[RunSource, ...],
    options: StreamOptions,
    keys: ChannelKeys | None,
) -> StreamingQuery:
    """Start the query that copies the rows of the archives, and their late messages."""
    register(spark)
    wanted = at_sources(options.tables.selection, keys)
    frames = [_followed(spark, source, options, wanted) for source in sources]
    if any(isinstance(source.scan(), ArchiveScan) for source in sources):
        frames.append(recorded_rows(spark, folder.late, options.files_per_batch))
    return _started(reduce(DataFrame.unionByName, frames), RECORD, folder, options, folder.recorded.append)


def deliver(
    spark: SparkSession, folder: StreamFolder, options: StreamOptions, keys: ChannelKeys | None
) -> StreamingQuery:
    """Start the query that runs the cores over the recorded rows."""
    recorded = recorded_rows(spark, folder.recorded, options.files_per_batch)
    decoded = stages.decoded(recorded, options.tables.profile, keys=keys, channel_topics=options.tables.channel_topics)
    if channels := options.tables.selection.channels:
        decoded = decoded.where(F.col("channel_id").isin(list(channels)))
    rows = emitted(decoded)

    leave_out = settled_before(folder)

    def commit(frame: DataFrame, number: int) -> None:
        folder.emitted.append(leave_out(frame), number)

    return _started(rows, DELIVER, folder, options, commit)


def _followed(spark: SparkSession, source: RunSource, options: StreamOptions, selection: Selection) -> DataFrame:
    reader = (
        spark.readStream.format("waku")
        .option("maxOffsetsPerTrigger", options.rows_per_batch)
        .option("settleMs", options.settle_ms)
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
    )
    if source.label is not None:
        reader = reader.option("label", source.label)
    return reader.options(**option_texts(selection)).load(source.uri)


def _started(
    rows: DataFrame,
    name: str,
    folder: StreamFolder,
    options: StreamOptions,
    commit: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    writer = (
        rows.writeStream.foreachBatch(commit)
        .option("checkpointLocation", str(folder.checkpoint(name)))
        .queryName(f"fairway {name} {folder.path}")
    )
    if options.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(options.every_s * 1_000)} milliseconds")
    return writer.start()
