"""Ranges of the sorted tables: every row has one, in the order of its keys, and they are of about one size."""

from __future__ import annotations

import json
from bisect import bisect_right

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fairway.pipeline import ranges
from fairway.pipeline.ranges import FIRST_CLOCK, NO_CLOCK, bounds_of, range_of, sample_of

channels = st.sampled_from(["", "a", "b", "bb", "é", "\U0001f600"])
clocks = st.none() | st.integers(0, 5) | st.integers(0, 2**63 - 1)
ids = st.sampled_from(["", "a", "b", "é"])
places = st.tuples(channels, st.just(FIRST_CLOCK) | st.integers(-1, 6), ids)


@given(st.lists(places, unique=True, max_size=8).map(sorted), st.lists(st.tuples(channels, clocks, ids), max_size=20))
def test_the_range_of_a_row_is_the_number_of_bounds_up_to_it(bounds, rows):
    columns = [pa.chunked_array([[row[side] for row in rows]], kind) for side, kind in enumerate(["str", "i8", "str"])]
    found = range_of(bounds, *columns)
    assert found.tolist() == [
        bisect_right(bounds, (name, NO_CLOCK if clock is None else clock, own)) for name, clock, own in rows
    ]


def messages(*groups, step=1):
    """Return ``sds_messages`` of (channel, first clock, how many, bytes of content), clocks a step apart."""
    rows = [
        (channel, first + number * step, f"{number:05}", size, "content")
        for channel, first, count, size in groups
        for number in range(count)
    ]
    names = ["channel_id", "lamport", "message_id", "content_bytes", "kind"]
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def sizes_of(bounds, table):
    numbers = range_of(bounds, table["channel_id"], table["lamport"], table["message_id"])
    return np.bincount(numbers, table["content_bytes"].to_numpy(), minlength=len(bounds) + 1)


def test_ranges_are_of_one_size_and_only_large_channels_are_cut(monkeypatch):
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1_000_000)
    table = messages(("huge", 0, 4_000, 1_000), *((f"small-{number}", 5, 100, 1_000) for number in range(40)))
    parts = [table.take(np.random.default_rng(number).permutation(len(table))[number::4]) for number in range(4)]
    samples = json.loads(json.dumps([sample_of(part) for part in parts]))
    assert all(len(sample["places"]) <= 64 for sample in samples)
    bounds = [tuple(bound) for bound in bounds_of(samples, 2)]
    assert bounds == sorted(set(bounds))
    assert {channel for channel, clock, _ in bounds if clock != FIRST_CLOCK} == {"huge"}
    sizes = sizes_of(bounds, table)
    assert 8 <= len(sizes) <= 14
    assert sizes.max() < 2_000_000
    assert sizes.sum() == 8_000_000


def test_a_few_messages_are_spread_over_as_many_ranges_as_are_wanted():
    table = messages(("one", 0, 1_000, 100))
    assert 3 <= len(bounds_of([sample_of(table)], 4)) <= 5
    assert bounds_of([sample_of(table)], 1) == []
    assert bounds_of([], 7) == bounds_of([sample_of(table.slice(0, 0))], 7) == []


def test_messages_of_one_clock_are_cut_by_their_ids():
    table = messages(("same", 7, 500, 1_000), step=0)
    sizes = sizes_of(bounds_of([sample_of(table)], 10), table)
    assert 8 <= len(sizes) <= 12
    assert sizes.max() <= 80_000


def test_what_a_note_says_of_channels_is_short_however_long_their_ids_are():
    table = messages(*((f"{number:04}{'c' * 20_000}", 7, 5, 1_000) for number in range(100)))
    sample = sample_of(table)
    assert len(json.dumps(sample)) < 100_000
    assert max(sizes_of(bounds_of([sample], 10), table)) <= 120_000


def test_what_a_note_says_of_an_id_is_short_however_long_the_id_is():
    table = messages(("same", 7, 500, 1_000), step=0)
    long = pa.array([f"{own}{'x' * 5_000}" for own in table["message_id"].to_pylist()])
    table = table.set_column(2, "message_id", long)
    sample = sample_of(table)
    assert len(json.dumps(sample)) < 100_000
    assert max(sizes_of(bounds_of([sample], 10), table)) <= 80_000


def test_sync_messages_have_no_place_and_ephemeral_ones_come_first():
    table = pa.table(
        {
            "channel_id": ["c", "c", "c"],
            "lamport": pa.array([5, None, 9], pa.int64()),
            "message_id": ["x", "y", "z"],
            "content_bytes": pa.array([0, 1_000, None], pa.int32()),
            "kind": ["sync", "ephemeral", "content"],
        }
    )
    sample = sample_of(table)
    assert {tuple(place) for place in sample["places"]} == {("c", NO_CLOCK, "y"), ("c", 9, "z")}
    assert len(sample["places"]) * sample["stands_for"] >= 1_000
