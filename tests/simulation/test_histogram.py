"""Durations by classes, which add up over worlds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.simulation.histogram import EDGES_MS, Histogram

DURATIONS = st.lists(st.integers(0, 10**9))


def test_the_classes_rise_and_know_the_limits_that_are_asked_about():
    assert list(EDGES_MS) == sorted(set(EDGES_MS))
    assert {5_000, 15_000, 30_000} <= set(EDGES_MS)


@given(DURATIONS, DURATIONS)
def test_two_histograms_together_are_that_of_all(some, more):
    assert Histogram.of(some) + Histogram.of(more) == Histogram.of(some + more)


@given(DURATIONS, st.sampled_from(EDGES_MS))
def test_what_lies_within_an_edge_is_counted(durations, edge):
    assert Histogram.of(durations).within(edge) == sum(duration <= edge for duration in durations)


@given(st.lists(st.integers(10, 10**9), min_size=1), st.sampled_from([1, 50, 95, 100]))
def test_a_percentile_is_no_less_than_so_many_and_at_most_a_class_too_much(durations, percent):
    found = Histogram.of(durations).percentile(percent)
    assert sum(duration <= found for duration in durations) * 100 >= percent * len(durations)
    exact = sorted(durations)[-(-len(durations) * percent // 100) - 1]
    assert exact <= found <= exact * 4 / 3


def test_nothing_has_no_percentile():
    assert (Histogram().percentile(50), Histogram().count, Histogram().within(5_000)) == (None, 0, 0)
    assert Histogram.of([10**12]).counts == {EDGES_MS[-1]: 1}
