"""Parses the schema of a table in Spark's DDL: its names and types, and the same schema in Arrow.

It supports the types of fairway's tables: those of `_ARROW`, arrays of them, and structs.

A table has each time twice (`fairway.pipeline.instants`): as an instant and as an exact integer.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

INSTANT: Final = pa.timestamp("us", "UTC")
"""Spark's TimestampType."""

_ARROW: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": INSTANT,
}


def columns_of(ddl: str) -> tuple[str, ...]:
    """Return the names of the columns, in their order."""
    return tuple(types_of(ddl))


def types_of(ddl: str) -> dict[str, str]:
    """Return the DDL type of each column, by name."""
    return dict(_named(part, " ") for part in _top_level(ddl))


def arrow_schema(ddl: str) -> pa.Schema:
    """Return a table's schema in Arrow; raise `KeyError` for an unsupported type."""
    return pa.schema([(name, _arrow_type(kind)) for name, kind in types_of(ddl).items()])


def exact_schema(ddl: str) -> pa.Schema:
    """Return a table's schema in Arrow without its instants, for computations."""
    return pa.schema([field for field in arrow_schema(ddl) if field.type != INSTANT])


def exact_ddl(ddl: str) -> str:
    """Return a table's schema in Spark's DDL without its instants."""
    return ", ".join(f"{name} {kind}" for name, kind in types_of(ddl).items() if kind != "timestamp")


def _arrow_type(kind: str) -> pa.DataType:
    if kind.startswith("array<"):
        return pa.list_(_arrow_type(_inside(kind)))
    if kind.startswith("struct<"):
        fields = (_named(part, ":") for part in _top_level(_inside(kind)))
        return pa.struct([(name, _arrow_type(inner)) for name, inner in fields])
    return _ARROW[kind]


def _inside(kind: str) -> str:
    return kind.partition("<")[2].removesuffix(">")


def _named(part: str, separator: str) -> tuple[str, str]:
    name, _, kind = part.partition(separator)
    return name.strip(), kind.strip()


def _top_level(ddl: str) -> list[str]:
    """Split DDL at the commas outside of types."""
    parts, depth = [""], 0
    for character in ddl:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
