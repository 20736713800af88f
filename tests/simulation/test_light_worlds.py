"""Worlds of light clients keep what every world keeps, and the same plan gives the same run in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.runner import simulate

QUIET = SimulationPlan(
    participants=3,
    duration_ms=120_000,
    loss=0.0,
    seed=1,
    duplication=0.0,
    messages_per_hour=120.0,
    crashes_per_hour=0.0,
    absences_per_hour=0.0,
    joins=0,
    leaves=0,
    partitions=0,
    segment_size_bytes=500,
    bloom_capacity=500,
    settle_ms=3_600_000,
    service_nodes=3,
)
LINKS = replace(QUIET, resets_per_hour=60.0, stalls_per_hour=60.0)
TROUBLES = {
    "answers": {"garbled": 0.2, "refusals": 0.1, "silence": 0.05, "answer_loss": 0.1, "loss": 0.2},
    "service nodes": {"node_deaths_per_hour": 40.0, "deaf_per_hour": 40.0, "absence_ms": 20_000},
    "bad nodes": {"bad_nodes": 1, "duration_ms": 180_000},
    "people": {"crashes_per_hour": 60.0, "absences_per_hour": 30.0, "partitions": 1, "joins": 1, "leaves": 1},
}


@pytest.fixture(scope="module")
def links_run():
    """Return the report of a world of bad links, which runs once for the tests that read it."""
    return simulate(LINKS)


@pytest.mark.full
def test_a_world_of_bad_links_keeps_every_promise(links_run):
    assert links_run.ok, [violation.sentence for violation in links_run.violations]
    assert links_run.delivered > 0


@pytest.mark.full
@pytest.mark.parametrize("kind", TROUBLES)
def test_a_world_of_light_clients_keeps_every_promise(kind):
    plan = replace(QUIET, **TROUBLES[kind])
    report = simulate(plan)
    assert report.ok, [violation.sentence for violation in report.violations]
    assert report.delivered > 0


@pytest.mark.full
def test_a_bad_service_node_and_lost_answers_end_no_send_for_good():
    plan = replace(QUIET, seed=3, service_nodes=2, bad_nodes=1, answer_loss=0.3, duration_ms=90_000)
    report = simulate(plan)
    assert report.ok, [violation.sentence for violation in report.violations]


@pytest.mark.parametrize("seed", range(1, 40))
def test_light_worlds_are_drawn_whole(seed):
    plan = draw_plan(seed, service_nodes=3)
    assert plan.service_nodes == 3
    assert plan.participants <= 8


def test_what_light_worlds_draw_leaves_other_worlds_as_they_are():
    assert not any(draw_plan(seed).service_nodes for seed in range(1, 100))
    drawn = [draw_plan(seed, service_nodes=3) for seed in range(1, 60)]
    for name in ("resets_per_hour", "stalls_per_hour", "garbled", "bad_nodes"):
        assert len({getattr(plan, name) for plan in drawn}) > 1, name


def traced(plan: SimulationPlan, hash_seed: str) -> str:
    """Run a world in a process of its own, where sets have another order, and return its trace."""
    words = [sys.executable, "-m", *replay_command(plan).split(), "--json"]
    told = subprocess.run(
        words, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": hash_seed}
    )
    return str(json.loads(told.stdout)["trace_hash"])


@pytest.mark.full
def test_a_world_of_light_clients_is_the_same_in_another_process_whatever_the_order_of_sets(links_run):
    assert traced(LINKS, "1") == links_run.trace_hash


@pytest.mark.full
def test_a_world_of_light_clients_with_troubles_is_the_same_whatever_the_order_of_sets():
    plan = replace(QUIET, duration_ms=60_000, resets_per_hour=60.0, node_deaths_per_hour=60.0, garbled=0.2)
    traces = {traced(plan, hash_seed) for hash_seed in ("1", "2")}
    assert len(traces) == 1


def test_what_only_light_clients_can_suffer_needs_service_nodes():
    with pytest.raises(ConfigurationError, match="garbled must be 0 without service_nodes"):
        replace(QUIET, service_nodes=0, garbled=0.1)
    with pytest.raises(ConfigurationError, match="clock_skew_ms must be 0 with service_nodes"):
        replace(QUIET, clock_skew_ms=1_000)


def test_the_replay_command_names_the_service_nodes():
    assert "--service-nodes 3" in replay_command(QUIET)
