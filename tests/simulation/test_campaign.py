"""Many worlds in processes, and the search for a smaller world that breaks alike."""

from __future__ import annotations

from dataclasses import replace

from fairway.simulation import Plan, simulate
from fairway.simulation.campaign import run_worlds
from fairway.simulation.history import Invariant

SMALL = Plan(participants=2, duration_ms=60_000, messages_per_hour=120, loss=0)


def test_parallel_worlds_equal_worlds_that_run_alone():
    plans = [replace(SMALL, seed=seed) for seed in range(4)]
    reports = sorted(run_worlds(plans, jobs=2), key=lambda report: report.plan.seed)
    assert reports == [simulate(plan) for plan in plans]


def test_a_plan_is_taken_only_when_its_world_can_begin():
    taken = []

    def plans():
        for seed in range(100):
            taken.append(seed)
            yield replace(SMALL, seed=seed)

    reports = run_worlds(plans(), jobs=1)
    next(reports)
    reports.close()
    assert len(taken) < 5


def test_a_world_that_takes_too_long_violates_an_invariant():
    (report,) = run_worlds([replace(SMALL, duration_ms=720 * 3_600_000)], jobs=1, limit_s=0.5)
    assert [violation.invariant for violation in report.violations] == [Invariant.RUNS]
    assert "more than 0.5 s of CPU time" in report.violations[0].text
