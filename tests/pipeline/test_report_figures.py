"""The figures of a report that need a pass over a large table: axes, shares, and what stores lacked; without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import numpy as np

from fairway.pipeline.report import figures, outages, stores
from fairway.pipeline.report.headline import least_share
from fairway.pipeline.report.words import duration, percent
from fairway.pipeline.run.reading import RunTables
from run_tables import write_run

BEGIN = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
EARLIEST, LATEST = -(2**63), 2**63 - 1


def tables_of(path: Path, **tables: list[dict]) -> RunTables:
    """A run folder with some rows."""
    return RunTables(write_run(path / "run", tables))


def test_topics_beyond_the_bound_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "MOST_TOPICS", 2)
    rows = [{"timestamp_ns": 1, "content_topic": f"/{row}", "sources": ["a"]} for row in (0, 1, 2, 3, 0)]
    tables = tables_of(tmp_path, waku_messages=rows)
    found = stores.store_lacks(tables, ["b"], 9, None)
    assert [(told.content_topic, told.lacked, told.of) for told in found.topics] == [
        (stores.OTHER_TOPICS, 2, 2),
        ("/0", 2, 2),
        ("/1", 1, 1),
    ]


def test_the_axis_of_a_sample_holds_all_messages_and_no_time_without_any(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "SAMPLE", 200)
    rows = [{"timestamp_ns": BEGIN + place * SECOND, "payload_bytes": 1} for place in range(1_000)]
    tables = tables_of(tmp_path, waku_messages=rows, sds_messages=rows)
    told = figures.traffic(tables, figures.time_axis(tables))
    assert (told.outside, sum(told.messages)) == (0, 1_000)
    assert told.axis.begin_ns == BEGIN
    assert 0 < told.axis.end_ns - rows[-1]["timestamp_ns"] <= 60_000


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
def test_the_ends_of_time_stay_off_the_axis(tmp_path, timestamp):
    times = [BEGIN + place * SECOND for place in range(100)]
    rows = [{"timestamp_ns": time, "payload_bytes": 1} for time in [*times, timestamp]]
    tables = tables_of(tmp_path, waku_messages=rows, sds_messages=rows)
    told = figures.traffic(tables, figures.time_axis(tables))
    assert (told.outside, sum(told.messages)) == (1, 100)
    assert told.axis.end_ns < BEGIN + 200 * SECOND


@pytest.mark.parametrize("timestamps", [[EARLIEST], [LATEST], [EARLIEST, LATEST]])
def test_an_archive_of_nothing_but_the_ends_of_time_is_drawn(tmp_path, timestamps):
    rows = [{"timestamp_ns": timestamp, "payload_bytes": 1} for timestamp in timestamps]
    tables = tables_of(tmp_path, waku_messages=rows, sds_messages=rows)
    told = figures.traffic(tables, figures.time_axis(tables))
    assert (told.outside, sum(told.messages), sum(told.bytes)) == (0, len(rows), len(rows))


@pytest.mark.parametrize(
    ("part", "whole", "told"),
    [(0, 9, "0.0%"), (1, 9_999, "under 0.1%"), (9_998, 9_999, "over 99.9%"), (9, 9, "100.0%"), (18, 9, "200.0%")],
)
def test_nearly_none_is_not_none_and_nearly_all_is_not_all(part, whole, told):
    assert percent(part, whole) == told


def scanned(lacked, of):
    return outages.outages("b", np.array(lacked), np.array(of), BEGIN, SECOND)


def test_an_outage_is_found_by_its_share_however_many_messages_there_were():
    for most in (1, 3, 1_000):
        of = [most] * 200
        lacked = [0] * 100 + [most] * 20 + [0] * 80
        (found,) = scanned(lacked, of)
        assert (found.begin_ns, found.end_ns) == (BEGIN + 100 * SECOND, BEGIN + 120 * SECOND)
        assert (found.lacked, found.of, found.is_total) == (20 * most, 20 * most, True)


def test_a_store_that_lacks_its_share_of_everything_has_no_outage():
    rng = np.random.default_rng(1)
    of = rng.integers(0, 20, 2_000)
    for share in (0.0, 0.1, 0.5, 0.9, 0.95, 1.0):
        assert scanned(rng.binomial(of, share), of) == ()


def test_a_store_that_never_had_anything_was_not_out_for_a_time():
    assert scanned([3] * 100, [3] * 100) == ()


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_an_outage_is_found_among_ordinary_losses_and_in_spite_of_messages_that_came_again(share):
    rng = np.random.default_rng(2)
    of = rng.integers(0, 6, 3_000)
    lacked = rng.binomial(of, share)
    lacked[1_000:1_100] = rng.binomial(of[1_000:1_100], 0.98)
    (found,) = scanned(lacked, of)
    first, last = ((moment - BEGIN) // SECOND for moment in (found.begin_ns, found.end_ns))
    assert abs(first - 1_000) <= 5
    assert abs(last - 1_100) <= 5


def test_two_outages_are_two_and_a_late_beginning_is_one():
    of = [4] * 300
    lacked = [4] * 100 + [0] * 50 + [4] * 10 + [0] * 60 + [4] * 30 + [0] * 50
    assert [(told.begin_ns - BEGIN) // SECOND for told in scanned(lacked, of)] == [0, 150, 220]


def test_stretches_without_messages_neither_make_nor_end_an_outage():
    assert scanned([0] * 50, [0] * 50) == ()
    (found,) = scanned([0] * 40 + [3, 0, 0, 3, 0, 3] + [0] * 40, [3] * 40 + [3, 0, 0, 3, 0, 3] + [3] * 40)
    assert ((found.begin_ns - BEGIN) // SECOND, (found.end_ns - BEGIN) // SECOND) == (40, 46)


def test_few_messages_weigh_less_than_many():
    assert least_share(0, 0) == least_share(0, 10) == 0
    assert least_share(1, 1) < least_share(90, 100) < 0.9


@pytest.mark.parametrize(
    ("milliseconds", "told"),
    [
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_940, "59.9 s"),
        (90_000, "1.5 min"),
        (86_400_000, "1 d"),
        (999_499 * 86_400, "999 d"),
        (1_000_000 * 86_400, "1,000 d"),
        (2**63 // 10**6, "106,752 d"),
    ],
)
def test_a_time_reads_in_the_unit_that_suits_it_however_long(milliseconds, told):
    assert duration(milliseconds) == told
