"""The Spark shell: the same protocol over whole archives.

It has three main functions. Each writes tables into a folder, and a new start after a crash continues the work:

- `fairway.pipeline.run.run`: archives through all stages; `report` shows the result, `fairway.archives` exports it
- `fairway.pipeline.streaming.stream`: the same, following archives as they grow
- `fairway.pipeline.outgoing.send`: payloads through segmentation, SDS, encryption and the rate limit to a node

The parts, each usable alone in any Spark session:

- `sources` and `sinks`: read messages from archives and send them to nodes; the format ``waku``
- `stages`: functions from DataFrame to DataFrame; `tables` describes the tables that they return
- `session`: starts a Spark session, with the Java (`java`) and the memory (`machine`) of this machine

`register` makes ``spark.read.format("waku")`` and its three siblings known. Without the ``spark`` extra, importing any
of this raises `MissingExtraError`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fairway.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not imported here: importing Spark takes time, and some parts do not need it.
if find_spec("pyspark") is None:
    raise MissingExtraError("spark", "the pipeline", "pyspark")


def register(spark: SparkSession) -> None:
    """Make the format ``waku`` known to a session, for reading and writing; see `fairway.pipeline.sources.waku`."""
    from fairway.pipeline.sources.waku import register as register_source  # noqa: PLC0415 - Spark takes a while

    register_source(spark)
