"""One description of a table serves Spark and Arrow."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from fairway.pipeline.schema import arrow_schema, columns_of, types_of

DDL = "id binary, cited array<struct<id: string, hint: binary>>, names array<string>, n bigint, i int, is_it boolean"


def test_commas_inside_of_a_type_part_no_columns():
    assert columns_of(DDL) == ("id", "cited", "names", "n", "i", "is_it")
    assert types_of(DDL)["cited"] == "array<struct<id: string, hint: binary>>"


def test_arrow_has_the_same_types():
    entry = pa.struct([("id", pa.string()), ("hint", pa.binary())])
    kinds = [pa.binary(), pa.list_(entry), pa.list_(pa.string()), pa.int64(), pa.int32(), pa.bool_()]
    assert arrow_schema(DDL) == pa.schema(list(zip(columns_of(DDL), kinds, strict=True)))


def test_a_type_that_no_table_has_is_refused():
    with pytest.raises(KeyError, match="varchar"):
        arrow_schema("name varchar")
