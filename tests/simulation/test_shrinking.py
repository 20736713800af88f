"""Smaller plans that break as a large one did; what breaks is said by functions, so that no world is run."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from fairway.simulation.plan import SimulationPlan
from fairway.simulation.random_plans import CALM, draw_plan
from fairway.simulation.shrinking import shrink
from fairway.units import HOUR_MS

LARGE = SimulationPlan(
    participants=40,
    seed=100,
    loss=0.5,
    duplication=0.3,
    store_gaps=0.2,
    max_delay_ms=5_000,
    messages_per_hour=120,
    joins=5,
    leaves=5,
    partitions=3,
    crashes_per_hour=10,
    rate_limit=400,
)


def troubles(plan):
    small = ("participants", "duration_ms", "seed", "messages_per_hour")
    return {f.name for f in fields(plan) if f.name not in small and getattr(plan, f.name) != getattr(CALM, f.name)}


def test_of_what_breaks_anyway_the_calmest_smallest_and_shortest_world_is_left():
    smallest = shrink(LARGE, lambda _: True)
    assert troubles(smallest) == set()
    assert (smallest.participants, smallest.duration_ms, smallest.messages_per_hour) == (2, 60_000, 1.0)


@pytest.mark.parametrize("needed", ["loss", "crashes_per_hour", "leaves", "rate_limit", "max_delay_ms"])
def test_only_the_trouble_that_it_takes_is_left(needed):
    def breaks(plan):
        return getattr(plan, needed) != getattr(CALM, needed)

    assert troubles(shrink(LARGE, breaks)) == {needed}


def test_two_troubles_that_only_together_break_it_are_both_left():
    def breaks(plan):
        return plan.loss > 0.1 and plan.joins >= 2 and plan.participants >= 7

    smallest = shrink(LARGE, breaks, attempts=500)
    assert breaks(smallest)
    assert troubles(smallest) == {"loss", "joins"}
    assert smallest.participants <= 9
    assert smallest.joins == 2
    assert smallest.loss < 0.26


def test_what_breaks_only_as_it_is_stays_as_it_is():
    assert shrink(LARGE, lambda plan: plan == LARGE) == LARGE


def test_a_change_that_hides_the_fault_for_one_seed_is_tried_with_another():
    def breaks(plan):
        return plan.loss == 0.5 and (plan.participants == 40 or plan.seed == 101)

    smallest = shrink(LARGE, breaks)
    assert (smallest.participants, smallest.seed) == (2, 101)


def test_no_plan_is_tried_twice_and_none_once_the_attempts_are_used_up():
    tried = []

    def breaks(plan):
        tried.append(plan)
        return plan.loss > 0

    shrink(LARGE, breaks, attempts=30)
    assert len(tried) == len(set(tried)) == 30
    tried.clear()
    shrink(LARGE, breaks, attempts=500)
    assert len(tried) == len(set(tried)) < 500


def test_the_search_ends_when_time_is_over():
    tried = []

    def breaks(plan):
        tried.append(plan)
        return True

    smallest = shrink(LARGE, breaks, over=lambda: len(tried) >= 2)
    assert smallest == tried[1]


@pytest.mark.parametrize("seed", range(20))
def test_every_drawn_plan_gets_down_to_a_calm_one(seed):
    smallest = shrink(draw_plan(seed), lambda _: True, attempts=1_000)
    assert (troubles(smallest), smallest.participants) == (set(), 2)


def test_a_calm_plan_shrinks_in_time_alone():
    smallest = shrink(replace(CALM, participants=2, duration_ms=HOUR_MS), lambda plan: plan.duration_ms >= 600_000)
    assert 600_000 <= smallest.duration_ms < 800_000
