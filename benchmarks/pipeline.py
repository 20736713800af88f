"""What the pipeline on Spark costs beside one plain Python process and DuckDB: ``python -m benchmarks pipeline``.

Rows of the table from one run of `benchmarks.pipeline_scale`, which has all stages, other sizes and other shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from benchmarks.figures import Figure
from benchmarks.session import Benchmark, Row, Session

_MESSAGES = 100_000
QUICK_MESSAGES = 10_000
"""What is measured with ``--quick``."""
_PLAIN = "plain Python"
_SQL_PARTS = ("waku_messages", "missing_messages", "sds_ordered", "acknowledgements")

_Sides = dict[str, dict[str, Any]]


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    rows: tuple[tuple[str, str, str, Callable[[_Sides], tuple[float, float | None]]], ...] = (
        ("whole run, start of Spark included", "CPU-s", _PLAIN, _whole_run),
        ("peak memory", "MiB", _PLAIN, _peak),
        ("decoding, cold", "CPU-s", _PLAIN, partial(_decoding, stage="decoding, cold")),
        ("decoding, warm", "CPU-s", _PLAIN, partial(_decoding, stage="decoding, warm")),
        ("what is SQL", "CPU-s", "DuckDB", _sql),
    )
    return [
        Benchmark(
            name=f"pipeline: {what}",
            measure=partial(_measure, name=f"pipeline: {what}", unit=unit, peer_name=peer_name, figures=figures),
        )
        for what, unit, peer_name, figures in rows
    ]


def _measure(
    session: Session,
    *,
    name: str,
    unit: str,
    peer_name: str,
    figures: Callable[[_Sides], tuple[float, float | None]],
) -> Row:
    messages = QUICK_MESSAGES if session.quick else _MESSAGES
    ours, peer = figures(_sides(messages))
    remark = f"{messages:,} messages; less is better" if peer is not None else "it is not installed"
    return Row(figure=Figure(name=name, ours=ours, peer=peer, peer_name=peer_name, unit=unit), remark=remark)


@lru_cache
def _sides(messages: int) -> _Sides:
    """Measure once what all rows are taken from."""
    from benchmarks.pipeline_scale import SHAPES, measure  # noqa: PLC0415 - PySpark is an extra

    plan = replace(SHAPES["skewed"], messages=messages, channels=max(1, messages // 1_000))
    result = measure(plan, ("spark", "plain", "duckdb", "decoding", "plain-decoding"))
    if result["disagreements"]:
        raise SystemExit("; ".join(result["disagreements"]))
    sides: _Sides = result["sides"]
    return sides


def _whole_run(sides: _Sides) -> tuple[float, float | None]:
    ours, plain = (sides[side]["java_cpu_s"] + sides[side]["python_cpu_s"] for side in ("spark", "plain"))
    return ours, plain


def _peak(sides: _Sides) -> tuple[float, float | None]:
    return sides["spark"]["peak_mib"], sides["plain"]["peak_mib"]


def _decoding(sides: _Sides, *, stage: str) -> tuple[float, float | None]:
    return _cpu_s(sides["decoding"], stage), _cpu_s(sides["plain-decoding"], stage)


def _sql(sides: _Sides) -> tuple[float, float | None]:
    ours = sum(_cpu_s(sides["spark"], stage) for stage in _SQL_PARTS)
    return ours, sum(_cpu_s(sides["duckdb"], stage) for stage in _SQL_PARTS) if "duckdb" in sides else None


def _cpu_s(told: dict[str, Any], name: str) -> float:
    return sum(float(stage["java_cpu_s"] + stage["python_cpu_s"]) for stage in told["stages"] if stage["stage"] == name)
