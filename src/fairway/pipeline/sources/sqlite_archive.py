"""The SQLite archive of a nwaku store node, or one that fairway wrote, as a DataFrame."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike, fspath

from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.sources.open_source import frame_of
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import Selection


def read_sqlite_archive(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    pubsub_topic: str | None = None,
    content_topics: Collection[str] = (),
    partitions: int | None = None,
) -> DataFrame:
    """Return ``waku_messages`` of an archive: all of it, or a range of time (both ends included) and some topics.

    No message is read until the frame is used, and then by the executors: on a cluster the file must lie where all of
    them see it under the same path. Raises at once what `NwakuArchive` raises for a file that is not an archive.
    """
    selection = Selection(
        start_ns=start_ns, end_ns=end_ns, pubsub_topic=pubsub_topic, content_topics=tuple(content_topics)
    )
    return frame_of(spark, scan_of(f"sqlite:{fspath(path)}", selection), partitions)
