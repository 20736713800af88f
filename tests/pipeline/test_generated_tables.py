"""The tables of the pipeline over a generated archive are its truth, every row of them; in a real Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.pipeline import stages
from fairway.pipeline.sources import WAKU_MESSAGES
from fairway.pipeline.stages.deduplicated import DEDUPLICATED
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.stages.sds_messages import WITH_CONTENT
from fairway.pipeline.tables import TABLES
from fairway.testing.archives import GeneratorPlan, generate, truth, write_generated, written_sources
from fairway.testing.archives.check import CHECKED_TABLES, differences

pytestmark = [pytest.mark.spark, pytest.mark.full]

PLAN = GeneratorPlan(
    messages=5_000,
    seed=5,
    channels=20,
    largest_share=0.6,
    logos_share=0.2,
    history=3,
    content_bytes=40,
    long_share=0.05,
    segment_size_bytes=256,
    parity_rate=0.5,
    ephemeral_share=0.02,
    loss=0.15,
    corruption=0.02,
    stores=3,
    store_loss=0.2,
    duplication=0.05,
)
RATE_LIMIT = 7

# What the check calls a table, where the fixture calls it something else.
NAMES = {"sds_ordered": "ordered", "missing_messages": "gone"}
# No stage has its name, and the facts tell nothing of it: what it holds is checked by what follows from it.
UNTOLD = "computed_segments"
STAGED = [table for table in TABLES if table.name != UNTOLD]


@pytest.fixture(scope="module")
def archive(spark):
    rows = generate(spark, PLAN).persist()
    yield rows
    rows.unpersist()


@pytest.fixture(scope="module")
def tables(archive):
    waku_messages = stages.deduplicated(archive).persist()
    decoded = stages.decoded(waku_messages).persist()
    sds_messages = stages.sds_messages(decoded).persist()
    repeats = stages.repeats(decoded).persist()
    config = replace(ARCHIVE_SEGMENTATION, parity_rate=PLAN.parity_rate)
    reassembled = stages.reassembled(sds_messages, config=config).persist()
    gone = stages.missing_messages(sds_messages, reassembled).persist()
    ordered = stages.sds_ordered(sds_messages, gone, reassembled).persist()
    delivered = stages.delivered(sds_messages, reassembled).persist()
    incomplete = stages.incomplete(reassembled)
    acknowledgements = stages.acknowledgements(sds_messages).persist()
    ack_latency = stages.ack_latency(sds_messages, acknowledgements).persist()
    sender_stats = stages.sender_stats(sds_messages, repeats, ack_latency, delivered, incomplete, gone).persist()
    first = (waku_messages, decoded, sds_messages, repeats, reassembled, gone, ordered)
    kept = (*first, delivered, acknowledgements, ack_latency, sender_stats)
    yield {
        "waku_messages": waku_messages,
        "quarantine": stages.quarantine(decoded),
        "sds_messages": sds_messages,
        "repeats": repeats,
        "ordered": ordered,
        "gone": gone,
        "delivered": delivered,
        "incomplete": incomplete,
        "acknowledgements": acknowledgements,
        "ack_latency": ack_latency,
        "sender_stats": sender_stats,
        "channel_stats": stages.channel_stats(sender_stats, ack_latency),
        "bandwidth": stages.bandwidth(sds_messages, repeats),
        "rate_utilisation": stages.rate_utilisation(sds_messages, repeats, limit=RATE_LIMIT),
        "store_completeness": stages.store_completeness(waku_messages),
    }
    for table in kept:
        table.unpersist()


def test_a_stage_has_the_schema_of_the_table_of_its_name(spark, tables):
    declared = {table.name: table.schema for table in STAGED}
    declared |= {"waku_messages": DEDUPLICATED, "sds_messages": WITH_CONTENT}
    for name, schema in declared.items():
        found = tables[NAMES.get(name, name)].schema.simpleString()
        assert found == spark.createDataFrame([], schema).schema.simpleString(), name
    assert tables["waku_messages"].where("timestamp_ns div 1000 <> unix_micros(timestamp)").isEmpty()


def rows_of(table, *columns):
    return Counter(map(tuple, table.select(*columns).collect()))


def test_an_archive_has_the_columns_of_every_source_and_is_spread_over_tasks(spark):
    assert generate(spark, PLAN).limit(0).schema == spark.createDataFrame([], WAKU_MESSAGES).schema
    assert generate(spark, replace(PLAN, messages=100_000)).rdd.getNumPartitions() == 4


@pytest.fixture(scope="module")
def told_facts(spark):
    found = truth(spark, PLAN).persist()
    yield found
    found.unpersist()


def found_differences(told_facts, tables, names=CHECKED_TABLES):
    """Return what the check of a run finds (`benchmarks/pipeline_truth.py` uses it for a million messages)."""
    return differences(told_facts, lambda name: tables[NAMES.get(name, name)], names=names, rate_limit=RATE_LIMIT)


def test_the_check_for_archives_of_any_size_knows_all_tables_and_finds_nothing(told_facts, tables):
    assert sorted(CHECKED_TABLES) == sorted(table.name for table in STAGED)
    assert found_differences(told_facts, tables) == []


def test_a_written_archive_is_the_same(spark, archive, tmp_path):
    plan = replace(PLAN, messages=300, channels=3, stores=2)
    write_generated(spark, plan, tmp_path / "made")
    written = spark.read.parquet(str(tmp_path / "made" / "waku_messages"))
    assert rows_of(written, F.hex("message_hash"), "source") == rows_of(
        generate(spark, plan), F.hex("message_hash"), "source"
    )
    for uri in written_sources(plan, tmp_path / "made"):
        name, _, place = uri.partition("=parquet:")
        assert spark.read.parquet(place).count() == written.where(F.col("source") == name).count() > 0
    facts = spark.read.parquet(str(tmp_path / "made" / "truth"))
    assert rows_of(facts, "fact", "channel_id", "message_id") == rows_of(
        truth(spark, plan), "fact", "channel_id", "message_id"
    )
    assert GeneratorPlan.from_json((tmp_path / "made" / "plan.json").read_text()) == plan
    with pytest.raises(ConfigurationError, match="exists; give a new name"):
        write_generated(spark, plan, tmp_path / "made")
