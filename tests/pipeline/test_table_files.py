"""Files of a run's tables: any schema that a table has comes back as it was, and only named files stay."""

from __future__ import annotations

import json
import os
import pickle
from datetime import UTC

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.pipeline.schema import INSTANT
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables import files as table_files
from fairway.pipeline.tables.files import BY_TIME, TableFiles, schema_of

VALUES = {
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    INSTANT: st.datetimes(timezones=st.just(UTC)),
}


def values(kind):
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    return st.none() | VALUES[kind]


def tables_of(name):
    schema = schema_of(name)
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    return st.lists(row, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, schema))


def told(note):
    return json.loads(note.column("blob")[0].as_py())


@pytest.mark.parametrize("name", [*(table.name for table in TABLES), "bloom_evidence"])
def test_a_table_comes_back_as_it_was(name, tmp_path_factory):
    files = TableFiles(root=str(tmp_path_factory.mktemp("run")))

    @settings(max_examples=15)
    @given(tables_of(name))
    def comes_back(table):
        noted = told(files.write(name, 3, table))
        assert (noted["table"], noted["rows"]) == (name, table.num_rows)
        read = pa.concat_tables([table.schema.empty_table(), *files.read(name, [noted["file"]])])
        expected = table.to_pylist()
        if name in BY_TIME:
            expected.sort(key=lambda row: row[BY_TIME[name]] or 0)
        assert read.to_pylist() == expected
        assert read.schema == table.schema

    comes_back()


def stores(count):
    numbers = list(range(count))
    return pa.table(
        {
            "missing": numbers,
            "known": numbers,
            "source": [f"store {number}" for number in numbers],
            "messages": numbers,
            "damaged": numbers,
        }
    )


def test_columns_are_put_in_their_order_and_chosen_again(tmp_path):
    files = pickle.loads(pickle.dumps(TableFiles(root=str(tmp_path))))
    names = [
        told(files.write("store_completeness", number, stores(2), part))["file"]
        for number, part in [(1, 1), (1, 0), (0, 0)]
    ]
    assert [name[:14] for name in sorted(names)] == ["part-00000-000", "part-00001-000", "part-00001-001"]
    assert pq.read_schema(tmp_path / "tables" / "store_completeness" / names[0]).names == list(
        schema_of("store_completeness").names
    )
    (table, _) = files.read("store_completeness", names[:2], ["known", "source"])
    assert table.to_pylist() == [{"known": 0, "source": "store 0"}, {"known": 1, "source": "store 1"}]


def test_a_large_table_has_row_groups_that_a_reader_can_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "GROUP_BYTES", 1_000)
    files = TableFiles(root=str(tmp_path))
    file = told(files.write("store_completeness", 0, stores(400)))["file"]
    parts = [part.num_rows for part in files.read("store_completeness", [file])]
    assert sum(parts) == 400
    assert max(parts) < 100


def compressed_columns(files, name, table):
    """Write a table, and return its columns in Parquet by whether they are compressed."""
    file = told(files.write(name, 0, table))["file"]
    group = pq.ParquetFile(f"{files.folder_of(name)}/{file}").metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.compression == "ZSTD" for column in columns}


@pytest.mark.parametrize("name", [*(table.name for table in TABLES), "bloom_evidence"])
def test_every_column_is_compressed_but_binary_that_does_not_get_smaller(name, tmp_path):
    files, schema = TableFiles(root=str(tmp_path)), schema_of(name)
    binary = {field.name for field in schema if pa.types.is_binary(field.type)}
    for value, left in ((lambda _: b"said in clear " * 20, set()), (os.urandom, binary)):
        rows = [{column: value(500) for column in binary} for _ in range(20)]
        found = compressed_columns(files, name, pa.Table.from_pylist(rows, schema))
        assert {column for column, is_compressed in found.items() if not is_compressed} == left


def test_row_groups_are_chosen_by_what_their_footers_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "GROUP_ROWS", 2)
    files = TableFiles(root=str(tmp_path))
    latencies = schema_of("ack_latency")
    first_by = ["alice", None, None, None, "bob"]
    rows = [dict.fromkeys(latencies.names) | {"sent_at_ns": at, "first_by": name} for at, name in enumerate(first_by)]
    name = told(files.write("ack_latency", 0, pa.Table.from_pylist(rows, latencies)))["file"]

    def read(wanted):
        groups = files.read("ack_latency", [name], ["sent_at_ns"], wanted=wanted)
        return [group.column("sent_at_ns").to_pylist() for group in groups]

    assert read(None) == [[0, 1], [2, 3], [4]]
    assert read(lambda group: group.nulls("first_by") < group.rows) == [[0, 1], [4]]
    assert read(lambda group: group.nulls("first_by") > 0) == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="no such column"):
        read(lambda group: group.nulls("no such column") > 0)
