"""The Spark shell: the same protocol over whole archives.

The short ways, each a function over a folder of tables that goes on where it was killed:

- `fairway.pipeline.run.run`: archives through all stages; `report` shows what came of it, `export` writes the messages
  to files, `restore` makes a live channel's store of them
- `fairway.pipeline.streaming.stream`: the same, following archives as they grow
- `fairway.pipeline.outgoing.send`: payloads through segmentation, SDS, encryption and the rate limit into a node

The parts, each of use alone in any Spark session:

- `sources` and `sinks`: where messages come from and go to; the format ``waku``
- `stages`: functions from DataFrame to DataFrame; `tables` says what is in what they make
- `session`: a Spark session where there is none, with the Java (`java`) and the memory (`machine`) of this machine
- `generator`: archives of any size to try things on, with the truth about them
- `jobs`: programs for ``spark-submit``

`register` makes ``spark.read.format("waku")`` and its three siblings known. Without the ``spark`` extra, importing any
of this raises `MissingExtraError`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fairway.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Found, and not imported: Spark takes a while, and not every part needs it at once.
if find_spec("pyspark") is None:
    raise MissingExtraError("spark", "the pipeline", "pyspark")


def register(spark: SparkSession) -> None:
    """Make the format ``waku`` known to a session, for reading and writing; see `fairway.pipeline.sources.waku`."""
    from fairway.pipeline.sources.waku import register as register_source  # noqa: PLC0415 - Spark takes a while

    register_source(spark)
