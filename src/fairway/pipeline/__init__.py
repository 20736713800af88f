"""The Spark shell: the same protocol over whole archives.

`fairway.pipeline.report.run_report` is the short way. Its parts can be used alone, in any Spark session: a
source (`fairway.pipeline.sources`), the stages, each a function from DataFrame to DataFrame
(`fairway.pipeline.stages`), and a session where there is none (`fairway.pipeline.session`).

`register` makes ``spark.read.format("waku")`` and its three siblings known. Spark is imported only when it is called,
so that a program without the ``spark`` extra can import `fairway`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format ``waku`` known to a session, for reading and writing; see `fairway.pipeline.sources.waku`."""
    from fairway.pipeline.sources.waku import register as register_source  # noqa: PLC0415 - see the module's text

    register_source(spark)
