"""The tables of a run: their registry, the files that tasks write, and the commits of files as Delta tables.

- `registry`: name, columns, key and meaning of each table
- `files`: Parquet files that tasks write and later jobs read
- `delta`: the commits that make files a version of a Delta table
"""

from __future__ import annotations

from fairway.pipeline.tables.registry import SCHEMA_VERSION, TABLES, Table, table_named

__all__ = ["SCHEMA_VERSION", "TABLES", "Table", "table_named"]
