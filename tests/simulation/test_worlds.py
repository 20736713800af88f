"""Worlds of a few minutes, all different, in which every invariant holds. A failure prints the command to replay it."""

from __future__ import annotations

import pytest

from fairway.options import Profile
from fairway.simulation import Plan, Trouble, World, replay_command, simulate

MINUTE_MS = 60_000


def assert_holds(plan):
    report = simulate(plan)
    assert report.ok, (replay_command(plan), [violation.text for violation in report.violations])
    return report


@pytest.mark.parametrize("profile", list(Profile), ids=[profile.value for profile in Profile])
@pytest.mark.parametrize("loss", [0, 0.3, 0.5], ids="loss={}".format)
def test_a_drawn_world_keeps_all_invariants(seed, loss, profile):
    report = assert_holds(Plan.drawn(seed, loss=loss, profile=profile, participants=5, duration_ms=5 * MINUTE_MS))
    assert report.received > 0


@pytest.mark.full
@pytest.mark.parametrize("number", range(40))
def test_each_of_many_drawn_worlds_keeps_all_invariants(seed, number):
    assert_holds(Plan.drawn(1_000 * seed + number, duration_ms=10 * MINUTE_MS))


@pytest.mark.parametrize("trouble", list(Trouble), ids=[trouble.value for trouble in Trouble])
def test_each_trouble_happens(trouble):
    plan = Plan(participants=4, duration_ms=15 * MINUTE_MS, messages_per_hour=120, troubles=frozenset({trouble}))
    world = World(plan)
    report = world.run()
    assert report.ok, (replay_command(plan), [violation.text for violation in report.violations])
    happened, statistics = report.happened, world.network.statistics()
    signs = {
        Trouble.CRASH: happened.get("Crash"),
        Trouble.POWER_CUT: happened.get("FailingDisk"),
        Trouble.DISK_FAULT: happened.get("FailingDisk"),
        Trouble.ABSENCE: happened.get("Absence"),
        Trouble.PARTITION: happened.get("Split"),
        Trouble.JOIN: happened.get("Join"),
        Trouble.LEAVE: happened.get("Leave"),
        Trouble.DUPLICATE: statistics.duplicated,
        Trouble.REORDER: max(report.known_ms) > 5_000,
        Trouble.REFUSE: statistics.refused,
        Trouble.CLOCK_JUMP: happened.get("ClockJump"),
        Trouble.STORE_GAPS: statistics.store_missed,
        Trouble.STORE_LIES: statistics.queries_belied,
        Trouble.FORGERY: happened.get("Forge"),
        Trouble.ENCRYPTION: happened.get("MessagesUndecryptable"),
        Trouble.SIGNATURES: happened.get("SignatureRefused"),
        Trouble.PARITY: any(any(send.sds_ids.values()) for send in world.history.sends),
        Trouble.SLOW_READER: any(person.slow_ms for person in world.participants.values()),
        Trouble.RATE_LIMIT: happened.get("MessageQueued"),
        Trouble.SMALL_BUFFERS: world.options.max_unread_messages < 100,
    }
    assert signs[trouble]


@pytest.mark.parametrize("profile", list(Profile), ids=[profile.value for profile in Profile])
@pytest.mark.parametrize(
    "others", [set(), {Trouble.FORGERY}, {Trouble.ENCRYPTION}], ids=["stranger", "member", "keyless"]
)
def test_no_name_is_forged_where_participants_sign(seed, profile, others):
    troubles = frozenset({Trouble.SIGNATURES, Trouble.CRASH, Trouble.JOIN, *others})
    plan = Plan(seed=seed, participants=4, duration_ms=15 * MINUTE_MS, profile=profile, troubles=troubles)
    report = assert_holds(plan)
    assert report.happened.get("Forge", 0) > 5


def test_the_same_plan_gives_the_same_run():
    plan = Plan.drawn(3, participants=3, duration_ms=2 * MINUTE_MS, troubles=frozenset(Trouble))
    first, second = simulate(plan), simulate(plan)
    assert first == second
    assert first.trace_hash != simulate(Plan.drawn(4, participants=3, duration_ms=2 * MINUTE_MS)).trace_hash


def test_without_loss_messages_arrive_at_once_and_are_soon_acknowledged():
    report = assert_holds(Plan(loss=0, participants=4, duration_ms=5 * MINUTE_MS, messages_per_hour=120))
    assert max(report.everywhere_ms) < 1_000
    assert max(report.known_ms) < 10_000
