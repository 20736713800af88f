"""A small table needs few tasks, also in a session with Spark's defaults."""

from __future__ import annotations

import uuid

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.pipeline import stages
from fairway.pipeline.exchange import spread_numbers
from fairway.pipeline.run import run
from fairway.pipeline.sources.open_source import open_source

pytestmark = pytest.mark.spark


@pytest.fixture
def stock(spark):
    """A session with Spark's default settings for shuffles."""
    session = spark.newSession()
    for name in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions.initialPartitionNum"):
        session.conf.unset(name)
    assert session.conf.get("spark.sql.shuffle.partitions") == "200"
    return session


@pytest.fixture
def uri(log, write_archive):
    team = log("team")
    for number in range(100):
        team.message("alice", b"%d" % number)
    return f"sqlite:{write_archive([waku for _, waku in team.sent])}"


def tasks_of(spark, work):
    """Return how many tasks a function starts."""
    context, group = spark.sparkContext, uuid.uuid4().hex
    context.setJobGroup(group, "")
    work()
    tracker = context.statusTracker()
    stages_run = {stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds}
    return sum(tracker.getStageInfo(stage).numCompletedTasks for stage in stages_run)


def test_stages_over_a_small_archive_need_few_tasks(stock, uri):
    messages = stages.sds_messages(stages.decoded(stages.deduplicated(open_source(stock, uri))))
    ordered = stages.sds_ordered(messages, stages.missing_messages(messages))
    found = []
    assert tasks_of(stock, lambda: found.extend(ordered.collect())) < 20
    assert sorted(row.position for row in found) == list(range(1, 101))


def test_a_run_over_a_small_archive_needs_few_tasks(stock, uri, tmp_path):
    assert tasks_of(stock, lambda: run([uri], tmp_path / "run", blooms=True, spark=stock)) < 40


@pytest.mark.parametrize("count", [1, 7, 200])
def test_spark_puts_each_spread_number_into_a_partition_of_its_own(spark, count):
    numbers = spark.createDataFrame([(number,) for number in spread_numbers(count)], "number int")
    placed = numbers.repartition(count, "number").select(F.spark_partition_id().alias("place")).collect()
    assert sorted(row.place for row in placed) == list(range(count))
