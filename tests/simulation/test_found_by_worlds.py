"""Worlds that found a fault of the product, kept as they were when they found it."""

from __future__ import annotations

import pytest

from fairway.simulation import SimulationPlan, replay_command, simulate

MINUTE_MS = 60_000

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            SimulationPlan(
                seed=2,
                participants=5,
                duration_ms=30 * MINUTE_MS,
                joins=1,
                leaves=1,
                messages_per_hour=20,
                tight_quotas=True,
                bursts=2,
                settle_ms=30 * MINUTE_MS,
            ),
            id="full buffers of messages that wait for what nobody here cites",
        ),
    ],
)
def test_a_world_that_found_a_fault_holds(plan):
    report = simulate(plan)
    assert report.ok, (replay_command(plan), [violation.sentence for violation in report.violations])
