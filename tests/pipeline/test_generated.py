"""Generated archives: the same plan gives the same rows, and what is said of them is what is in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.errors import ConfigurationError, DecodeError, SegmentError
from fairway.options import Profile
from fairway.testing.archives import GeneratorPlan, facts_mapper, rows_mapper
from fairway.testing.archives.plan import UNITS_PER_BLOCK, layout_of
from fairway.wire.sds import Kind
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS

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


@pytest.fixture(scope="module")
def facts():
    """Return the facts by their kind, each without the columns that it has not."""
    found = defaultdict(list)
    for row in made(facts_mapper, PLAN):
        found[row.pop("fact")].append({name: value for name, value in row.items() if value is not None})
    return found


@pytest.fixture(scope="module")
def messages(rows):
    """Return the SDS messages of the rows, decoded one by one: each once, with its first timestamp."""
    first = {}
    for row in sorted(rows, key=lambda row: (row["timestamp_ns"], row["message_hash"])):
        opened = opened_by(row)
        if opened is not None:
            first.setdefault((opened.channel_id, opened.message_id), (opened, row["timestamp_ns"]))
    return first


def opened_by(row):
    profile = Profile.LOGOS if row["meta"] == Profile.LOGOS.marker else Profile.WAKU
    try:
        message = profile.codec.decode(row["payload"])
        if not message.message_id or (message.lamport_timestamp or 0) >= 2**63:
            return None
        segment_of(message, profile)
    except (DecodeError, SegmentError):
        return None
    return message


def segment_of(message, profile):
    wire = LIP_243 if profile is Profile.LOGOS else WAKU_SEGMENTS
    return wire.decode(message.content) if message.content and wire.is_segment(message.content) else None


def profile_of(channel_id):
    return PLAN.profile_of(int(channel_id.removeprefix("channel-")))


def test_it_has_everything_in_it(rows, facts, messages):
    assert 3_500 < len(messages) < 5_000
    assert Counter(fact["status"] for fact in facts["carrier"]).keys() == {
        "ok",
        "not-sds",
        "no-id",
        "lamport-range",
        "bad-segment",
    }
    assert {row["source"] for row in rows} == {"store-0", "store-1", "store-2"}
    largest = Counter(m.channel_id for m, _ in messages.values())["channel-000000"]
    assert 0.7 < largest / len(messages) < 0.8
    assert {profile_of(m.channel_id) for m, _ in messages.values()} == set(Profile)
    assert min(len(facts[fact]) for fact in ("delivered", "incomplete", "missing", "unnoticed", "acknowledged")) > 0
    assert any(fact["is_recovered"] for fact in facts["delivered"])
    assert any(fact["is_rebuilt"] for fact in facts["missing"])
    assert any("segments" not in fact for fact in facts["incomplete"])
    lamports = Counter((m.channel_id, m.lamport_timestamp) for m, _ in messages.values() if m.kind is Kind.CONTENT)
    assert max(lamports.values()) > 1
    assert layout_of(PLAN).block_count > PLAN.channels


def test_the_same_plan_gives_the_same_rows_however_they_are_shared_out(rows):
    def key(row):
        return (row["message_hash"], row["source"])

    assert sorted(made(rows_mapper, PLAN, stripes=5), key=key) == sorted(rows, key=key)
    assert made(rows_mapper, replace(PLAN, seed=4))[:10] != rows[:10]


def test_messages_are_cited_across_the_borders_of_blocks():
    plan = GeneratorPlan(messages=2 * UNITS_PER_BLOCK, channels=1, history=2, loss=0, corruption=0, sync_share=0)
    found = {}
    for row in sorted(made(rows_mapper, plan), key=lambda row: row["timestamp_ns"]):
        opened = opened_by(row)
        found.setdefault(opened.message_id, opened)
    first, *others = found.values()
    assert first.causal_history == ()
    assert [len(message.causal_history) for message in others][1:] == [2] * (len(others) - 1)
    assert {entry.message_id for message in others for entry in message.causal_history} <= found.keys()
    unhinted = [e for message in others for e in message.causal_history if e.retrieval_hint is None]
    assert 0 < len(unhinted) <= 10


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
