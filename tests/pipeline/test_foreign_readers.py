"""The tables of a run are Delta tables: other tools read them, and find the rows that fairway finds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset as ds
from deltalake import DeltaTable

from fairway.pipeline.location import Location
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables.delta import compact
from grown_runs import PLAN, empty_run, generated, grown, write

WAIT_S = 300
JAR = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The newest that Maven has. It is for Spark 4.2."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The tables of a run that grew, so that some of their files were replaced."""
    folder = tmp_path_factory.mktemp("foreign")
    rows = generated(PLAN)
    empty_run(folder / "run", folder / "source")
    for number, part in enumerate((rows.slice(0, 300), rows.slice(300))):
        write(folder / "source", f"part-{number}.parquet", part)
        grown(folder / "run", [f"parquet:{folder / 'source'}"])
    tables = RunTables(folder / "run")
    assert any(tables.manifest["tables"][table.name]["version"] > 1 for table in TABLES)
    return SimpleNamespace(folder=folder / "run", tables=tables)


def place(made, name: str) -> str:
    return str(made.folder / "tables" / name)


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_pandas_and_arrow_read_each_table(made, name):
    table = DeltaTable(place(made, name))
    assert len(table.to_pandas()) == made.tables.rows(name) == len(made.tables.all(name))
    assert table.to_pyarrow_dataset().count_rows() == made.tables.rows(name)


def test_conditions_that_the_log_decides_leave_out_no_row(made):
    # Statistics in the log say which files need not be read.
    table = DeltaTable(place(made, "sds_messages")).to_pyarrow_dataset()
    rows = made.tables.all("sds_messages")
    for column in ("channel_id", "sender_id", "kind", "lamport", "timestamp_ns", "timestamp"):
        values = {row[column] for row in rows}
        for value in sorted(values - {None})[:: max(1, len(values) // 20)]:
            found = table.to_table(columns=[column], filter=ds.field(column) == value).num_rows
            assert found == sum(row[column] == value for row in rows), (column, value)
    missing = table.to_table(filter=ds.field("segment_hash").is_null()).num_rows
    assert missing == sum(row["segment_hash"] is None for row in rows)


def test_polars_reads_a_table(made):
    polars = pytest.importorskip("polars")
    sent = polars.scan_delta(place(made, "sds_messages")).group_by("sender_id").len().collect()
    assert sent["len"].sum() == made.tables.rows("sds_messages")
    latest = polars.scan_delta(place(made, "delivered")).filter(polars.col("size_bytes") > 100).collect()
    assert len(latest) == sum(row["size_bytes"] > 100 for row in made.tables.all("delivered", ["size_bytes"]))


def test_duckdb_reads_a_table(made):
    duckdb = pytest.importorskip("duckdb")
    delivered = DeltaTable(place(made, "delivered")).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by name
    (told,) = duckdb.sql("SELECT count(*), sum(size_bytes), count(DISTINCT channel_id) FROM delivered").fetchall()
    rows = made.tables.all("delivered", ["size_bytes", "channel_id"])
    assert told == (len(rows), sum(row["size_bytes"] for row in rows), len({row["channel_id"] for row in rows}))


@pytest.mark.spark
def test_spark_without_a_jar_reads_the_files_that_the_log_names(made, spark):
    for name in ("waku_messages", "acknowledgements", "sds_ordered"):
        files = DeltaTable(place(made, name)).file_uris()
        assert spark.read.parquet(*files).count() == made.tables.rows(name)
        assert made.tables.dataframe(spark, name).count() == made.tables.rows(name)


def test_a_version_stays_readable_when_the_table_is_compacted(made, tmp_path):
    run = Path(shutil.copytree(made.folder, tmp_path / "run"))
    before = RunTables(run)
    expected = sorted(map(repr, before.all("acknowledgements")))
    compact(Location.of(run / "tables" / "acknowledgements", "the table"))
    assert len(DeltaTable(run / "tables" / "acknowledgements").file_uris()) == 1
    assert sorted(map(repr, RunTables(run).all("acknowledgements"))) == expected
    assert DeltaTable(run / "tables" / "acknowledgements").to_pyarrow_table().num_rows == len(expected)


WITH_JAR = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.jars.packages", sys.argv[1])
         .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
         .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate())
print("rows", spark.read.format("delta").load(sys.argv[2]).count())
"""


@pytest.mark.full
@pytest.mark.spark
def test_spark_with_a_jar_of_delta_reads_a_table_or_says_that_the_jar_is_for_another_version(made):
    words = [sys.executable, "-c", WITH_JAR, JAR, place(made, "delivered")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    if "unresolved dependency" in done.stderr or "download failed" in done.stderr:
        pytest.skip("Maven's packages are not reached")
    if done.returncode:
        # No jar of Delta is made for the pinned Spark: its methods do not fit.
        assert any(sign in done.stderr for sign in ("NoSuchMethodError", "NoClassDefFoundError", "AbstractMethodError"))
        pytest.skip("no jar of Delta is made for this version of Spark")
    assert f"rows {made.tables.rows('delivered')}" in done.stdout
