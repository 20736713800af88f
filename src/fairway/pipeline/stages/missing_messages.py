"""From ``unique_messages`` to ``missing_messages``: messages that are cited and not in the archive.

The result is exact. Ids are not hashed, because a sender could hide a gap with a crafted collision. Citations and
messages are put into one table and grouped by id, without a join; an id is missing if no message has it. The work is
spread by (channel, id), so that a busy channel is not the work of one task.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.protocol.sds.message_id import SYNC_PREFIX


def citations(unique_messages: DataFrame) -> DataFrame:
    """Return one row for each entry of a causal history: the citing and the cited message, and the time.

    Content and sync messages cite; an ephemeral one is outside the causal order (SDS, "Ephemeral Messages").
    Citations of messages that no participant waits for are left out: of the message itself, of an empty id, of a sync
    message (`fairway.protocol.sds.dependencies`). `sds_messages` gives each message of a history once.
    """
    return (
        unique_messages.where("kind <> 'ephemeral'")
        .withColumn("entry", F.explode("causal_history"))
        .select(
            "channel_id",
            F.col("entry.message_id").alias("message_id"),
            F.col("entry.retrieval_hint").alias("retrieval_hint"),
            F.col("entry.sender_id").alias("sender_id"),
            F.col("message_id").alias("citing_id"),
            F.col("sender_id").alias("citing_sender_id"),
            F.col("timestamp").alias("cited_at"),
        )
        .where(can_be_missed(F.col("message_id"), F.col("citing_id")))
    )


def can_be_missed(cited: Column, citing: Column) -> Column:
    """Return whether a message with the id ``citing`` waits for ``cited`` if that is missing."""
    return (cited != citing) & (cited != "") & ~cited.startswith(SYNC_PREFIX)


def missing_messages(unique_messages: DataFrame) -> DataFrame:
    """Return one row for each message that is cited and not there.

    Columns: channel_id, message_id, sender_id (its author, if a citation names it), retrieval_hint (likewise), cited_by
    (the number of messages that cite it), first_cited and last_cited (timestamps, nanoseconds), first_cited_by and
    last_cited_by (their senders, which had the message). A row does not list all senders: any number may cite it.
    """
    cited = citations(unique_messages).select(
        "channel_id",
        "message_id",
        "sender_id",
        "retrieval_hint",
        "citing_sender_id",
        "cited_at",
        F.lit(0).alias("have"),
    )
    present = unique_messages.where("kind = 'content'").select(
        "channel_id",
        "message_id",
        F.lit(None).cast("string").alias("sender_id"),
        F.lit(None).cast("binary").alias("retrieval_hint"),
        F.lit(None).cast("string").alias("citing_sender_id"),
        F.lit(None).cast("bigint").alias("cited_at"),
        F.lit(1).alias("have"),
    )
    return (
        cited.unionAll(present)
        .groupBy("channel_id", "message_id")
        .agg(
            F.max("have").alias("have"),
            F.max("sender_id").alias("sender_id"),
            F.max("retrieval_hint").alias("retrieval_hint"),
            F.count("cited_at").alias("cited_by"),
            F.min("cited_at").alias("first_cited"),
            F.max("cited_at").alias("last_cited"),
            F.min_by("citing_sender_id", F.struct("cited_at", "citing_sender_id")).alias("first_cited_by"),
            F.max_by("citing_sender_id", F.struct("cited_at", "citing_sender_id")).alias("last_cited_by"),
        )
        .where("have = 0")
        .drop("have")
    )


def without_rebuilt(missing_messages: DataFrame, reassembled: DataFrame) -> DataFrame:
    """Return the missing messages without the lost segments that Reed-Solomon computed."""
    rebuilt = reassembled.select("channel_id", F.explode("rebuilt_ids").alias("message_id"))
    return missing_messages.join(rebuilt, ["channel_id", "message_id"], "left_anti")
