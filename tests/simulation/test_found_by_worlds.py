"""Worlds that found a fault of the product, kept as they were when they found it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.options import BloomPolicy, Profile
from fairway.simulation import SimulationPlan, replay_command, simulate
from fairway.simulation.plan import StoreKind
from fairway.simulation.random_plans import CALM

MINUTE_MS = 60_000

pytestmark = pytest.mark.full


def assert_holds(plan):
    report = simulate(plan)
    assert report.ok, (replay_command(plan), [violation.sentence for violation in report.violations])


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            SimulationPlan(
                seed=3_036,
                participants=3,
                duration_ms=2 * MINUTE_MS,
                profile=Profile.LOGOS,
                loss=0.25,
                duplication=0.2,
                max_delay_ms=20,
                messages_per_hour=10,
                long_share=0.6,
                ephemeral_share=0.3,
                repeat_share=0.4,
                ask_all_share=0.7,
                crashes_per_hour=10,
                absences_per_hour=0,
                absence_ms=20_000,
                joins=0,
                leaves=1,
                partitions=3,
                node_deaths_per_hour=4,
                store_lag_ms=60_000,
                clock_skew_ms=10 * MINUTE_MS,
                clock_jumps_per_hour=5,
                option_changes=0.3,
                mixed_options=True,
                tight_quotas=True,
                bursts=4,
                burst_messages=13,
                segment_size_bytes=200,
                parity_rate=1.0,
                bloom_capacity=500,
            ),
            id="full buffers wait for what found no room, and a sender cites fewer messages than who receives them",
        ),
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
        pytest.param(
            SimulationPlan(
                seed=6,
                participants=2,
                duration_ms=2 * MINUTE_MS,
                profile=Profile.LOGOS,
                loss=0.0,
                duplication=0.0,
                messages_per_hour=60,
                long_share=0.0,
                crashes_per_hour=0,
                absences_per_hour=0,
                joins=0,
                leaves=0,
                partitions=0,
                hostile=1,
                bursts=0,
                bloom_capacity=200,
            ),
            id="words under a name and a new id, of which nobody can check whose they are",
        ),
    ],
)
def test_a_world_that_found_a_fault_holds(plan):
    plan = replace(plan, bloom_policy=BloomPolicy.ALWAYS)  # as it was the default then
    assert_holds(plan)


def test_what_the_only_other_participant_has_is_not_given_up_where_half_gets_lost_and_no_store_has_it():
    plan = replace(
        CALM,
        seed=2,
        participants=2,
        duration_ms=360 * MINUTE_MS,
        profile=Profile.LOGOS,
        loss=0.5,
        store_gaps=1.0,
        max_delay_ms=250,
        messages_per_hour=4,
        absences_per_hour=3,
        absence_ms=3 * MINUTE_MS,
        cuts_per_hour=6,
    )
    assert_holds(plan)


def test_what_a_bad_service_node_swallowed_is_sent_again_before_it_is_too_old_though_another_one_is_silent():
    plan = replace(
        CALM,
        seed=143,
        participants=3,
        duration_ms=4 * MINUTE_MS,
        messages_per_hour=150,
        long_share=0.2,
        ephemeral_share=0.1,
        repeat_share=0.2,
        ask_all_share=0.4,
        ask_some_share=0.4,
        ask_more_share=0.2,
        refusals=0.4,
        max_delay_ms=250,
        duplication=0.1,
        segment_size_bytes=500,
        bloom_capacity=500,
        settle_ms=60 * MINUTE_MS,
        service_nodes=3,
        bad_nodes=2,
    )
    assert_holds(plan)


def test_bloom_filters_that_err_often_have_no_sender_stop_before_its_message_came():
    plan = replace(
        CALM,
        seed=2,
        participants=3,
        duration_ms=20 * MINUTE_MS,
        loss=0.4,
        store_gaps=1.0,
        repairs=False,
        max_delay_ms=100,
        messages_per_hour=60,
        long_share=0.3,
        ask_all_share=1.0,
        gap_timeout_ms=MINUTE_MS,
        bloom_capacity=100,
        bloom_error_rate=0.3,
    )
    assert_holds(plan)


@pytest.mark.parametrize(
    "plan",
    [
        replace(
            CALM,
            seed=168,
            participants=2,
            duration_ms=162_015,
            loss=0.3,
            messages_per_hour=30,
            ephemeral_share=0.3,
            ask_more_share=0.1,
            impatience=1.0,
            absence_ms=100_000,
            joins=1,
            silence=0.2,
            deaf_per_hour=1,
            mixed_options=True,
            hostile=1,
            haste=True,
            bloom_capacity=1_000,
            lost_timeout_ms=55 * MINUTE_MS,
        ),
        replace(
            CALM,
            seed=43,
            participants=2,
            duration_ms=MINUTE_MS,
            loss=0.21,
            messages_per_hour=30,
            ephemeral_share=0.3,
            repeat_share=0.4,
            crashes_per_hour=20,
            refusals=0.02,
            node_rate=1,
            silence=0.2,
            store_cuts=0.3,
            store=StoreKind.DISK,
            clock_skew_ms=MINUTE_MS,
            clock_jumps_per_hour=1,
            slow_readers=1,
            hostile=2,
            haste=True,
            rate_limit=196,
            bloom_policy=BloomPolicy.ALWAYS,
            bloom_capacity=1_000,
        ),
    ],
    ids=lambda plan: plan.seed,
)
def test_a_store_that_gave_no_answer_is_not_asked_the_same_again_at_once(plan):
    assert_holds(plan)


@pytest.mark.parametrize("seed", [1, 8])
def test_where_filters_err_often_who_cites_two_acknowledges_the_last_of_what_it_heard(seed):
    plan = replace(
        CALM,
        seed=seed,
        participants=2,
        duration_ms=2 * MINUTE_MS,
        messages_per_hour=3_600,
        mixed_options=True,
        bloom_policy=BloomPolicy.ALWAYS,
        bloom_capacity=150,
        bloom_error_rate=0.1,
    )
    assert_holds(plan)


def test_what_one_lacks_is_asked_for_often_enough_though_a_forger_cites_120_messages_that_nobody_has():
    plan = replace(
        CALM,
        seed=1_100_296,
        participants=3,
        duration_ms=1_979_000,
        loss=0.5,
        duplication=0.05,
        store_gaps=0.2,
        messages_per_hour=4,
        ask_all_share=0.7,
        absences_per_hour=12,
        absence_ms=100_000,
        leaves=1,
        partitions=1,
        partition_ms=30_000,
        partition_sides=3,
        refusals=0.4,
        clock_jumps_per_hour=5,
        direct_readers=True,
        bursts=4,
        burst_messages=14,
        hostile=1,
        bloom_capacity=1_000,
    )
    assert_holds(plan)
