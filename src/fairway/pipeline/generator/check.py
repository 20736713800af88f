"""Holds the tables of a run over a generated archive against the truth about it, row by row and on Spark.

Nothing is collected but counts, so that it serves archives of any size: the rows of a table count plus one, those that
the facts say it should have minus one, and whatever does not cancel out is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A table that is not what it should be."""

    table: str
    excess: int
    """Rows that it has and should not have."""
    lacking: int
    """Rows that it should have and has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    fact: str
    found: tuple[str, ...]
    """Expressions over the table."""
    told: tuple[str, ...]
    """Expressions over the facts, as many."""
    where: str = "true"
    """Which of the facts."""


def _same(*names: str) -> dict[str, tuple[str, ...]]:
    return {"found": names, "told": names}


_COMPARISONS: Final[Mapping[str, _Comparison]] = {
    "waku_messages": _Comparison(
        fact="carrier",
        found=("message_hash", "timestamp", "array_sort(sources)", "copies"),
        told=("message_hash", "timestamp", "array_sort(sources)", "cast(rows AS bigint)"),
    ),
    "sds_messages": _Comparison(
        fact="carrier",
        found=("message_hash", "channel_id", "message_id", "sender_id", "kind", "lamport", "sighting > 1"),
        told=("message_hash", "channel_id", "message_id", "sender_id", "kind", "lamport", "is_retransmission"),
        where="status = 'ok'",
    ),
    "quarantine": _Comparison(
        fact="carrier", **_same("message_hash", "timestamp", "status", "payload_bytes"), where="status <> 'ok'"
    ),
    "delivered": _Comparison(
        fact="delivered",
        found=("channel_id", "sender_id", "message_id", "segments", "recovered", "size_bytes", "timestamp"),
        told=("channel_id", "sender_id", "message_id", "segments", "is_recovered", "size_bytes", "timestamp"),
    ),
    "incomplete": _Comparison(
        fact="incomplete",
        found=("channel_id", "sender_id", "segment_hash", "held", "data_segments"),
        told=("channel_id", "sender_id", "segment_hash", "held", "segments"),
    ),
    "missing_messages": _Comparison(
        fact="missing",
        **_same("channel_id", "message_id", "sender_id", "retrieval_hint", "cited_by", "first_cited", "last_cited"),
        where="NOT is_rebuilt",
    ),
    "sds_ordered": _Comparison(
        fact="carrier",
        found=("channel_id", "message_id", "lamport", "cast(position AS bigint)"),
        told=(
            "channel_id",
            "message_id",
            "lamport",
            "cast(row_number() OVER (PARTITION BY channel_id ORDER BY lamport, message_id) AS bigint)",
        ),
        where="kind = 'content' AND NOT is_retransmission",
    ),
    "acknowledgements": _Comparison(
        fact="acknowledged",
        found=("channel_id", "message_id", "sender_id", "acknowledged_by", "at"),
        told=("channel_id", "message_id", "sender_id", "acknowledged_by", "timestamp"),
    ),
}

CHECKED_TABLES: Final = tuple(_COMPARISONS)
"""The tables that facts tell of."""


def differences(facts: DataFrame, table: Callable[[str], DataFrame]) -> list[Difference]:
    """Return how the tables of a run differ from the facts (`fairway.pipeline.generator.truth`); nothing if not.

    ``table`` gives the table of a name. Starts a job for each of `CHECKED_TABLES`.
    """
    compared = (_difference(name, facts, table(name)) for name in CHECKED_TABLES)
    return [difference for difference in compared if difference.excess or difference.lacking]


def _difference(name: str, facts: DataFrame, table: DataFrame) -> Difference:
    comparison = _COMPARISONS[name]
    columns = [f"column_{number}" for number in range(len(comparison.found))]
    told = facts.where(F.col("fact") == comparison.fact).where(comparison.where)
    found_rows = table.select(*map(F.expr, comparison.found)).toDF(*columns).withColumn("balance", F.lit(1))
    told_rows = told.select(*map(F.expr, comparison.told)).toDF(*columns).withColumn("balance", F.lit(-1))
    row = (
        found_rows.unionByName(told_rows)
        .groupBy(*columns)
        .agg(F.sum("balance").alias("balance"))
        .agg(
            F.coalesce(F.sum(F.greatest("balance", F.lit(0))), F.lit(0)).alias("excess"),
            F.coalesce(F.sum(F.greatest(-F.col("balance"), F.lit(0))), F.lit(0)).alias("lacking"),
        )
        .collect()[0]
    )
    return Difference(table=name, excess=row.excess, lacking=row.lacking)
