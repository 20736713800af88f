"""The figures of a report that need a pass over a large table: axes, shares, and what stores lacked; without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.pipeline.report import stores
from fairway.pipeline.report.html import figures
from fairway.pipeline.report.html.words import percent
from fairway.pipeline.report.ranking import least_share
from fairway.pipeline.run.folder import MANIFEST
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import SCHEMA_VERSION, table_named

BEGIN = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
EARLIEST, LATEST = -(2**63), 2**63 - 1


def tables_of(path: Path, **tables: list[dict]) -> RunTables:
    """A run folder with some tables."""
    for name, rows in tables.items():
        place = path / "tables" / name
        place.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema=arrow_schema(table_named(name).schema)), place / "part-0.parquet"
        )
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "state": "complete",
        "sources": [],
        "options": {"format": "parquet"},
        "tables": {name: {"rows": len(rows)} for name, rows in tables.items()},
    }
    (path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return RunTables(path)


def test_topics_beyond_the_bound_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "MOST_TOPICS", 2)
    rows = [{"timestamp": 1, "content_topic": f"/{row}", "sources": ["a"]} for row in (0, 1, 2, 3, 0)]
    tables = tables_of(tmp_path, waku_messages=rows)
    found = stores.store_lacks(tables, ["b"], 9, 0, lambda timestamps: timestamps)
    assert [(told.content_topic, told.lacked, told.of) for told in found.topics] == [
        (stores.OTHER_TOPICS, 2, 2),
        ("/0", 2, 2),
        ("/1", 1, 1),
    ]


def test_the_axis_of_a_sample_holds_all_messages_and_no_time_without_any(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "SAMPLE", 200)
    rows = [{"timestamp": BEGIN + place * SECOND, "payload_bytes": 1} for place in range(1_000)]
    tables = tables_of(tmp_path, waku_messages=rows, sds_messages=rows)
    told = figures.traffic(tables)
    assert (told.outside, sum(told.messages)) == (0, 1_000)
    assert told.axis.begin_ns == BEGIN
    assert 0 < told.axis.end_ns - rows[-1]["timestamp"] <= 60_000


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
def test_the_ends_of_time_stay_off_the_axis(tmp_path, timestamp):
    times = [BEGIN + place * SECOND for place in range(100)]
    rows = [{"timestamp": time, "payload_bytes": 1} for time in [*times, timestamp]]
    told = figures.traffic(tables_of(tmp_path, waku_messages=rows, sds_messages=rows))
    assert (told.outside, sum(told.messages)) == (1, 100)
    assert told.axis.end_ns < BEGIN + 200 * SECOND


@pytest.mark.parametrize("timestamps", [[EARLIEST], [LATEST], [EARLIEST, LATEST]])
def test_an_archive_of_nothing_but_the_ends_of_time_is_drawn(tmp_path, timestamps):
    rows = [{"timestamp": timestamp, "payload_bytes": 1} for timestamp in timestamps]
    told = figures.traffic(tables_of(tmp_path, waku_messages=rows, sds_messages=rows))
    assert (told.outside, sum(told.messages), sum(told.bytes)) == (0, len(rows), len(rows))


@pytest.mark.parametrize(
    ("part", "whole", "told"),
    [(0, 9, "0.0%"), (1, 9_999, "under 0.1%"), (9_998, 9_999, "over 99.9%"), (9, 9, "100.0%"), (18, 9, "200.0%")],
)
def test_nearly_none_is_not_none_and_nearly_all_is_not_all(part, whole, told):
    assert percent(part, whole) == told


def test_few_messages_weigh_less_than_many():
    assert least_share(0, 0) == least_share(0, 10) == 0
    assert least_share(1, 1) < least_share(90, 100) < 0.9
