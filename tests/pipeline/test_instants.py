"""Times are in tables twice: as integers and as instants, which say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.pipeline.instants import frame_with_instants, with_instants
from fairway.pipeline.schema import INSTANT, arrow_schema, exact_ddl, exact_schema
from fairway.pipeline.tables import TABLES

TIMES = "name string, at timestamp, at_ns bigint, begun timestamp, begun_ms bigint"
LEAST, GREATEST = -(2**63), 2**63 - 1
EDGES = [None, 0, -1, 1, 999, -999, 1_000, -1_000, -1_001, 1_760_000_000_123_456_789, LEAST, GREATEST]
LAST_MS = GREATEST // 1_000

times = st.none() | st.sampled_from([each for each in EDGES if each is not None]) | st.integers(LEAST, GREATEST)


def rows_of(pairs):
    return pa.table(
        {
            "name": pa.array([str(number) for number in range(len(pairs))], pa.string()),
            "at_ns": pa.array([at for at, _ in pairs], pa.int64()),
            "begun_ms": pa.array([begun for _, begun in pairs], pa.int64()),
        }
    )


def microseconds(column):
    return column.cast(pa.int64()).to_pylist()


@given(pairs=st.lists(st.tuples(times, times), max_size=20), chunks=st.integers(1, 3))
def test_an_instant_is_its_exact_time_in_microseconds_rounded_down(pairs, chunks):
    exact = rows_of(pairs)
    size = max(1, -(-len(pairs) // chunks))
    in_chunks = pa.concat_tables([exact.slice(start, size) for start in range(0, max(1, len(pairs)), size)])
    table = with_instants(in_chunks, arrow_schema(TIMES))
    assert table.schema == arrow_schema(TIMES)
    assert table.select(exact.column_names).equals(exact)
    assert microseconds(table["at"]) == [None if at is None else at // 1_000 for at, _ in pairs]
    assert microseconds(table["begun"]) == [
        None if begun is None or not -LAST_MS - 1 <= begun <= LAST_MS else begun * 1_000 for _, begun in pairs
    ]


def test_an_instant_that_is_there_stays():
    given_instant = pa.array([5], INSTANT)
    table = rows_of([(1_000_000, 1)]).append_column("at", given_instant)
    assert with_instants(table, arrow_schema(TIMES))["at"].to_pylist() == given_instant.to_pylist()


def test_an_instant_without_an_exact_time_is_an_error():
    with pytest.raises(KeyError, match="begun"):
        with_instants(rows_of([(1, 1)]).drop_columns(["begun_ms"]), arrow_schema(TIMES))


def test_a_schema_without_instants_has_all_other_columns():
    assert exact_schema(TIMES) == arrow_schema("name string, at_ns bigint, begun_ms bigint")
    assert exact_ddl(TIMES) == "name string, at_ns bigint, begun_ms bigint"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_each_time_of_a_table_is_an_instant_and_an_integer(table):
    schema = arrow_schema(table.schema)
    instants = {field.name for field in schema if field.type == INSTANT}
    exact = {name for name in schema.names if name.endswith("_ns") or name == "epoch_start_ms"}
    assert {name.rpartition("_")[0] for name in exact} == instants
    assert all(schema.field(name).type == pa.int64() for name in exact)


def test_spark_makes_the_instants_that_arrow_makes(spark):
    pairs = [(at, at) for at in EDGES] + [(None, LAST_MS), (None, -LAST_MS), (None, LAST_MS + 1)]
    exact = rows_of(pairs)
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in exact.to_pylist()], "name string, at_ns bigint, begun_ms bigint"
    )
    found = frame_with_instants(frame, TIMES)
    assert found.schema.simpleString() == spark.createDataFrame([], TIMES).schema.simpleString()
    told = {
        row.name: (row.at, row.begun)
        for row in found.selectExpr("name", "unix_micros(at) AS at", "unix_micros(begun) AS begun").collect()
    }
    table = with_instants(exact, arrow_schema(TIMES))
    by_arrow = zip(microseconds(table["at"]), microseconds(table["begun"]), strict=True)
    assert told == {str(number): pair for number, pair in enumerate(by_arrow)}


def test_what_pandas_and_python_get_is_in_utc():
    (row,) = with_instants(rows_of([(1_500, -1)]), arrow_schema(TIMES)).to_pylist()
    assert row["at"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=1)
    assert row["begun"] == datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)
