"""What the archives of store nodes lost, channel by channel, and the hashes to ask another store for.

The stages of the pipeline are functions from DataFrame to DataFrame, which a program puts together as it needs them.

Run it: python examples/losses_of_archives.py one=sqlite:one.db two=sqlite:two.db
Without archives it generates two.
"""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline import stages
from fairway.pipeline.session import create_session
from fairway.pipeline.sources import open_source
from fairway.testing.archives import GeneratorPlan, write_generated, written_sources


def opened(spark: SparkSession, source: str) -> DataFrame:
    """Return the messages of ``NAME=URI``."""
    name, _, uri = source.partition("=")
    return open_source(spark, uri, label=name)


def missing_from(archive: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the SDS messages of an archive, each once, and those that are cited and not in it."""
    decoded = stages.decoded(stages.deduplicated(archive))
    unique = stages.sds_messages(decoded).persist()
    reassembled = stages.reassembled(unique, profile=None)
    return unique, stages.missing_messages(unique, reassembled).persist()


def tell(spark: SparkSession, sources: list[str]) -> None:
    """Print what is lost, and what to ask for."""
    unique, missing = missing_from(reduce(DataFrame.unionByName, (opened(spark, source) for source in sources)))
    there = unique.where("kind = 'content'").groupBy("channel_id").agg(F.count("*").alias("there"))
    lost = missing.groupBy("channel_id").agg(F.count("*").alias("lost"))
    for row in there.join(lost, "channel_id", "full").fillna(0).orderBy(F.desc("lost"), "channel_id").collect():
        print(f"{row.channel_id}: {row.lost} of {row.there + row.lost} messages are in none of {len(sources)} archives")
    hints = missing.where("retrieval_hint IS NOT NULL").orderBy("first_cited_ns").limit(3)
    for row in hints.collect():
        print(f"ask another store for {row.retrieval_hint.hex()}, cited by {row.cited_by}")


def main() -> None:
    """Read the archives that are named, or two that are made for it."""
    spark = create_session("losses of archives")
    with TemporaryDirectory() as folder:
        sources = sys.argv[1:]
        if not sources:
            plan = GeneratorPlan(messages=2_000, channels=4, stores=2)
            write_generated(spark, plan, Path(folder) / "archive")
            sources = written_sources(plan, Path(folder) / "archive")
        tell(spark, sources)
    spark.stop()


main()
