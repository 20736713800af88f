"""`settle`: at the end of a stream, delivers the messages of the tables that no core has delivered, once.

A core evicts segments beyond its bounds. Of two messages with one id it uses the first to arrive, while the tables use
the older one. So after the last refresh, `settle` delivers each row of ``delivered`` that shares no SDS message with an
earlier delivery, in a micro-batch with a negative number. The query ``deliver`` leaves out these messages later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline.schema import columns_of
from fairway.pipeline.streaming.batch_table import BATCH, SETTLEMENTS
from fairway.pipeline.streaming.channel_core import DELIVERED, EMITTED
from fairway.pipeline.streaming.folder import StreamFolder

_BEFORE_ALL: Final = -(2**31)
"""Number below that of any settlement."""


def settle(spark: SparkSession, folder: StreamFolder, delivered: DataFrame) -> int:
    """Deliver the rest of the table ``delivered``, and return its number of messages. Call it while no query runs."""
    left = undelivered(delivered, emitted_so_far(spark, folder)).persist()
    try:
        count = left.count()
        if count:
            rows = left.withColumn("what", F.lit(DELIVERED)).select(*columns_of(EMITTED))
            folder.emitted.append(rows, -folder.emitted.last(SETTLEMENTS) - 1)
    finally:
        left.unpersist()
    return count


def settled_before(folder: StreamFolder) -> Callable[[DataFrame], DataFrame]:
    """Return a filter that removes messages that `settle` has delivered from a micro-batch."""
    settled = folder.emitted.last(SETTLEMENTS)

    def leave_out(frame: DataFrame) -> DataFrame:
        if not settled:
            return frame
        rows = emitted_so_far(frame.sparkSession, folder).where(f"{BATCH} < 0")
        ids = rows.select(F.col("channel_id").alias("settled_in"), F.explode("sds_ids").alias("id"))
        again = (F.col("what") == DELIVERED) & F.expr("channel_id = settled_in AND array_contains(sds_ids, id)")
        return frame.join(ids.distinct(), again, "left_anti")

    return leave_out


def emitted_so_far(spark: SparkSession, folder: StreamFolder) -> DataFrame:
    """Return all written rows of `EMITTED`, with the numbers of their micro-batches."""
    emitted = folder.emitted
    files = [str(file) for file, _ in emitted.files(_BEFORE_ALL, emitted.last())]
    return spark.read.schema(emitted.schema).parquet(*files) if files else spark.createDataFrame([], emitted.schema)


def undelivered(delivered: DataFrame, emitted: DataFrame) -> DataFrame:
    """Return the rows of ``delivered`` that share no SDS message with any delivery."""
    ids = (
        emitted.where(F.col("what") == DELIVERED)
        .select("channel_id", F.explode("sds_ids").alias("sds_id"))
        .distinct()
        .withColumn("known", F.lit(1))
    )
    # In a channel an SDS id belongs to one row, so its first id identifies a row.
    told = (
        delivered.select("channel_id", F.col("sds_ids")[0].alias("row"), F.explode("sds_ids").alias("sds_id"))
        .join(ids, ["channel_id", "sds_id"], "left")
        .groupBy("channel_id", "row")
        .agg(F.max("known").alias("known"))
        .where("known IS NULL")
        .drop("known")
    )
    return delivered.withColumn("row", F.col("sds_ids")[0]).join(told, ["channel_id", "row"], "left_semi").drop("row")
