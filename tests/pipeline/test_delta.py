"""Commits of Delta tables: repeated, at the same time, with statistics; and how delta-rs is told where tables are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StorageError
from fairway.pipeline.location import Location
from fairway.pipeline.tables import delta
from fairway.pipeline.tables.delta import TableFile, append, commit, files_of, opened, storage_of, vacuum
from fairway.pipeline.tables.statistics import statistics_of

START = datetime(2000, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("is_one", pa.bool_()),
        ("digest", pa.binary()),
        ("names", pa.list_(pa.string())),
    ]
)


def file(place: Location, name: str, rows: list[dict]) -> TableFile:
    place.make_folder()
    path = place.local / name
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=3)
    return TableFile(name, len(rows), path.stat().st_size, statistics_of(pq.read_metadata(path)))


@pytest.fixture
def place(tmp_path):
    return Location.of(tmp_path / "table", "the table")


def names(place, version=None):
    return [each.name for each in files_of(opened(place, version))]


def test_a_commit_states_the_files_of_a_table_and_can_be_repeated(place):
    one, two, three = (file(place, f"{number}.parquet", [{"number": number}]) for number in range(3))
    first = commit(place, SCHEMA, [one, two])
    assert commit(place, SCHEMA, [two, one]) == first
    second = commit(place, SCHEMA, [two, three])
    assert (names(place, first), names(place, second)) == (["0.parquet", "1.parquet"], ["1.parquet", "2.parquet"])
    assert commit(place, SCHEMA, []) > second
    assert DeltaTable(place.path).to_pyarrow_table().num_rows == 0
    assert DeltaTable(place.path, version=second).to_pyarrow_table()["number"].to_pylist() in ([1, 2], [2, 1])


def test_other_columns_make_another_table_and_the_versions_before_keep_theirs(place):
    first = commit(place, SCHEMA, [file(place, "0.parquet", [{"number": 1}])])
    pq.write_table(pa.table({"count": [5]}), place.local / "1.parquet")
    size = (place.local / "1.parquet").stat().st_size
    commit(place, pa.schema([("count", pa.int64())]), [TableFile("1.parquet", 1, size)])
    assert DeltaTable(place.path).to_pyarrow_table().to_pydict() == {"count": [5]}
    assert DeltaTable(place.path, version=first).to_pyarrow_table()["number"].to_pylist() == [1]


def test_of_two_that_commit_at_once_one_is_told(place, monkeypatch):
    commit(place, SCHEMA, [file(place, "0.parquet", [{"number": 0}])])
    mine, other = (file(place, f"{number}.parquet", [{"number": number}]) for number in (1, 2))
    real = delta.opened

    def meanwhile(where, version=None):
        table = real(where, version)
        monkeypatch.setattr(delta, "opened", real)
        commit(place, SCHEMA, [other])
        return table

    monkeypatch.setattr(delta, "opened", meanwhile)
    with pytest.raises(StorageError, match="give the command again"):
        commit(place, SCHEMA, [mine])
    assert names(place) == ["2.parquet"]


def test_a_transaction_is_appended_once(place):
    assert append(place, SCHEMA, [file(place, "0.parquet", [{"number": 0}])], ("batches", 0))
    assert append(place, SCHEMA, [], ("batches", 1))
    assert not append(place, SCHEMA, [file(place, "1.parquet", [{"number": 1}])], ("batches", 1))
    assert append(place, SCHEMA, [file(place, "2.parquet", [{"number": 2}])], ("batches", 2))
    assert append(place, SCHEMA, [file(place, "3.parquet", [{"number": 3}])], ("others", 1))
    assert names(place) == ["0.parquet", "2.parquet", "3.parquet"]


def test_what_no_kept_version_has_is_deleted(place):
    files = [file(place, f"{number}.parquet", [{"number": number}]) for number in range(4)]
    versions = [commit(place, SCHEMA, [each]) for each in files[:3]]
    vacuum(place, versions[1:2], 0, uncommitted=False)
    assert sorted(path.name for path in place.local.glob("*.parquet")) == ["1.parquet", "2.parquet", "3.parquet"]
    vacuum(place, versions[1:2], 0)
    assert sorted(path.name for path in place.local.glob("*.parquet")) == ["1.parquet", "2.parquet"]


def test_a_log_that_cannot_be_read_is_told_in_a_sentence(place):
    version = commit(place, SCHEMA, [])
    with pytest.raises(StorageError, match=r"table cannot be read \(.*\): give the command again"):
        opened(place, version + 5)
    (place.local / "_delta_log" / f"{version:020}.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        opened(place)


VALUES = st.fixed_dictionaries(
    {
        "name": st.none() | st.text(max_size=60) | st.sampled_from(["x" * 32, "x" * 33, "\U0010ffff" * 40]),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "at": st.none() | st.integers(-(10**15), 10**15).map(lambda us: START + timedelta(microseconds=us)),
        "share": st.none() | st.floats(allow_nan=False),
        "is_one": st.none() | st.booleans(),
    }
)


@examples(0.5)
@given(parts=st.lists(st.lists(VALUES, min_size=1, max_size=8), min_size=1, max_size=3))
def test_no_condition_on_any_column_leaves_out_a_row(tmp_path_factory, parts):
    place = Location.of(tmp_path_factory.mktemp("table"), "the table")
    commit(place, SCHEMA, [file(place, f"{number}.parquet", rows) for number, rows in enumerate(parts)])
    table = DeltaTable(place.path).to_pyarrow_dataset()
    rows = [row for part in parts for row in part]
    for column in ("name", "number", "at", "share", "is_one"):
        assert table.to_table(filter=ds.field(column).is_null()).num_rows == sum(row[column] is None for row in rows)
        for value in {row[column] for row in rows} - {None}:
            found = table.to_table(filter=ds.field(column) == pa.scalar(value, SCHEMA.field(column).type)).num_rows
            assert found == sum(row[column] == value for row in rows), (column, value)


def test_text_that_bloats_a_log_has_no_statistics_or_short_ones(place):
    short = file(place, "0.parquet", [{"name": "x" * 3_000}])
    assert len(short.stats["maxValues"]["name"]) < 40
    assert file(place, "1.parquet", [{"name": "x" * 100_000}]).stats == {}


@pytest.mark.parametrize(
    ("uri", "expected", "options"),
    [
        ("s3://bucket/run?region=us-east-2", "s3://bucket/run", {"aws_region": "us-east-2"}),
        (
            "s3a://KEY:SE%2FCRET@bucket/run?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-west-1",
            "s3://bucket/run",
            {
                "aws_region": "eu-west-1",
                "aws_endpoint": "http://127.0.0.1:9000",
                "aws_allow_http": "true",
                "aws_access_key_id": "KEY",
                "aws_secret_access_key": "SE/CRET",
            },
        ),
        ("gs://anonymous@bucket/run", "gs://bucket/run", {"google_skip_signature": "true"}),
        (
            "abfs://account:a2V5@127.0.0.1:10000/container/run?enable_tls=false",
            "az://container/run",
            {
                "azure_storage_account_name": "account",
                "azure_storage_account_key": "a2V5",
                "azure_endpoint": "http://127.0.0.1:10000/account",
                "azure_allow_http": "true",
            },
        ),
        (
            "abfss://container:a2V5@account.dfs.core.windows.net/run",
            "az://container/run",
            {"azure_storage_account_name": "account", "azure_storage_account_key": "a2V5"},
        ),
    ],
)
def test_delta_rs_is_told_where_a_table_is_as_arrow_is(monkeypatch, uri, expected, options):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    place = Location.of(uri, "--out") / "tables/delivered"
    assert storage_of(place) == (f"{expected}/tables/delivered", options)
    assert "SE" not in repr(place)
