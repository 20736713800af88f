"""The report of a finished run for programs: the content of the terminal report, as values for JSON."""

from __future__ import annotations

import re
from dataclasses import asdict
from enum import Enum
from typing import Any

from fairway.pipeline.report.figures import LATENCIES_MS, Latencies
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.tables import ReportTable, data_tables
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.summary import balance_json


def report_json(tables: RunTables, limit: int = 20) -> dict[str, Any]:
    """Return the report, with the first ``limit`` rows of its tables; hashes are in hex, times in ms."""
    found = Findings(tables, limit)
    told = {
        **asdict(found.report),
        "tables": {name: _rows(table) for name, table in data_tables(found).items()},
        "bandwidth": [{"part": part, "bytes": size, "messages": messages} for part, size, messages in found.bandwidth],
        "latency": _latency(found.latencies),
        "balance": balance_json(tables.balance),
    }
    return {name: _plain(value) for name, value in told.items()}


def _rows(table: ReportTable) -> dict[str, Any]:
    names = [re.sub("_ns$", "_ms", column.field) for column in table.columns]
    return {"total": table.total, "rows": [dict(zip(names, row, strict=True)) for row in table.rows]}


def _latency(told: Latencies) -> dict[str, Any]:
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
