"""Sorted tables: their files in order have their rows in order, however the keys are spread."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.run import layout as run_layout

SCHEMA = "channel_id string, position int, lamport bigint, content_bytes int"
Spread = Callable[[DataFrame, DataFrame], DataFrame]
COUNTS = {"a": 5_000, "bbb": 30, "c0": 1, "c1": 700, "zz": 400, "\u00fc": 40, "\U0001f600": 40}


@pytest.fixture
def messages(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> DataFrame:
    """Give channels of very different sizes, of which one alone would fill most files."""
    monkeypatch.setattr(run_layout, "FILE_ROWS", 700)
    monkeypatch.setattr(run_layout, "FILE_BYTES", 7_000)
    rows = [
        (channel, number + 1, None if rng.random() < 0.02 else rng.randrange(10**6), 10)
        for channel, count in COUNTS.items()
        for number in range(count)
    ]
    rng.shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


def _files(table: DataFrame, path: Path, second: str) -> list[list[tuple[bytes, int]]]:
    table.sortWithinPartitions("channel_id", second).write.parquet(str(path))
    return [
        [(row["channel_id"].encode(), -1 if row[second] is None else row[second]) for row in rows]
        for file in sorted(path.glob("*.parquet"))
        if (rows := pq.read_table(file).to_pylist())
    ]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("spread", "second"), [(run_layout.by_lamport, "lamport"), (run_layout.by_position, "position")]
)
def test_files_in_order_have_all_rows_in_order_and_none_has_much_more_than_its_share(
    messages: DataFrame, tmp_path: Path, spread: Spread, second: str
) -> None:
    files = _files(spread(messages, messages), tmp_path / "table", second)
    rows = [row for file in files for row in file]
    assert rows == sorted(rows)
    assert len(rows) == sum(COUNTS.values())
    assert len(files) == 9
    assert max(map(len, files)) < 2 * len(rows) / len(files)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("spread", [run_layout.by_lamport, run_layout.by_position])
def test_an_empty_table_is_one_file_at_most(
    spark: SparkSession, tmp_path: Path, spread: Callable[[DataFrame, DataFrame], DataFrame]
) -> None:
    nothing = spark.createDataFrame([], SCHEMA)
    assert _files(spread(nothing, nothing), tmp_path / "table", "position") == []
