"""What a stream says of its progress, by what Spark tells of its queries; without a JVM."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES
from fairway.pipeline.streaming.batch_table import BatchTable
from fairway.pipeline.streaming.channel_core import EMITTED
from fairway.pipeline.streaming.figures import StreamFigures
from fairway.pipeline.streaming.progress import Phase

SECOND_NS = 1_000_000_000


@pytest.fixture
def figures(tmp_path):
    """The counts of a folder in which no micro-batch has appeared."""
    return StreamFigures(
        SimpleNamespace(
            recorded=BatchTable(tmp_path / "r", WAKU_MESSAGES, tmp_path),
            emitted=BatchTable(tmp_path / "e", EMITTED, tmp_path),
        )
    )


def told(batch: int, *rows: int, **more: object) -> SimpleNamespace:
    sources = [
        {
            "numInputRows": count,
            "endOffset": json.dumps({"timestamp": number * SECOND_NS, "hash": ""}),
            "latestOffset": {"timestamp": 5 * SECOND_NS, "hash": ""},
        }
        for number, count in enumerate(rows, 2)
    ]
    progress = {"runId": "one", "batchId": batch, "sources": sources, "durationMs": {"triggerExecution": 2_000}, **more}
    return SimpleNamespace(json=json.dumps(progress))


@pytest.mark.parametrize("more", [{"numInputRows": 30}, {}], ids=["classic", "connect"])
def test_rows_of_all_sources_are_counted_and_each_micro_batch_is_told_once(figures, more):
    query = SimpleNamespace(recentProgress=[told(0, 10, 20, **more)])
    (news,) = figures.news(query, is_record=True)
    assert (news.phase, news.batch, news.rows, news.seconds, news.behind_s) == (Phase.RECORDED, 0, 30, 2.0, 3.0)
    assert list(figures.news(query, is_record=True)) == []


@pytest.mark.parametrize(
    ("seconds", "mode", "rate"),
    [(2.0, None, 15.0), (2.0, "whole", 15.0), (2.0, "grown", None), (2.0, "unchanged", None), (0.01, "whole", None)],
)
def test_only_what_read_all_its_rows_and_took_its_time_has_a_rate(figures, seconds, mode, rate):
    told = figures.told(phase=Phase.REFRESHED, batch=1, rows=30, seconds=seconds, mode=mode)
    assert (told.rows_per_s, told.as_json()["rows_per_s"]) == (rate, rate)


def test_a_look_that_found_nothing_is_no_news(figures):
    query = SimpleNamespace(recentProgress=[told(0, 0, 0), told(1, 7)])
    assert [news.batch for news in figures.news(query, is_record=False)] == [1]
