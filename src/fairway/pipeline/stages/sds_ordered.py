"""From ``unique_messages`` to ``sds_ordered``: each channel's log in causal order, and which messages wait.

The order of SDS is (Lamport timestamp, message id), ascending: the specification's local log. It is causal if senders
keep their clocks as specified. SQL finds the channels in which a message cites another whose timestamp is not below its
own; only there a message may come later than its timestamp says, after all messages that it cites.

Whether a message waits depends on all its ancestors, of which there may be as many as the channel has messages: SQL
cannot compute that. In a channel without gaps no message waits. Each channel with gaps or broken clocks goes to one
Python worker (`channel_log`). If it is too large, its rows have the status ``not-computed`` instead.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.pipeline.stages.channel_log import ABSENT_COLUMNS, LOG_COLUMNS, SDS_ORDERED, DependencyStatus, channel_log
from fairway.pipeline.stages.missing_messages import can_be_missed

MAX_CHANNEL_BYTES: Final = 536_870_912
"""Largest channel for one worker: 512 MiB of ids and citations, some 1,200,000 messages that cite two others."""

_ROW_BYTES: Final = 160
"""Size of a message without its id and its causal history: hashes, times and the sender id."""
_KEY: Final = ("channel_id", "message_id")


def sds_ordered(
    unique_messages: DataFrame,
    missing_messages: DataFrame,
    reassembled: DataFrame | None = None,
    *,
    max_channel_bytes: int = MAX_CHANNEL_BYTES,
) -> DataFrame:
    """Return the content messages of each channel with their place in its log.

    Columns: those of `SDS_ORDERED`. ``position`` counts from 1; ``missing_parents`` tells how many of the messages that
    it cites are missing; ``status`` is one of `DependencyStatus`; ``waits_for`` is, of all missing messages that it
    depends on, the one that was first cited last, and so is the last that a live participant gives up; null for none.

    ``missing_messages`` is the result of `without_rebuilt`. ``reassembled`` has the lost segments that were computed;
    without it no message waits for messages that these cite. Raises `ConfigurationError` for a limit below 1.
    """
    if max_channel_bytes < 1:
        raise ConfigurationError(f"max_channel_bytes must be positive, not {max_channel_bytes}")
    content = unique_messages.where("kind = 'content'").select(
        *LOG_COLUMNS,
        F.coalesce("history_bytes", F.lit(0)).alias("history_bytes"),
        F.filter(F.col("causal_history.message_id"), lambda cited: can_be_missed(cited, F.col("message_id"))).alias(
            "parents"
        ),
    )
    asked = _troubled(content, missing_messages, max_channel_bytes)
    absent = _absent(missing_messages, reassembled).join(asked.where("fits"), "channel_id", "left_semi")
    routed = content.join(asked, "channel_id", "left")
    logs = (
        routed.where("fits")
        .select(*LOG_COLUMNS, "parents")
        .groupBy("channel_id")
        # Columns of new names are new columns: all else comes from the same table, and Spark could not tell them apart.
        .cogroup(absent.toDF("of_channel_id", *ABSENT_COLUMNS).groupBy("of_channel_id"))
        .applyInArrow(channel_log, SDS_ORDERED)
    )
    return _by_lamport(routed.where("fits IS NULL OR NOT fits"), missing_messages).unionByName(logs)


def _troubled(content: DataFrame, missing_messages: DataFrame, max_channel_bytes: int) -> DataFrame:
    """Return the channels that have gaps or that break the Lamport order, and whether each fits one worker."""
    gappy = missing_messages.select("channel_id").distinct()
    others = content.join(gappy, "channel_id", "left_anti")
    own = others.select(*_KEY, F.coalesce("lamport", F.lit(0)).alias("own"), F.lit(None).cast("bigint").alias("citing"))
    cited = others.select(
        "channel_id",
        F.explode("parents").alias("message_id"),
        F.lit(None).cast("bigint").alias("own"),
        F.coalesce("lamport", F.lit(0)).alias("citing"),
    )
    # No join: an id's own timestamp and the least of those that cite it meet in one group, and no channel is a group.
    unordered = (
        own.unionAll(cited)
        .groupBy(*_KEY)
        .agg(F.max("own").alias("own"), F.min("citing").alias("citing"))
        .where("own >= citing")
        .select("channel_id")
        .distinct()
    )
    size = F.octet_length("message_id") + F.col("history_bytes") + _ROW_BYTES
    return (
        content.join(gappy.unionAll(unordered), "channel_id", "left_semi")
        .groupBy("channel_id")
        .agg((F.sum(size) <= max_channel_bytes).alias("fits"))
    )


def _absent(missing_messages: DataFrame, reassembled: DataFrame | None) -> DataFrame:
    """Return what is cited and not there, as `channel_log` takes it."""
    missing = missing_messages.select(*_KEY, "first_cited", F.lit(None).cast("string").alias("told_by"))
    if reassembled is None:
        return missing
    rebuilt = reassembled.select(
        "channel_id",
        F.explode(F.concat("rebuilt_ids", "guessed_ids")).alias("message_id"),
        F.lit(None).cast("bigint").alias("first_cited"),
        F.col("sds_ids")[0].alias("told_by"),
    )
    return missing.unionByName(rebuilt)


def _by_lamport(routed: DataFrame, missing_messages: DataFrame) -> DataFrame:
    """Order channels by timestamp alone: those without gaps or broken clocks, and those too large for a worker."""
    gaps = (
        routed.where("NOT fits")
        .select("channel_id", F.col("message_id").alias("citing_id"), F.explode("parents").alias("message_id"))
        .join(missing_messages.select(*_KEY), [*_KEY], "left_semi")
        .groupBy("channel_id", F.col("citing_id").alias("message_id"))
        .agg(F.count("*").alias("missing_parents"))
    )
    known, unknown = (F.lit(status.value) for status in (DependencyStatus.COMPLETE, DependencyStatus.NOT_COMPUTED))
    order = Window.partitionBy("channel_id").orderBy("lamport", "message_id")
    return (
        routed.select(*LOG_COLUMNS, F.row_number().over(order).alias("position"), "fits")
        .join(gaps, [*_KEY], "left")
        .fillna(0, ["missing_parents"])
        .withColumn("status", F.when(F.col("fits").isNull(), known).otherwise(unknown))
        .withColumn("waits_for", F.lit(None).cast("string"))
        .drop("fits")
    )
