"""From ``sds_messages`` to ``unique_messages``: each SDS message once.

An SDS message may be in an archive several times, because every retransmission is a new WakuMessage, and because any
participant may repeat it. The row with the lowest (timestamp, message hash) is kept, whatever the order of the input.

A participant may also send other content under the id of a message. As in the live core, the message whose id is a
digest of its content is the true one; if no id can be checked, the first one is. Others under the same id are `forged`:
they are no copies of the message, and are in the quarantine.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def sighted(sds_messages: DataFrame) -> DataFrame:
    """Return the decodable messages that are not forged, with the number of each copy of its SDS message.

    Columns: those of ``sds_messages``, ``sightings`` (copies of the SDS message in the archive) and ``sighting`` (the
    number of this copy, from 1). The key is message_hash, or (channel_id, message_id) where ``sighting = 1``.
    """
    same = Window.partitionBy("channel_id", "message_id")
    in_time = same.orderBy("timestamp", "message_hash")
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    order = F.struct(~F.col("proven"), F.col("kind") != "content", "timestamp", "message_hash")
    # Of nearly all ids there is one row, of which nothing has to be known.
    several = F.col("rows") > 1
    return (
        # The window with the order goes first: its sorting serves the others as well.
        sds_messages.where("status = 'ok'")
        .withColumn("place", F.row_number().over(in_time))
        .withColumn("rows", F.count("*").over(same))
        .withColumn("said", F.when(several, _said()))
        .withColumn("proven", F.when(several, _proven()).otherwise(F.lit(True)))
        .withColumn("true_one", F.min_by("said", order).over(same))
        .withColumn("honest", F.when(several, F.col("said") == F.col("true_one")).otherwise(F.lit(True)))
        .withColumn("sighting", F.sum(F.col("honest").cast("int")).over(so_far).cast("int"))
        .withColumn("sightings", F.sum(F.col("honest").cast("int")).over(same))
        .where("honest")
        .select(*sds_messages.columns, "sightings", "sighting")
    )


def forged(decoded: DataFrame, sighted: DataFrame) -> DataFrame:
    """Return the decodable messages that `sighted` left out, with the status and the error of the quarantine."""
    return (
        decoded.where("status = 'ok'")
        .join(sighted.select("message_hash"), "message_hash", "left_anti")
        .withColumn("status", F.lit("forged"))
        .withColumn("error", F.concat(F.lit("another message stands under the id "), "message_id"))
    )


def unique_messages(sds_messages: DataFrame) -> DataFrame:
    """Return one row for each (channel_id, message_id) of decodable messages.

    Columns: those of ``sds_messages`` and ``sightings``, the number of copies in the archive. The input is the result
    of the stage ``sds_messages`` or of `sighted`.
    """
    numbered = sds_messages if "sighting" in sds_messages.columns else sighted(sds_messages)
    return numbered.where("sighting = 1").drop("sighting")


def _content() -> Column:
    return F.coalesce("content", F.lit(b""))


def _said() -> Column:
    """Return the columns that distinguish messages under one id: the sender and the content."""
    return F.sha2(F.concat(F.col("sender_id").cast("binary"), F.lit(b"\0"), _content()), 256)


def _proven() -> Column:
    """Return whether the id is a digest of the message, by a rule with no other inputs (`fairway.protocol.sds`)."""
    lamport = F.unhex(F.lpad(F.hex(F.coalesce("lamport", F.lit(0))), 16, "0"))
    unique = F.sha2(F.concat(F.col("sender_id").cast("binary"), F.lit(b"\0"), lamport, _content()), 256)
    is_digest = (F.col("message_id") == unique) | (F.col("message_id") == F.sha2(_content(), 256))
    return (F.col("kind") == "content") & is_digest
