"""Spreads the sorted tables of a run over files, by ranges of their keys.

Spark's ``repartitionByRange`` samples the bounds of the ranges from the table, and so computes the table twice. Here
the bounds come from narrow columns of ``sds_messages``, which exists already. The keys of a row determine its file, and
the files in their order have the rows in theirs. A poor sample only makes files of different sizes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FILE_BYTES: Final = 67_108_864
FILE_ROWS: Final = 250_000
_MAX_FILES: Final = 256
_SAMPLED_PER_FILE: Final = 200
_SEED: Final = 1

_Bound = tuple[str, int]


def by_lamport(table: DataFrame, messages: DataFrame) -> DataFrame:
    """Spread a table by range of (channel_id, lamport).

    ``messages`` has these columns and ``content_bytes``, and about as many rows, though not the same ones.
    """
    files = _files(messages, F.ceil(F.sum("content_bytes") / FILE_BYTES))
    sample = (
        messages.select("channel_id", _clock().alias("clock"))
        .orderBy(F.rand(_SEED))
        .limit(files * _SAMPLED_PER_FILE)
        .collect()
    )
    places = sorted((row.channel_id, row.clock) for row in sample)
    bounds = [places[len(places) * number // files] for number in range(1, files)]
    return table.repartitionById(files, _file_of(bounds, 0))


def by_position(ordered: DataFrame, messages: DataFrame) -> DataFrame:
    """Spread a table by range of (channel_id, position); ``messages`` has its rows, or at least their channel_id.

    Positions count from 1 in each channel, so that the sizes of the channels before tell a row's place in the table.
    """
    files = _files(messages, F.ceil(F.count("*") / FILE_ROWS))
    # One partition, of as many rows as there are channels; named, for Spark Connect warns of a window without any.
    every = Window.partitionBy(F.lit(0))
    sizes = messages.groupBy("channel_id").agg(F.count("*").alias("size"))
    before = sizes.select(
        F.col("channel_id").alias("of_channel_id"),
        (F.sum("size").over(every.orderBy("channel_id")) - F.col("size")).alias("before"),
        F.sum("size").over(every).alias("total"),
    )
    file = F.floor((F.col("before") + F.col("position") - 1) * files / F.col("total")).cast("int")
    return (
        ordered.join(before, F.col("channel_id") == F.col("of_channel_id"))
        .repartitionById(files, file)
        .select(*ordered.columns)
    )


def _files(messages: DataFrame, wanted: Column) -> int:
    row = messages.agg(wanted.alias("files")).first()
    return max(1, min(_MAX_FILES, int((row and row.files) or 1)))


def _clock() -> Column:
    return F.coalesce("lamport", F.lit(-1))  # ephemeral messages have none, and come first


def _file_of(bounds: list[_Bound], first: int) -> Column:
    """Return the number of the file that a row belongs to, by a binary search among the bounds."""
    if not bounds:
        return F.lit(first)
    middle = len(bounds) // 2
    channel_id, clock = bounds[middle]
    is_below = (F.col("channel_id") < channel_id) | ((F.col("channel_id") == channel_id) & (_clock() < clock))
    return F.when(is_below, _file_of(bounds[:middle], first)).otherwise(
        _file_of(bounds[middle + 1 :], first + middle + 1)
    )
