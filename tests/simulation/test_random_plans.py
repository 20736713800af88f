"""Plans drawn at random: wide, worth the same time, and the same for the same seed."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

import pytest
import typer

from fairway.cli._plan_options import plan_of, with_plan
from fairway.errors import ConfigurationError
from fairway.options import Profile
from fairway.simulation.plan import SimulationPlan, StoreKind, replay_command
from fairway.simulation.random_plans import CALM, calm_but, draw_plan
from fairway.units import HOUR_MS

pytestmark = pytest.mark.xdist_group("plans")  # what its tests share is made once

COME_ALONG = {("storage_faults_per_hour", "store"), ("option_changes", "crashes_per_hour")}
TALK = {
    *("participants", "duration_ms", "messages_per_hour", "ephemeral_share", "repeat_share", "ask_all_share"),
    *("profile", "delivery", "bloom_capacity", "bloom_policy"),
    "ask_some_share",
    "ask_more_share",
}
ALWAYS_THE_SAME = {"settle_ms", "min_delay_ms"}
OF_LIGHT_CLIENTS = {"service_nodes", "resets_per_hour", "stalls_per_hour", "garbled", "bad_nodes"}
"""What is drawn only for worlds that are asked to have service nodes (`test_light_worlds`)."""

OF_THE_TOUR = {"rln_limit", "rln_failures", "rln_shared", "vice", "foreign", "insatiable", "response_groups"}
"""What only the tour has."""

SPECIAL = (
    *("store_cuts", "restamped", "blips_per_hour", "repairs", "reassembly_timeout_ms", "bloom_error_rate"),
    *("burst_repeats", "haste", "impatience", "tiny_quotas", "gap_timeout_ms"),
)
"""Kinds of trouble that fewer worlds have."""


def troubles_of(plan):
    return {field.name for field in fields(plan) if getattr(plan, field.name) != getattr(CALM, field.name)}


@pytest.fixture(scope="module")
def plans():
    return [draw_plan(seed) for seed in range(1_000)]


def test_a_seed_draws_the_same_plan_whenever_it_is_asked_and_names_it(plans):
    assert [draw_plan(seed) for seed in range(50)] == plans[:50]
    assert [plan.seed for plan in plans] == list(range(1_000))


def test_every_field_takes_several_values(plans):
    one_value = ALWAYS_THE_SAME | OF_LIGHT_CLIENTS | OF_THE_TOUR
    for field in fields(SimulationPlan):
        values = {getattr(plan, field.name) for plan in plans}
        assert (len(values) == 1) is (field.name in one_value), field.name


def test_every_kind_of_trouble_is_on_in_some_worlds_and_off_in_others_and_does_not_come_with_another(plans):
    kinds = (
        *("loss", "duplication", "store_gaps", "crashes_per_hour", "cuts_per_hour", "absences_per_hour", "joins"),
        "partitions",
        *("refusals", "answer_loss", "node_deaths_per_hour", "deaf_per_hour", "store_lag_ms", "store_lies"),
        *("store", "storage_faults_per_hour", "clock_skew_ms", "clock_jumps_per_hour", "encrypted", "option_changes"),
        *("mixed_options", "tight_quotas", "slow_readers", "handler_failures", "bursts", "hostile", "slow_uplinks"),
    )
    troubles_of_each = [troubles_of(plan) for plan in plans]
    for kind in kinds:
        assert 0.1 < sum(kind in troubles for troubles in troubles_of_each) / len(plans) < 0.7, kind
        for other in set(kinds) - {kind}:
            comes_along = (kind, other) in COME_ALONG
            alone = any(kind in troubles and other not in troubles for troubles in troubles_of_each)
            assert alone is not comes_along, (kind, other)
    assert any(set(kinds).isdisjoint(troubles) for troubles in troubles_of_each)
    assert max(len(troubles.intersection(kinds)) for troubles in troubles_of_each) >= len(kinds) - 4


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_special_kind_of_trouble_is_on_in_one_world_of_a_few(plans, kind):
    assert 0.03 < sum(kind in troubles_of(plan) for plan in plans) / len(plans) < 0.2


def test_most_worlds_are_small_and_large_ones_are_short(plans):
    sizes = [plan.participants for plan in plans]
    assert min(sizes) == 2
    assert sum(size <= 12 for size in sizes) / len(sizes) > 0.95
    assert max(plan.duration_ms for plan in plans if plan.participants > 12) < HOUR_MS / 2
    assert draw_plan(3_260).participants > 150


def test_one_world_of_fifty_is_of_forty_to_two_hundred_who_say_little_for_minutes(plans):
    crowded = [plan for plan in plans if 40 <= plan.participants <= 200 and plan.messages_per_hour in {1.0, 4.0, 10.0}]
    assert 0.01 < len(crowded) / len(plans) < 0.04
    assert max(plan.participants for plan in crowded) > 150
    assert sum(bool(plan.hostile or plan.bursts) for plan in crowded) / len(crowded) < 0.1
    assert max(plan.duration_ms for plan in crowded) <= 240_000


def test_some_worlds_are_of_few_who_say_little_for_days_so_that_a_hour_of_them_costs_little(plans):
    long = [plan for plan in plans if plan.duration_ms > 4 * HOUR_MS]
    assert 0.1 < len(long) / len(plans) < 0.3
    assert max(plan.duration_ms for plan in long) > 4 * 24 * HOUR_MS
    assert sum(plan.duration_ms for plan in plans) / len(plans) > 6 * HOUR_MS
    for plan in long:
        assert plan.participants <= 3
        assert plan.crashes_per_hour * plan.duration_ms <= 20 * 4 * HOUR_MS * 1.01
    assert max(draw_plan(seed, participants=2).duration_ms for seed in range(200)) <= 4 * HOUR_MS


def test_among_forgers_nobody_waits_long_unless_so_much_is_lost_or_so_little_gets_out_that_repairs_take_long(plans):
    hostile = [plan for plan in plans if plan.hostile]
    slow = [plan for plan in hostile if plan.rate_limit or plan.node_rate or plan.slow_uplinks or plan.hostile > 2]
    assert {plan.lost_timeout_ms for plan in slow} == {CALM.lost_timeout_ms}
    forgers = [plan for plan in hostile if plan not in slow]
    patience = {
        loss: {p.lost_timeout_ms for p in forgers if p.loss == loss and not p.cipher_failures} for loss in (0, 0.5)
    }
    assert patience == {0: {600_000}, 0.5: {CALM.lost_timeout_ms}}
    assert len({plan.lost_timeout_ms for plan in forgers}) > 3


def test_among_many_forgers_who_may_ask_for_few_pages_gets_large_ones(plans):
    paged = [plan for plan in plans if plan.hostile and plan.tight_quotas and plan.store_page]
    assert {plan.store_page for plan in paged if plan.hostile > 2} == {20}
    assert {plan.store_page for plan in paged if plan.hostile <= 2} == {2, 5, 20}
    assert draw_plan(20_848, store_page=2).store_page == 2


def test_no_world_asks_for_more_than_a_participant_can_ask_for(plans):
    tiny = [plan for plan in plans if plan.tiny_quotas]
    assert tiny
    assert not any(plan.restamped for plan in tiny)
    hasty = [plan for plan in plans if plan.haste]
    assert hasty
    assert not any(plan.bursts and plan.tight_quotas for plan in hasty)
    assert any(plan.hostile and plan.cipher_failures for plan in plans)
    assert not any(plan.hostile and plan.loss > 0.3 and plan.cipher_failures > 0.02 for plan in plans)


def test_a_rate_limit_leaves_room_to_ask_for_what_is_invented(plans):
    limited = [plan for plan in plans if plan.hostile and plan.rate_limit]
    assert len(limited) > 5
    for plan in limited:
        assert plan.rate_limit >= 25 * plan.hostile
        without = draw_plan(plan.seed, hostile=0).rate_limit
        assert without is None or plan.rate_limit > without


def test_bursts_of_large_segments_are_as_many_as_cost_no_minutes_and_still_bursts(plans):
    large = [plan for plan in plans if plan.bursts and plan.segment_size_bytes > 100_000]
    assert min(plan.burst_messages for plan in large) >= 5
    for plan in large:
        sent = plan.bursts * plan.burst_messages * plan.segment_size_bytes * plan.participants
        assert plan.burst_messages == 5 or sent < 10_000_000, plan
    small = [plan for plan in plans if plan.bursts and plan.segment_size_bytes <= 1_000]
    assert max(plan.burst_messages for plan in small) > 100


def test_in_a_calm_world_nothing_goes_wrong_but_what_is_given():
    for seed in range(50):
        plan = draw_plan(seed, **calm_but({"loss": 0.3, "max_delay_ms": 250}))
        assert troubles_of(plan) <= {"loss", "max_delay_ms", "seed", *TALK}
    assert len({plan.participants for plan in (draw_plan(seed, **calm_but({})) for seed in range(50))}) > 2


@pytest.mark.full
def test_what_is_given_is_not_drawn_and_the_rest_fits_to_it():
    for seed in range(200):
        plan = draw_plan(seed, participants=2, loss=0.5, min_delay_ms=300)
        assert (plan.participants, plan.loss, plan.leaves, plan.min_delay_ms) == (2, 0.5, 0, 300)
        draw_plan(seed, store=StoreKind.MEMORY, encrypted=False)
        assert draw_plan(seed, storage_faults_per_hour=1.0).store is StoreKind.DISK
    assert draw_plan(3, duration_ms=60_000, profile=Profile.LOGOS).duration_ms == 60_000


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigurationError, match="participants must be 2 to 1000, not 1"):
        draw_plan(1, participants=1)
    with pytest.raises(ConfigurationError, match="participants must be 2 to 1000, not 0"):
        draw_plan(1, participants=0)
    with pytest.raises(ConfigurationError, match="loss must be 0 or more and less than 1"):
        draw_plan(1, loss=1.0)


def test_the_command_line_gives_every_drawn_plan_back_from_its_replay_command(plans):
    read = []
    app = typer.Typer()
    app.command()(with_plan(lambda given: read.append(plan_of(given))))
    command = typer.main.get_command(app)
    for plan in plans[:300]:
        command.main(shlex.split(replay_command(plan))[2:], standalone_mode=False)
        assert read.pop() == plan
    assert not read


def test_every_field_of_a_plan_is_an_option_with_a_help_text():
    app = typer.Typer()
    app.command()(with_plan(lambda given: None))
    command = typer.main.get_command(app)
    options: dict[str | None, Any] = {each.name: each for each in command.params}
    for field in fields(SimulationPlan):
        name = "hours" if field.name == "duration_ms" else field.name
        assert len(options[name].help) > 10, name
