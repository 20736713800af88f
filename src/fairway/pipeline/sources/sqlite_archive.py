"""The SQLite archive of a nwaku store node, or one that fairway wrote, as a DataFrame.

The same rows as ``spark.read.format("waku")`` gives. The difference is who plans: for a source in Python, Spark starts
three more interpreters to ask it for its schema and its partitions, which takes longer than reading a small archive.
Here the archive is split by the program itself, and its tasks are told which slice is theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, ArchiveScan


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
    scan = ArchiveScan(
        path=str(Path(path).absolute()),
        start_ns=start_ns,
        end_ns=end_ns,
        pubsub_topic=pubsub_topic,
        content_topics=tuple(content_topics),
    )
    slices = scan.plan(partitions)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from scan.read(slices[number])

    return spark.range(0, len(slices), 1, len(slices)).mapInArrow(read, WAKU_MESSAGES)
