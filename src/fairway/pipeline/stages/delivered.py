"""To ``delivered`` and ``incomplete``: the messages that an application would have received, and the incomplete ones.

A message of an application is one SDS message whose content is no segment, or a set of segments that can be
reassembled. Its message id is the lower-case hex SHA-256 of its payload. Message ids may repeat: "ok" sent twice is
delivered twice.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def delivered(unique_messages: DataFrame, reassembled: DataFrame) -> DataFrame:
    """Return one row for each logical message that can be read from the archive.

    Columns: channel_id, sender_id, message_id, lamport (of its first segment, null for ephemeral messages), sds_ids (of
    the messages that carried it), timestamp (of the last one needed), segments (data segments, 1 for a whole message),
    recovered (whether Reed-Solomon filled in lost ones), size_bytes, payload.
    """
    whole = unique_messages.where("segment_hash IS NULL AND kind <> 'sync'").select(
        "channel_id",
        "sender_id",
        _id_of("content"),
        "lamport",
        F.array("message_id").alias("sds_ids"),
        "timestamp",
        F.lit(1).alias("segments"),
        F.lit(False).alias("recovered"),
        F.length("content").cast("bigint").alias("size_bytes"),
        F.col("content").alias("payload"),
    )
    joined = reassembled.where("outcome = 'complete'").select(
        "channel_id",
        "sender_id",
        _id_of("payload"),
        "lamport",
        "sds_ids",
        F.col("last_seen").alias("timestamp"),
        F.col("data_segments").alias("segments"),
        "recovered",
        F.length("payload").cast("bigint").alias("size_bytes"),
        "payload",
    )
    return whole.unionByName(joined)


def incomplete(reassembled: DataFrame) -> DataFrame:
    """Return one row for each set of segments that gives no message.

    Columns: channel_id, sender_id, segment_hash, outcome, held (segments in the archive), data_segments (how many would
    do; null when only parity is there, which does not tell), first_seen, last_seen.
    """
    return reassembled.where("outcome <> 'complete'").select(
        "channel_id", "sender_id", "segment_hash", "outcome", "held", "data_segments", "first_seen", "last_seen"
    )


def _id_of(payload: str) -> Column:
    return F.sha2(F.col(payload), 256).alias("message_id")
