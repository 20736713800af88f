"""Worlds that found a fault of the product, kept as they were when they found it."""

from __future__ import annotations

import pytest

from fairway.options import Profile
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
        pytest.param(
            SimulationPlan(
                seed=302,
                participants=5,
                duration_ms=2 * MINUTE_MS,
                profile=Profile.LOGOS,
                loss=0.0,
                duplication=0.0,
                store_gaps=0.2,
                messages_per_hour=30,
                long_share=0.0,
                ephemeral_share=0.3,
                ask_all_share=0.3,
                crashes_per_hour=0,
                absences_per_hour=0,
                joins=1,
                leaves=1,
                partitions=0,
                refusals=0.4,
                deaf_per_hour=1,
                clock_skew_ms=60_000,
                tight_quotas=True,
                bursts=4,
                burst_messages=14,
                bloom_capacity=200,
            ),
            id="a node that takes little, so that sync messages wait behind retries until newer ones supersede them",
        ),
    ],
)
def test_a_world_that_found_a_fault_holds(plan):
    report = simulate(plan)
    assert report.ok, (replay_command(plan), [violation.sentence for violation in report.violations])
