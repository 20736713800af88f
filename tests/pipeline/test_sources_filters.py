"""What of a WHERE clause an archive is asked for, and what is left for Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from fairway.pipeline.sources.filters import push_filters
from fairway.pipeline.sources.waku_messages import Selection
from fairway.storage.archive import MAX_TIMESTAMP_NS, MIN_TIMESTAMP_NS

TIME, TOPIC, SHARD = ("timestamp_ns",), ("content_topic",), ("pubsub_topic",)
EVERYTHING = Selection()


@pytest.mark.parametrize(
    ("condition", "start_ns", "end_ns"),
    [
        (EqualTo(TIME, 5), 5, 5),
        (GreaterThan(TIME, 5), 6, MAX_TIMESTAMP_NS),
        (GreaterThanOrEqual(TIME, 5), 5, MAX_TIMESTAMP_NS),
        (LessThan(TIME, 5), MIN_TIMESTAMP_NS, 4),
        (LessThanOrEqual(TIME, 5), MIN_TIMESTAMP_NS, 5),
    ],
)
def test_times_become_a_range(condition, start_ns, end_ns):
    assert push_filters(EVERYTHING, [condition]) == (replace(EVERYTHING, start_ns=start_ns, end_ns=end_ns), [])


def test_all_conditions_hold_together_and_with_the_options():
    given = Selection(start_ns=10, end_ns=20, content_topics=("/a", "/b"))
    conditions = [GreaterThan(TIME, 3), LessThan(TIME, 15), In(TOPIC, ("/b", "/c")), EqualTo(SHARD, "/s")]
    narrowed, left = push_filters(given, conditions)
    assert narrowed == Selection(start_ns=10, end_ns=14, content_topics=("/b",), pubsub_topic="/s")
    assert left == []


@pytest.mark.parametrize(
    "conditions",
    [
        [EqualTo(TOPIC, "/a"), EqualTo(TOPIC, "/b")],
        [EqualTo(SHARD, "/a"), EqualTo(SHARD, "/b")],
        [In(TOPIC, ())],
        [GreaterThan(TIME, MAX_TIMESTAMP_NS)],
        [LessThan(TIME, MIN_TIMESTAMP_NS)],
    ],
)
def test_what_nothing_can_meet_is_an_empty_range_and_not_everything(conditions):
    narrowed, left = push_filters(EVERYTHING, conditions)
    assert left == []
    assert narrowed.part.through < narrowed.part.after


@pytest.mark.parametrize(
    "condition",
    [
        StringStartsWith(TOPIC, "/a"),
        Not(EqualTo(TOPIC, "/a")),
        EqualTo(("payload",), b"x"),
        EqualTo(TIME, None),
        EqualTo(TOPIC, "/\N{REPLACEMENT CHARACTER}"),
        EqualTo(SHARD, "/\N{REPLACEMENT CHARACTER}"),
        In(TOPIC, ("/a", "/\N{REPLACEMENT CHARACTER}")),
        In(TOPIC, ("/a", None)),
        IsNotNull(("meta",)),
    ],
)
def test_what_an_archive_cannot_be_asked_is_left(condition):
    assert push_filters(EVERYTHING, [condition]) == (EVERYTHING, [condition])


def test_columns_that_are_never_null_need_no_check():
    assert push_filters(EVERYTHING, [IsNotNull(TIME), IsNotNull(TOPIC)]) == (EVERYTHING, [])
