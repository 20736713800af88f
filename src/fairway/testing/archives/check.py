"""`differences`: compares the tables of a run over a generated archive with the facts about it, row by row on Spark.

Only counts are collected, so the archive may have any size. A row of a table counts plus one, an expected row minus
one; a row whose sum is not 0 is a difference. Some tables are compared with the facts themselves; the expected tables
of figures are computed from the facts (`fairway.testing.archives.figures`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.options import RateLimitConfig
from fairway.testing.archives.figures import FIGURES
from fairway.testing.archives.figures import told as figures_told


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A table that differs from the facts."""

    table: str
    excess: int
    """Rows that are not expected."""
    lacking: int
    """Expected rows that are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    fact: str
    found: tuple[str, ...]
    """Expressions over the table."""
    told: tuple[str, ...]
    """Expressions over the facts, one for each of ``found``."""
    where: str = "true"
    """Condition for the facts."""


def _same(*names: str) -> dict[str, tuple[str, ...]]:
    return {"found": names, "told": names}


_SDS_COLUMNS: Final = (
    "message_hash",
    "channel_id",
    "message_id",
    "sender_id",
    "timestamp_ns",
    "kind",
    "lamport",
    "payload_bytes",
    "content_bytes",
    "history_bytes",
    "bloom_bytes",
)

_REPEATS_COLUMNS: Final = ("message_hash", "channel_id", "message_id", "sender_id", "timestamp_ns", "payload_bytes")

_COMPARISONS: Final[Mapping[str, _Comparison]] = {
    "waku_messages": _Comparison(
        fact="carrier",
        found=("message_hash", "timestamp_ns", "array_sort(sources)", "copies"),
        told=("message_hash", "timestamp_ns", "array_sort(sources)", "cast(rows AS bigint)"),
    ),
    "sds_messages": _Comparison(
        fact="carrier",
        **_same(*_SDS_COLUMNS),
        where="status = 'ok' AND NOT is_retransmission",
    ),
    "repeats": _Comparison(
        fact="carrier",
        found=(*_REPEATS_COLUMNS, "reason"),
        told=(*_REPEATS_COLUMNS, "'retransmission'"),
        where="status = 'ok' AND is_retransmission",
    ),
    "quarantine": _Comparison(
        fact="carrier", **_same("message_hash", "timestamp_ns", "status", "payload_bytes"), where="status <> 'ok'"
    ),
    "delivered": _Comparison(
        fact="delivered",
        found=("channel_id", "sender_id", "message_id", "segments", "recovered", "size_bytes", "timestamp_ns"),
        told=("channel_id", "sender_id", "message_id", "segments", "is_recovered", "size_bytes", "timestamp_ns"),
    ),
    "incomplete": _Comparison(
        fact="incomplete",
        found=("channel_id", "sender_id", "segment_hash", "held", "data_segments"),
        told=("channel_id", "sender_id", "segment_hash", "held", "segments"),
    ),
    "missing_messages": _Comparison(
        fact="missing",
        **_same(
            "channel_id", "message_id", "sender_id", "retrieval_hint", "cited_by", "first_cited_ns", "last_cited_ns"
        ),
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
        found=("channel_id", "message_id", "sender_id", "acknowledged_by", "how", "acknowledged_at_ns"),
        told=("channel_id", "message_id", "sender_id", "acknowledged_by", "'cited'", "timestamp_ns"),
    ),
}

CHECKED_TABLES: Final = (*_COMPARISONS, *FIGURES)
"""All tables of a run except ``computed_segments``, for which there are no facts."""


def differences(
    facts: DataFrame,
    table: Callable[[str], DataFrame],
    *,
    names: Collection[str] = CHECKED_TABLES,
    epoch_ms: int = RateLimitConfig().epoch_ms,
    rate_limit: int | None = None,
) -> list[Difference]:
    """Return the differences of a run's tables from the facts (`fairway.testing.archives.truth`).

    ``table`` returns the table of a name. ``names`` are the tables to compare; the result is in the order of
    `CHECKED_TABLES`. ``epoch_ms`` and ``rate_limit`` are those of the run. It starts one or two jobs for each table.
    """
    compared = []
    for name, comparison in _COMPARISONS.items():
        if name in names:
            told = facts.where(F.col("fact") == comparison.fact).where(comparison.where)
            found = table(name).select(*map(F.expr, comparison.found))
            compared.append(_difference(name, found, told.select(*map(F.expr, comparison.told))))
    for name in FIGURES:
        if name in names:
            told = figures_told(name, facts, epoch_ms=epoch_ms, limit=rate_limit)
            compared.append(_difference(name, table(name).select(*told.columns), told))
    return [difference for difference in compared if difference.excess or difference.lacking]


def _difference(name: str, found: DataFrame, told: DataFrame) -> Difference:
    columns = [f"column_{number}" for number in range(len(told.columns))]
    row = (
        found.toDF(*columns)
        .withColumn("balance", F.lit(1))
        .unionByName(told.toDF(*columns).withColumn("balance", F.lit(-1)))
        .groupBy(*columns)
        .agg(F.sum("balance").alias("balance"))
        .agg(
            F.coalesce(F.sum(F.greatest("balance", F.lit(0))), F.lit(0)).alias("excess"),
            F.coalesce(F.sum(F.greatest(-F.col("balance"), F.lit(0))), F.lit(0)).alias("lacking"),
        )
        .collect()[0]
    )
    return Difference(table=name, excess=row.excess, lacking=row.lacking)
