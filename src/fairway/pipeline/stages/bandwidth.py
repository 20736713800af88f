"""From ``sds_messages`` to ``bandwidth``: the bytes of each channel, by their purpose.

Every byte of the payload of every decodable WakuMessage is counted once, so that the parts add up to the whole:

- ``retransmission``: all of a message that was sent again, by its author or as a repair by somebody else;
- ``sync``: all of a sync message;
- of the rest, which carries content for the first time: ``content``, causal ``history``, ``bloom`` filter, ``repair``
  requests, and ``envelope`` for what remains: ids, Lamport timestamp, tags, and what the cipher added.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

PARTS: Final = ("content", "history", "bloom", "sync", "repair", "retransmission", "envelope")
"""What ``part`` may be."""

BANDWIDTH: Final = "channel_id string, part string, bytes bigint, messages bigint"
"""The table of bandwidth; ``messages`` counts the WakuMessages that have the part."""


def bandwidth(sighted: DataFrame) -> DataFrame:
    """Return ``bandwidth`` (`BANDWIDTH`) of what `sighted` gives, one row for each channel and part that occurs."""
    whole = F.col("payload_bytes")
    again = F.col("sighting") > 1
    sync = ~again & (F.col("kind") == "sync")
    first = ~again & (F.col("kind") != "sync")
    told = {
        "content": F.col("content_bytes"),
        "history": F.col("history_bytes"),
        "bloom": F.col("bloom_bytes"),
        "repair": F.col("repair_bytes"),
    }
    # The computed size of an entry in an unusual encoding can be too large; then the envelope is smaller by as much.
    envelope = whole - sum((told[name] for name in told), F.lit(0))
    sizes = {
        **{name: F.when(first, told[name]) for name in told},
        "sync": F.when(sync, whole),
        "retransmission": F.when(again, whole),
        "envelope": F.when(first, envelope),
    }
    sums = sighted.groupBy("channel_id").agg(*(_total(sizes[part]).alias(part) for part in PARTS))
    return (
        sums.select(
            "channel_id",
            F.explode(F.array(*(F.struct(F.lit(part).alias("part"), f"{part}.*") for part in PARTS))).alias("row"),
        )
        .select("channel_id", "row.*")
        .where("messages > 0")
    )


def _total(size: Column) -> Column:
    return F.struct(
        F.coalesce(F.sum(size), F.lit(0)).cast("bigint").alias("bytes"),
        F.count(F.when(size != 0, True)).alias("messages"),
    )
