"""Compares the tables of two runs row by row: ``python -m benchmarks.pipeline_rows RUN OTHER``.

It is for changes that must not change a table: run two checkouts of fairway over one archive, then compare.
``benchmarks.pipeline_scale --keep FOLDER --earlier CHECKOUT`` leaves ``FOLDER/SHAPE-SIZE/spark`` and ``.../earlier``.
Spark compares, so that it serves tables of any size. Ends with exit code 1 if a row of a table is in one run only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.generator.check import Difference
from fairway.pipeline.run import RunTables
from fairway.pipeline.session import create_session
from fairway.pipeline.tables import TABLES


def differing_rows(spark: SparkSession, run: Path, other: Path) -> list[Difference]:
    """Return the tables of a run that have other rows than those of another run, each row as often as it is there."""
    tables, others = RunTables(run), RunTables(other)
    found = []
    for table in TABLES:
        hashed = [each.dataframe(spark, table.name).select(F.xxhash64("*").alias("row")) for each in (tables, others)]
        counted = hashed[0].withColumn("by", F.lit(1)).unionAll(hashed[1].withColumn("by", F.lit(-1)))
        sums = counted.groupBy("row").agg(F.sum("by").alias("sum")).where("sum <> 0")
        excess, lacking = sums.agg(
            F.coalesce(F.sum(F.greatest("sum", F.lit(0))), F.lit(0)),
            F.coalesce(F.sum(F.greatest(-F.col("sum"), F.lit(0))), F.lit(0)),
        ).first() or (0, 0)
        if excess or lacking:
            found.append(Difference(table=table.name, excess=excess, lacking=lacking))
    return found


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("other", type=Path, help="that of another run over the same sources")
    chosen = parser.parse_args()
    spark = create_session("fairway rows")
    found = differing_rows(spark, chosen.run, chosen.other)
    rows = sum(RunTables(chosen.run).rows(table.name) for table in TABLES)
    spark.stop()
    print(f"{len(TABLES)} tables of {rows:,} rows compared")
    for difference in found:
        print(f"DIFFERENT  {difference.table}: {difference.excess:,} rows too many, {difference.lacking:,} lacking")
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
