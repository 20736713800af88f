"""The report of a finished run for programs: what the terminal shows, as JSON knows it."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from fairway.pipeline.report.figures import LATENCIES_MS, latencies
from fairway.pipeline.report.findings import bandwidth_of, busiest_epochs, report_of
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import balance_json


def report_json(tables: RunTables, limit: int = 20) -> dict[str, Any]:
    """Return the report with lists of at most ``limit`` rows; hashes are in hex, times in ns unless a name says ms."""
    report = report_of(tables, limit)
    told = {
        **asdict(report),
        "bandwidth": [
            {"part": part, "bytes": size, "messages": messages} for part, size, messages in bandwidth_of(tables)
        ],
        "latency": _latency(tables),
        "waiting": [asdict(told) for told in report.waiting[:limit]],
        "busiest_epochs": busiest_epochs(tables, limit),
        "balance": balance_json(tables.balance),
    }
    return {name: _plain(value) for name, value in told.items()}


def _latency(tables: RunTables) -> dict[str, Any]:
    told = latencies(tables)
    within = {str(limit_ms): told.share(limit_ms) for limit_ms in LATENCIES_MS}
    return {"content": told.total, "acknowledged": told.acknowledged, "within_ms": within}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
