"""`open_source`: returns an archive as a DataFrame, by its URI.

The rows are those of ``spark.read.format("waku")``. For that format Spark starts three more interpreters, which ask the
source for its schema and its partitions; this takes longer than reading a small archive. Here the program itself splits
the archive and gives each task its part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, contains, explode_outer, lit, sha2, unhex

from fairway.errors import ConfigurationError
from fairway.pipeline.exchange import BatchMapper
from fairway.pipeline.instants import batches_with_instants, frame_with_instants
from fairway.pipeline.location import (
    SCHEMES,
    is_in_object_store,
    is_on_this_machine,
    scheme_of,
    without_secrets,
)
from fairway.pipeline.schema import exact_ddl, types_of
from fairway.pipeline.sources.parquet_scan import PATTERN, ParquetScan
from fairway.pipeline.sources.places import PARQUET, scan_of
from fairway.pipeline.sources.waku_messages import (
    ARROW_SCHEMA,
    EXACT_TIME,
    TIME,
    WAKU_MESSAGES,
    MessageScan,
    Selection,
    wrong_kind,
)

_NEEDED = ("message_hash", "content_topic", "payload", EXACT_TIME)
_NO_FILE_SYSTEM = ("No FileSystem for scheme", "FileSystem not found")
_ALL = Selection()
_INTEGERS = ("bigint", "int", "smallint", "tinyint", "decimal", "void")
_KINDS = {
    "message_hash": ("binary", "void"),
    "payload": ("binary", "void"),
    "meta": ("binary", "void"),
    "rate_limit_proof": ("binary", "void"),
    "timestamp_ns": _INTEGERS,
    "version": _INTEGERS,
}
"""The accepted types of each column. Other types, such as times or text for bytes, would be misread silently."""


def open_source(
    spark: SparkSession,
    uri: str,
    *,
    label: str | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    content_topics: Collection[str] = (),
    channels: Collection[str] = (),
    partitions: int | None = None,
) -> DataFrame:
    """Return ``waku_messages`` of an archive: all of it, or a range of time (both ends included) and some topics.

    ``channels`` keeps the messages that contain one of these channel ids in clear (`Selection.channels`).

    ``uri`` is one of

    - ``sqlite:PATH``: the SQLite archive of a nwaku store node (a path alone means the same);
    - ``postgresql://user@host:5432/postgres``: nwaku's archive in PostgreSQL, for which fairway is installed with
      ``[postgresql]``; the password best comes from libpq's environment, on the executors too;
    - ``parquet:PATH``: a table that this gave. In an object store (``parquet:s3://bucket/table``) the tasks read it
      with Arrow, without a jar; on this machine and on other file systems of Spark (``hdfs:``) Spark reads it, unless
      its files have different columns;
    - ``lip76:DIR``: the files ``data`` and ``index`` of LIP-76;
    - ``http://127.0.0.1:8645``: a node with nwaku's REST API, itself a store or, with ``?peerAddr=``, in front of one.

    ``label`` is the value of the column ``source``; the default is the place without credentials. Messages are read
    when the frame is used, by the executors: all of them must see a file under the same path. Raises
    `ConfigurationError` for an invalid URI, and the errors of an archive that cannot be opened.
    """
    selection = Selection(
        start_ns=start_ns, end_ns=end_ns, content_topics=tuple(content_topics), channels=tuple(channels)
    )
    scan = scan_for_arrow(uri, label, selection)
    if scan is None or (
        isinstance(scan, ParquetScan) and scan.place.is_local and scan.names_in_log() is None and scan.has_one_schema()
    ):
        place = uri.removeprefix(PARQUET)
        table = parquet_by_spark(spark, place, has_one_schema=scan is not None)
        return _selected(conformed(table, without_secrets(place), label), selection)
    return frame_of(spark, scan, partitions)


def map_source(
    spark: SparkSession,
    uri: str,
    work: BatchMapper,
    schema: str,
    *,
    label: str | None = None,
    selection: Selection = _ALL,
) -> DataFrame:
    """Return what a function makes of the wanted messages of an archive, batch by batch, in the tasks that read them.

    It is `open_source` and ``mapInArrow``, but no message goes through the JVM between. Batches have no instants
    (`ARROW_SCHEMA`). Spark reads only what it alone can: Parquet on other file systems of Hadoop, or named by a
    pattern.
    """
    scan = scan_for_arrow(uri, label, selection)
    if scan is None:
        table = conformed(parquet_by_spark(spark, place := uri.removeprefix(PARQUET)), without_secrets(place), label)
        return _selected(table, selection).select(*ARROW_SCHEMA.names).mapInArrow(work, schema)
    return _mapped(spark, scan, work, schema)


def scan_for_arrow(uri: str, label: str | None, selection: Selection = _ALL) -> MessageScan | None:
    """Return the read of an archive that gives the rows of `open_source`; None if only Spark can."""
    place = uri.removeprefix(PARQUET)
    if uri.startswith(PARQUET) and not _is_for_arrow(place):
        return None
    scan = scan_of(uri, selection, label)
    if isinstance(scan, ParquetScan) and label is None:
        return replace(scan, source=without_secrets(place))  # the name that it has where Spark reads it
    return scan


def frame_of(spark: SparkSession, scan: MessageScan, partitions: int | None = None) -> DataFrame:
    """Return the rows of a read, planned now and read by the executors when the frame is used."""
    return _mapped(spark, scan, _told, WAKU_MESSAGES, partitions)


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches_with_instants(batches, WAKU_MESSAGES)


def _mapped(
    spark: SparkSession, scan: MessageScan, work: BatchMapper, schema: str, partitions: int | None = None
) -> DataFrame:
    return mapped_parts(spark, scan.read, scan.plan(partitions), work, schema)


def mapped_parts(
    spark: SparkSession,
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    parts: Sequence[Any],
    work: BatchMapper,
    schema: str,
) -> DataFrame:
    """Return what a function makes of the batches of each part, a task for each, numbered as the parts are."""

    def messages(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from read(parts[number])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(lambda numbers: work(messages(numbers)), schema)


def _is_for_arrow(place: str) -> bool:
    """Return whether Arrow reads a Parquet table at a place: one without a pattern, here or in an object store."""
    is_here = is_on_this_machine(place) and not any(sign in place for sign in PATTERN)
    return bool(place) and (is_here or is_in_object_store(place))


def parquet_by_spark(spark: SparkSession, path: str, *, has_one_schema: bool = False) -> DataFrame:
    """Return a Parquet table that Spark reads, on this machine or on a file system of Spark.

    Unless all files have one schema, Spark looks at each for its columns; else it would leave out what one file lacks.

    Raises `ConfigurationError` if there is none, or if this Spark has no file system for its scheme.
    """
    if not path:
        raise ConfigurationError("'parquet:' names no folder; an example is parquet:waku_messages")
    try:
        return spark.read.parquet(path, mergeSchema=not has_one_schema)
    except AnalysisException as error:
        raise ConfigurationError(
            f"{without_secrets(path)}: cannot be read as Parquet: {error.getCondition()}"
        ) from error
    except Exception as error:
        if not any(sign in str(error) for sign in _NO_FILE_SYSTEM):
            raise
        raise ConfigurationError(
            f"{without_secrets(path)}: the scheme {scheme_of(path)!r} is not supported here: this Spark has no file "
            f"system for it, which would be a jar; a run reads {', '.join(SCHEMES)} without one"
        ) from error


def conformed(table: DataFrame, place: str, label: str | None) -> DataFrame:
    """Return a table or stream of messages with the columns and types of ``waku_messages``.

    ``place`` names the table in errors, and in ``source`` if neither ``label`` nor a row does. Raises
    `ConfigurationError` if a necessary column is missing, or has another type.
    """
    time = TIME if EXACT_TIME not in table.columns and TIME in table.columns else EXACT_TIME
    table = table.withColumnRenamed(time, EXACT_TIME)
    lacking = ", ".join(name for name in _NEEDED if name not in table.columns)
    if lacking:
        raise ConfigurationError(f"{place}: is no table of Waku messages; it has no column {lacking}")
    if label is not None:
        table = table.withColumn("source", lit(label))
    elif "sources" in table.columns:  # deduplicated before: one row for each archive that had the message
        table = table.withColumn("source", explode_outer("sources"))
    elif "source" not in table.columns:
        table = table.withColumn("source", lit(place))
    for name in table.columns:
        kind = table.schema[name].dataType.simpleString()
        if name in _KINDS and not kind.startswith(_KINDS[name]):
            raise wrong_kind(place, time if name == EXACT_TIME else name, kind, _KINDS[name])
    columns = {
        name: (col(name) if name in table.columns else lit(None)).try_cast(kind)
        for name, kind in types_of(exact_ddl(WAKU_MESSAGES)).items()
    }
    # A row of a file may lack what every message has; that makes none the same as another, nor leaves it out of time.
    columns["message_hash"] = coalesce(columns["message_hash"], unhex(sha2(columns["payload"], 256)), lit(b""))
    columns["timestamp_ns"] = coalesce(columns["timestamp_ns"], lit(0))
    columns["version"] = coalesce(columns["version"], lit(0))
    columns["source"] = coalesce(columns["source"], lit(place))
    return frame_with_instants(table.select(*(column.alias(name) for name, column in columns.items())), WAKU_MESSAGES)


def _selected(table: DataFrame, selection: Selection) -> DataFrame:
    if selection.start_ns is not None:
        table = table.where(col("timestamp_ns") >= selection.start_ns)
    if selection.end_ns is not None:
        table = table.where(col("timestamp_ns") <= selection.end_ns)
    if selection.content_topics:
        table = table.where(col("content_topic").isin(list(selection.content_topics)))
    if marks := selection.channel_marks:
        table = table.where(reduce(Column.__or__, (contains(col("payload"), lit(mark)) for mark in marks)))
    return table
