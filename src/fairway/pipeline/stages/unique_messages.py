"""From ``sds_messages`` to ``unique_messages``: each SDS message once.

A message is in an archive several times, since every retry is a new WakuMessage with the same SDS message inside, and
nothing keeps others from repeating it. The sighting with the lowest (timestamp, message hash) stands for all, whatever
the order in which rows come.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def sighted(sds_messages: DataFrame) -> DataFrame:
    """Return the decodable messages and which sighting of its SDS message each is.

    Columns: those of ``sds_messages``, ``sightings`` (how often the SDS message is in the archive) and ``sighting``
    (the how-manieth this is, from 1). The key is message_hash; (channel_id, message_id) where ``sighting = 1``.
    """
    same = Window.partitionBy("channel_id", "message_id")
    return (
        # The window with the order goes first: its sorting serves the other as well.
        sds_messages.where("status = 'ok'")
        .withColumn("sighting", F.row_number().over(same.orderBy("timestamp", "message_hash")))
        .withColumn("sightings", F.count("*").over(same))
        .select(*sds_messages.columns, "sightings", "sighting")
    )


def unique_messages(sds_messages: DataFrame) -> DataFrame:
    """Return one row for each (channel_id, message_id) of decodable messages.

    Columns: those of ``sds_messages`` and ``sightings``, how often the message is in the archive. Takes the result of
    the stage ``sds_messages`` or of `sighted`.
    """
    numbered = sds_messages if "sighting" in sds_messages.columns else sighted(sds_messages)
    return numbered.where("sighting = 1").drop("sighting")
