"""Whole runs: what comes out is what happened, and the same wherever it is run."""

from __future__ import annotations

import gc
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from fairway.simulation.plan import SimulationPlan, StoreKind, replay_command
from fairway.simulation.report import DurationFigures
from fairway.simulation.runner import simulate

MINUTE_MS = 60_000
SMALL = SimulationPlan(
    participants=4,
    duration_ms=4 * MINUTE_MS,
    loss=0.3,
    messages_per_hour=60,
    crashes_per_hour=10,
    absences_per_hour=10,
    absence_ms=20_000,
    joins=1,
    leaves=1,
    partition_ms=MINUTE_MS,
    bloom_capacity=500,
)
CALM = replace(
    SMALL,
    loss=0.0,
    duplication=0.0,
    crashes_per_hour=0,
    absences_per_hour=0,
    joins=0,
    leaves=0,
    partitions=0,
    ephemeral_share=0.5,
)


@pytest.fixture(scope="module")
def small_run():
    """Return the report of the small world, and what it told of its progress."""
    told = []
    return simulate(SMALL, lambda passed_ms, total_ms: told.append((passed_ms, total_ms))), told


@pytest.fixture
def small(small_run):
    """Return the report of the small world."""
    return small_run[0]


def test_a_calm_world_delivers_everything_to_everybody_and_counts_it():
    report = simulate(CALM)
    assert report.ok, report.violations
    assert report.quiet
    assert report.sent > 0
    assert report.deliveries_owed == report.delivered == 3 * report.sent
    assert (report.lost, report.duplicates, report.order_violations, report.false_claims) == (0, 0, 0, 0)
    assert report.ephemeral_received == 3 * report.ephemeral_sent > 0
    assert (report.reported_delivered, report.reported_failed) == (report.sent, 0)
    assert report.network_deliveries + report.network_lost == 3 * report.transmissions
    # The last words of each are no deed of the script, and what is said and done in the scenes after them is left out.
    assert report.deeds == {"send": report.sent - CALM.participants, "send ephemeral": report.ephemeral_sent}
    assert (report.first_acknowledgement.count, report.delivery.count) == (report.sent, report.delivered)
    assert 0 < (report.delivery.max_ms or 0) <= CALM.max_delay_ms
    assert report.transmitted_bytes > report.payload_bytes > 0


def test_a_troubled_world_comes_to_rest_with_nothing_lost(small):
    assert small.ok, small.violations
    assert small.network_lost > 0
    assert {"join", "leave", "send"} <= small.deeds.keys()


@pytest.mark.full
def test_the_same_plan_gives_the_same_report_and_another_seed_another(small):
    assert simulate(SMALL) == small
    assert small.trace_hash != simulate(replace(SMALL, seed=2)).trace_hash


@pytest.mark.full
def test_a_change_of_the_network_alone_changes_the_trace(small):
    assert small.trace_hash != simulate(replace(SMALL, loss=0.31)).trace_hash


TROUBLED = replace(
    SMALL,
    duration_ms=2 * MINUTE_MS,
    long_share=0.5,
    partition_sides=3,
    refusals=0.1,
    answer_loss=0.1,
    slow_uplinks=1,
    node_deaths_per_hour=20,
    deaf_per_hour=20,
    store_lag_ms=2_000,
    store_lies=0.1,
    store=StoreKind.DISK,
    storage_faults_per_hour=20,
    clock_skew_ms=30_000,
    clock_jumps_per_hour=20,
    encrypted=True,
    cipher_delay_ms=50,
    cipher_failures=0.02,
    option_changes=0.5,
    mixed_options=True,
    tight_quotas=True,
    slow_readers=1,
    handler_failures=0.1,
    bursts=1,
    burst_messages=3,
    hostile=1,
)
"""All troubles at once."""


