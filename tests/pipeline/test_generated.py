"""Generated archives: the same plan gives the same rows, and what is said of them is what is in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.errors import ConfigurationError
from fairway.testing.archives import GeneratorPlan, rows_mapper
from fairway.testing.archives.plan import layout_of

pytestmark = pytest.mark.xdist_group("generated")  # what its tests share is made once

PLAN = GeneratorPlan(
    messages=5_000,
    seed=3,
    channels=20,
    skew=1.0,
    largest_share=0.75,
    senders=3,
    logos_share=0.34,
    history=3,
    content_bytes=40,
    long_share=0.1,
    segment_size_bytes=256,
    parity_rate=0.5,
    sync_share=0.1,
    ephemeral_share=0.02,
    loss=0.2,
    corruption=0.02,
    stores=3,
    store_loss=0.2,
    duplication=0.05,
)


def made(mapper, plan, stripes=1):
    """Return what a mapper makes of a plan in so many stripes."""
    numbers = pa.RecordBatch.from_pydict({"id": list(range(stripes))})
    return [row for batch in mapper(plan, stripes)(iter([numbers])) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def rows():
    return made(rows_mapper, PLAN)


def test_the_same_plan_gives_the_same_rows_however_they_are_shared_out(rows):
    def key(row):
        return (row["message_hash"], row["source"])

    assert sorted(made(rows_mapper, PLAN, stripes=5), key=key) == sorted(rows, key=key)
    assert made(rows_mapper, replace(PLAN, seed=4))[:10] != rows[:10]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"messages": 0}, "messages must be 1 to"),
        ({"loss": 1.5}, "loss must be a share, 0 to 1, not 1.5"),
        ({"segment_size_bytes": 1_000}, "segment_size_bytes must be 256 to 102,400, a multiple of 64"),
        ({"content_bytes": 500}, "content_bytes must be 1 to"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes, text):
    with pytest.raises(ConfigurationError, match=text):
        GeneratorPlan(**changes)


def test_a_plan_survives_json():
    assert GeneratorPlan.from_json(PLAN.as_json()) == PLAN


@pytest.mark.parametrize("skew", [0, 1, 3])
def test_channels_have_the_sizes_that_the_plan_says(skew):
    plan = GeneratorPlan(messages=50_000, channels=7, skew=skew)
    layout = layout_of(plan)
    sizes = layout.sizes
    assert sizes == sorted(sizes, reverse=True)
    assert 0.95 < sum(sizes) / plan.messages <= 1.05
    assert sizes[0] / sizes[-1] == pytest.approx(7**skew, rel=0.05)
    blocks = [layout.block(number) for number in range(layout.block_count)]
    for channel, size in enumerate(sizes):
        borders = [(block.first, block.end) for block in blocks if block.channel == channel]
        assert [first for first, _ in borders] == [0, *(end for _, end in borders[:-1])]
        assert borders[-1][1] == size
