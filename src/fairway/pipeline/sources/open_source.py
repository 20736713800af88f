"""`open_source`: returns an archive as a DataFrame, by its URI.

The rows are those of ``spark.read.format("waku")``. For that format Spark starts three more interpreters, which query
the source for its schema and its partitions; this takes longer than reading a small archive. `open_source` splits the
archive in the program itself and passes each task its part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.exchange import BatchMapper, in_parts
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.session import cores_of
from fairway.pipeline.sources.options import selection_of
from fairway.pipeline.sources.parquet_scan import FACTS, Footers, ParquetScan
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, MessageScan, even_runs


def open_source(
    spark: SparkSession,
    uri: str,
    *,
    label: str | None = None,
    since: str | None = None,
    until: str | None = None,
    topics: Collection[str] = (),
    topics_pattern: str | None = None,
    channels: Collection[str] = (),
    partitions: int | None = None,
) -> DataFrame:
    """Return ``waku_messages`` of an archive: all of it, or a range of time (both ends included) and some topics.

    ``since`` and ``until`` are ISO text or milliseconds; ``topics_pattern`` is a regular expression of whole content
    topics (`Selection.topics_pattern`). ``channels`` keeps the messages that contain one of these channel ids in clear
    (`Selection.channels`).

    ``uri`` is one of

    - ``sqlite:PATH``: the SQLite archive of a nwaku store node (a path alone means the same);
    - ``postgresql://user@host:5432/postgres``: nwaku's archive in PostgreSQL, with fairway's extra ``[postgresql]``;
      set the password in libpq's environment, on the executors too;
    - ``parquet:PATH``: a table of messages, on this machine, in an object store (``parquet:s3://bucket/table``) or in
      HDFS, with or without a pattern; the tasks read it with Arrow, and no jar is needed;
    - ``lip76:DIR``: the files ``data`` and ``index`` of LIP-76;
    - ``http://127.0.0.1:8645``: a node with nwaku's REST API: a store, or with ``?peerAddr=`` a client of a store.

    ``label`` is the value of the column ``source``; the default is the place without credentials. The executors read
    the messages when the frame is used, so a file must have the same path on all of them. Raises `ConfigurationError`
    for an invalid URI, and the errors of an archive that cannot be opened.
    """
    selection = selection_of(since=since, until=until, channels=channels, topics=topics, topics_pattern=topics_pattern)
    work = partial(batches_with_instants, ddl=WAKU_MESSAGES)
    return map_scan(spark, scan_of(uri, selection, label), work, WAKU_MESSAGES, partitions)


def map_scan(
    spark: SparkSession, scan: MessageScan, work: BatchMapper, schema: str, partitions: int | None = None
) -> DataFrame:
    """Return the result of a function over the messages of a read, batch by batch, in the tasks that read them.

    It is equivalent to `open_source` with ``mapInArrow``, but the JVM does not copy the messages. Batches have no
    instants (`ARROW_SCHEMA`).
    """
    read = scan.for_tasks().read
    return in_parts(spark, scan.plan(partitions, cores_of(spark)), lambda part: work(read(part)), schema)


def all_footers(spark: SparkSession, scan: ParquetScan) -> Footers:
    """Return the facts in the footers of all listed files; tasks read them, if they are more than the driver reads.

    Raises `ConfigurationError` for a file that is not a table of Waku messages.
    """
    states = scan.states_to_read()
    known = scan.footers or scan.footers_on_driver()
    if known.files == len(states):
        return known
    parts = even_runs(states, [size_bytes for _, size_bytes, _ in states], cores=cores_of(spark))
    rows = in_parts(spark, parts, scan.for_tasks().read_facts, FACTS).collect()
    for row in rows:
        if row.error:
            raise ConfigurationError(row.error)
    return replace(
        known,
        files=len(states),
        have_hashes=all(row.have_hashes for row in rows),
        name_stores=any(row.name_stores for row in rows),
    )