def traced(plan, hash_seed):
    """Run the replay command of a world in a process of its own, and return its trace."""
    told = subprocess.run(
        [sys.executable, "-m", "fairway", *shlex.split(replay_command(plan))[1:], "--json"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return json.loads(told.stdout)["trace_hash"]


@pytest.mark.full
def test_the_replay_command_gives_the_same_trace_in_another_process(small):
    assert traced(SMALL, "4711") == small.trace_hash


@pytest.mark.full
@pytest.mark.parametrize("plan", [SMALL, TROUBLED], ids=["small", "troubled"])
def test_the_replay_command_gives_the_same_trace_in_other_processes_with_other_hash_seeds(plan):
    assert traced(plan, "0") == traced(plan, "4711")


def test_nobody_hears_of_what_a_killed_program_never_awaited():
    plan = SimulationPlan(
        participants=3,
        duration_ms=20_000,
        messages_per_hour=2_000,
        joins=0,
        leaves=0,
        partitions=0,
        encrypted=True,
        cipher_delay_ms=500,
        store=StoreKind.DISK,
        storage_faults_per_hour=1_500,
    )
    # Warnings are errors.
    assert simulate(plan).ok
    gc.collect()


def test_a_world_that_is_given_no_time_to_settle_says_what_it_still_waits_for():
    report = simulate(
        replace(SMALL, settle_ms=0, ask_all_share=1, duration_ms=MINUTE_MS, loss=0.7, messages_per_hour=1_200)
    )
    assert not report.quiet
    assert not report.ok
    assert "nothing came for 0 minutes, and it is not quiet" in report.violations[0].sentence
    assert "open sends" in report.violations[0].sentence


@pytest.mark.full
def test_a_world_of_forgers_goes_on_until_nobody_waits_for_what_they_invented():
    """Nobody can know that there is no such message: whoever sees it cited says rightly that he is syncing."""
    plan = replace(
        CALM, participants=3, hostile=2, duration_ms=5 * MINUTE_MS, settle_ms=MINUTE_MS, lost_timeout_ms=10 * MINUTE_MS
    )
    report = simulate(plan)
    assert report.ok, report.violations


@pytest.mark.parametrize("more", [{}, {"hostile": 2, "lost_timeout_ms": 30_000}], ids=["calm", "beside inventions"])
def test_a_world_in_which_somebody_still_reads_the_store_page_by_page_is_waited_for(more):
    """He has everything from others by then, and cannot know it: twelve messages a minute are all that he may read.

    Where others cite what does not exist, he asks for that as well, and misses it until he has read the store.
    """
    plan = replace(
        CALM,
        seed=1,
        participants=2,
        ephemeral_share=0,
        duration_ms=3 * MINUTE_MS,
        messages_per_hour=300,
        absences_per_hour=20,
        absence_ms=30_000,
        store_page=1,
        tight_quotas=True,
        settle_ms=2 * MINUTE_MS,
        **more,
    )
    report = simulate(plan)
    assert report.ok, report.violations


def test_a_world_in_which_somebody_still_repeats_what_nobody_keeps_any_more_is_waited_for():
    """Segments come so slowly that receivers have given up the first; the send ends after so many tries."""
    plan = replace(
        CALM,
        seed=1,
        participants=2,
        ephemeral_share=0,
        duration_ms=2 * MINUTE_MS,
        messages_per_hour=60,
        long_share=1.0,
        loss=0.3,
        slow_uplinks=2,
        segment_size_bytes=200,
        reassembly_timeout_ms=30_000,
        settle_ms=2 * MINUTE_MS,
    )
    report = simulate(plan)
    assert report.ok, report.violations


def test_progress_goes_from_nothing_to_all(small_run):
    _, seen = small_run
    assert seen[0] == (0, SMALL.duration_ms)
    assert seen == sorted(seen)
    assert seen[-1][0] == SMALL.duration_ms - 30_000 or seen[-1][0] == SMALL.duration_ms


def test_a_report_is_plain_json_with_the_command_that_runs_it_again(small):
    plain = json.loads(json.dumps(small.as_json()))
    assert plain["ok"] is True
    assert plain["plan"]["profile"] == "waku"
    assert plain["replay"].startswith("fairway simulate --participants 4 ")
    assert plain["trace_hash"] == small.trace_hash
    assert {traffic["purpose"] for traffic in plain["traffic"]} == {"content", "retry", "repair", "sync", "ephemeral"}


def test_a_distribution_takes_the_nearest_rank():
    assert DurationFigures.of([]) == DurationFigures(count=0, p50_ms=None, p95_ms=None, p99_ms=None, max_ms=None)
    assert DurationFigures.of(range(1, 101)) == DurationFigures(count=100, p50_ms=50, p95_ms=95, p99_ms=99, max_ms=100)
    assert DurationFigures.of([7]) == DurationFigures(count=1, p50_ms=7, p95_ms=7, p99_ms=7, max_ms=7)
