"""Short worlds, all different, in each of which every invariant must hold.

A world that fails prints the one command that runs it again; which worlds there are follows from --seed.
"""

from __future__ import annotations

import random

import pytest

from fairway.options import Delivery, Profile
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.runner import simulate
from fairway.units import HOUR_MS

WORLDS = 4
"""For each profile and loss."""
MINUTE_MS = 60_000


def world_of(seed, loss, profile):
    """A world of three minutes of busy talk, whose other troubles depend on its seed."""
    rng = random.Random(f"{seed}/{loss}/{profile.value}")
    participants = rng.randint(3, 5)
    store_gaps = rng.choice([0, 0, 0.2, 1])
    waku = profile is Profile.WAKU
    return SimulationPlan(
        participants=participants,
        duration_ms=3 * MINUTE_MS,
        loss=loss,
        seed=seed,
        profile=profile,
        delivery=rng.choices([Delivery.CAUSAL, Delivery.ARRIVAL], [9, 1])[0],
        duplication=rng.choice([0, 0.1, 0.3]),
        store_gaps=store_gaps,
        messages_per_hour=rng.choice([40, 120]),
        long_share=rng.choice([0.1, 0.5]),
        repeat_share=rng.choice([0.1, 0.5]),
        ask_all_share=rng.choice([0, 0.5, 1]),
        crashes_per_hour=rng.choice([0, 20]),
        absences_per_hour=rng.choice([0, 20]),
        absence_ms=30_000,
        joins=rng.choice([0, 1]),
        leaves=rng.choice([0, 1]),
        partitions=rng.choice([0, 1]),
        partition_ms=MINUTE_MS,
        rate_limit=rng.choice([None, None, 150]) if waku else None,
        segment_size_bytes=300,
        parity_rate=rng.choice([0, 0.125, 0.5]) if waku else 0,
        bloom_capacity=500,
        settle_ms=2 * HOUR_MS,
    )


QUICK = {(Profile.WAKU, 0.3), (Profile.LOGOS, 0.5)}
"""Of these one world tells a contributor enough."""


@pytest.mark.parametrize(
    ("profile", "loss", "number"),
    [
        pytest.param(
            profile,
            loss,
            number,
            id=f"{profile.value}-{loss}-{number}",
            marks=[] if (profile, loss) in QUICK and not number else [pytest.mark.full],
        )
        for profile in Profile
        for loss in (0.0, 0.3, 0.5)
        for number in range(WORLDS)
    ],
)
def test_everything_holds_in_a_world(profile, loss, number, seed):
    plan = world_of(seed + number, loss, profile)
    report = simulate(plan)
    found = "\n".join(f"{v.invariant.value}: {v.sentence}" for v in report.violations)
    assert report.ok, f"{found}\nReplay: {replay_command(plan)}"
