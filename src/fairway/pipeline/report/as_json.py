"""The report of a finished run for programs: what the terminal shows, as JSON knows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fairway.pipeline.report.findings import bandwidth_of, busiest_epochs, report_of
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import balance_json


def report_json(tables: RunTables, limit: int = 20) -> dict[str, Any]:
    """Return the report with lists of at most ``limit`` rows; hashes are in hex, times in ns unless a name says ms."""
    told = {
        **asdict(report_of(tables, limit)),
        "bandwidth": [
            {"part": part, "bytes": size, "messages": messages} for part, size, messages in bandwidth_of(tables)
        ],
        "stores": tables.all("store_completeness"),
        "busiest_epochs": busiest_epochs(tables, limit),
        "balance": balance_json(tables.balance),
    }
    return {name: _plain(value) for name, value in told.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
