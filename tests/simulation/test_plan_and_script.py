"""What a world is to be like, and everything that is drawn from it before it begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.options import Delivery, Profile
from fairway.simulation.plan import SimulationPlan, StoreKind, replay_command
from fairway.simulation.script import Deed, names_of, write_script
from fairway.units import HOUR_MS

BUSY = SimulationPlan(
    participants=6,
    messages_per_hour=60,
    crashes_per_hour=5,
    cuts_per_hour=5,
    absences_per_hour=5,
    joins=3,
    leaves=3,
    partitions=3,
    long_share=0.3,
    repeat_share=0.2,
    node_deaths_per_hour=5,
    deaf_per_hour=5,
    clock_jumps_per_hour=5,
    store=StoreKind.DISK,
    pauses_per_hour=2.0,
    storage_faults_per_hour=5,
    bursts=2,
    hostile=1,
)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"participants": 1}, "participants must be 2 to 1000, not 1"),
        ({"duration_ms": 999}, "duration_ms must be one second to 30 days, not 999"),
        ({"loss": 1.0}, r"loss must be 0 or more and less than 1, for else nothing ever arrives, not 1\.0"),
        ({"loss": float("nan")}, "loss must be"),
        ({"duplication": 2.0}, "duplication is a share"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"ask_all_share": 1.5}, "ask_all_share must be a share, 0 to 1"),
        ({"messages_per_hour": -1.0}, "messages_per_hour must be 0 or more"),
        ({"crashes_per_hour": float("nan")}, "crashes_per_hour must be 0 or more"),
        ({"participants": 3, "leaves": 2}, "leaves must be at most all participants but two, not 2"),
        ({"partition_ms": 0}, "partition_ms must be at least 1 ms"),
        ({"absence_ms": 0}, "absence_ms must be at least 1 ms"),
        ({"rate_limit": 0}, "rate_limit must be at least 1 transmission"),
        ({"min_delay_ms": 9, "max_delay_ms": 8}, "min_delay_ms <= max_delay_ms"),
        ({"segment_size_bytes": 0}, "segment_size_bytes must be at least 1"),
        ({"parity_rate": 3.0}, "parity_rate must lie in 0..1"),
        ({"settle_ms": -1}, "settle_ms must be 0 or more"),
    ],
)
def test_a_world_that_cannot_be_is_refused_with_what_could(change, text):
    with pytest.raises(ConfigurationError, match=text):
        SimulationPlan(**change)


def test_the_channels_options_are_those_of_the_profile_with_what_the_plan_changes():
    waku = SimulationPlan(rate_limit=40, delivery=Delivery.ARRIVAL).options()
    assert (waku.profile, waku.delivery, waku.retry_interval_ms) == (Profile.WAKU, Delivery.ARRIVAL, 30_000)
    assert (waku.rate_limit.enabled, waku.rate_limit.messages_per_epoch) == (True, 40)
    logos = SimulationPlan(profile=Profile.LOGOS, bloom_capacity=77).options()
    assert (logos.profile, logos.retry_interval_ms, logos.sds.bloom_capacity) == (Profile.LOGOS, 5_000, 77)
    assert (logos.segmentation.parity_rate, logos.rate_limit.enabled) == (0.0, False)


def test_the_replay_command_names_what_differs_from_the_defaults():
    assert replay_command(SimulationPlan(seed=7, loss=0.5)) == (
        "fairway simulate --participants 20 --hours 2 --loss 0.5 --seed 7"
    )
    plan = SimulationPlan(
        participants=3, duration_ms=HOUR_MS // 4, profile=Profile.LOGOS, delivery=Delivery.ARRIVAL, leaves=0, loss=0
    )
    assert replay_command(plan) == (
        "fairway simulate --participants 3 --hours 0.25 --loss 0 --seed 1 --profile logos --delivery arrival --leaves 0"
    )


def test_the_same_seed_writes_the_same_script_and_another_seed_another():
    assert write_script(BUSY) == write_script(BUSY) != write_script(replace(BUSY, seed=2))


def test_the_faults_of_the_network_leave_what_people_do_as_it_was():
    assert write_script(BUSY) == write_script(replace(BUSY, loss=0.9, duplication=0.9, store_gaps=0.9))


def test_a_script_is_in_the_order_of_time_and_holds_everything_that_can_happen():
    light = replace(
        BUSY,
        service_nodes=3,
        resets_per_hour=4.0,
        stalls_per_hour=4.0,
        clock_skew_ms=0,
        clock_jumps_per_hour=0.0,
        blips_per_hour=0.0,
    )
    for plan in (BUSY, light):
        times = [action.at_ms for action in write_script(plan)]
        assert times == sorted(times)
        assert 0 <= times[0] <= times[-1] < plan.duration_ms
    assert {action.deed for plan in (BUSY, light) for action in write_script(plan)} == set(Deed)


def test_nobody_does_anything_before_joining_or_after_leaving():
    script = write_script(BUSY)
    present = set(names_of(BUSY))
    for action in script:
        if action.deed is Deed.JOIN:
            present.update(action.names)
        elif action.deed is Deed.LEAVE:
            present.difference_update(action.names)
        elif action.deed is not Deed.SEVER:
            assert present.issuperset(action.names), action
    assert len(present) == BUSY.participants


def test_whoever_goes_offline_comes_back_before_the_next_absence():
    state = {}
    following = {None: Deed.CUT_OFF, Deed.CUT_OFF: Deed.OFFLINE, Deed.OFFLINE: Deed.ONLINE, Deed.ONLINE: Deed.CUT_OFF}
    for action in write_script(BUSY):
        if action.deed in {Deed.CUT_OFF, Deed.OFFLINE, Deed.ONLINE}:
            (name,) = action.names
            assert action.deed is following[state.get(name)]
            state[name] = action.deed
    assert set(state.values()) == {Deed.ONLINE}


def test_partitions_end_before_the_next_one_begins():
    deeds = [action.deed for action in write_script(BUSY) if action.deed in {Deed.SEVER, Deed.MEND}]
    assert deeds == [Deed.SEVER, Deed.MEND] * (len(deeds) // 2)


def test_every_other_crash_comes_amid_what_somebody_sends():
    plan = replace(BUSY, joins=0, leaves=0, messages_per_hour=2, crashes_per_hour=20)
    script = write_script(plan)
    sends = [action.at_ms for action in script if action.deed is Deed.SEND]
    crashes = [action.at_ms for action in script if action.deed is Deed.CRASH]
    soon = [at_ms for at_ms in crashes if any(0 <= at_ms - sent_ms <= 32_000 for sent_ms in sends)]
    assert len(crashes) > 100
    assert 0.4 < len(soon) / len(crashes) < 0.8


def test_shares_and_rates_are_kept_roughly():
    plan = replace(BUSY, joins=0, leaves=0, messages_per_hour=300)
    sends = [action for action in write_script(plan) if action.deed is Deed.SEND]
    ephemeral = [action for action in write_script(plan) if action.deed is Deed.EPHEMERAL]
    total = len(sends) + len(ephemeral)
    assert total == pytest.approx(6 * 2 * 300, rel=0.1)
    assert len(ephemeral) / total == pytest.approx(0.1, abs=0.03)
    assert sum(action.ask_all for action in sends) / len(sends) == pytest.approx(0.5, abs=0.05)
    assert sum(action.payload == b"ok" for action in sends) / len(sends) == pytest.approx(0.2, abs=0.04)
    assert sum(len(action.payload) > 1_000 for action in sends) / len(sends) == pytest.approx(0.24, abs=0.05)
    assert len({action.payload for action in ephemeral}) == len(ephemeral)
