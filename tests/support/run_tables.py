"""Writes the folder of a finished run with given rows, without Spark, as the input of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.pipeline.location import Location
from fairway.pipeline.run.folder import RUN
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import SCHEMA_VERSION, TABLES
from fairway.pipeline.tables.delta import TableFile, commit
from fairway.pipeline.tables.files import GROUP_ROWS
from fairway.pipeline.tables.statistics import statistics_of

_BALANCE = {
    "duplicates": 8,
    "quarantined": 1,
    "retransmissions": 1,
    "other_shards": 0,
    "sync": 10,
    "delivered": 86,
    "incomplete": 3,
}


def write_run(path: Path, tables: Mapping[str, list[dict[str, Any]] | pa.Table], **changes: Any) -> Path:
    """Write a run folder with the rows that are given; ``changes`` replace parts of its ``run.json``.

    A table of Arrow may leave out columns.
    """
    told = {}
    for table in TABLES:
        place = Location.of(path / "tables" / table.name, "the run folder")
        place.local.mkdir(parents=True)
        schema = arrow_schema(table.schema)
        rows = _whole(tables.get(table.name, []), schema)
        pq.write_table(rows, place.local / "part-0.parquet", row_group_size=GROUP_ROWS)
        size = (place.local / "part-0.parquet").stat().st_size
        stats = statistics_of(pq.read_metadata(place.local / "part-0.parquet"))
        version = commit(place, schema, [TableFile("part-0.parquet", rows.num_rows, size, stats)])
        told[table.name] = {"rows": rows.num_rows, "files": 1, "bytes": size, "seconds": 0.0, "version": version}
    described = {
        "schema_version": SCHEMA_VERSION,
        "state": "complete",
        "sources": [{"label": "a", "uri": "sqlite:a.db"}],
        "options": {"epoch_ms": 600_000, "rate_limit": 100},
        "balance": {"rows_in": sum(_BALANCE.values()), **_BALANCE, "adds_up": True},
        "tables": told,
    }
    (path / RUN).write_text(json.dumps(described | changes), encoding="utf-8")
    return path


def _whole(given: list[dict[str, Any]] | pa.Table, schema: pa.Schema) -> pa.Table:
    if isinstance(given, list):
        return pa.Table.from_pylist(given, schema=schema)
    columns = [
        given[field.name].cast(field.type) if field.name in given.column_names else pa.nulls(len(given), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
