"""A tour of all kinds of trouble: small worlds, each with a few kinds that go together, and each within about a second.

It is what ``fairway simulate`` runs by itself. Worlds drawn at random (`random_plans.draw_plan`) come to more in the
long run, but many of them are needed until each kind was there; here each is met, and often: what happens once an hour
elsewhere happens every minute. `tour_plan` takes a seed as `draw_plan` does; those that follow one another are of
different kinds, and after all kinds the same ones come with other chances.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from fairway.options import Delivery, Profile
from fairway.simulation.plan import SimulationPlan, StoreKind
from fairway.units import HOUR_MS

_MINUTE_MS: Final = HOUR_MS // 60

_QUIET: Final = SimulationPlan(
    participants=3,
    duration_ms=4 * _MINUTE_MS,
    loss=0.0,
    messages_per_hour=150.0,
    long_share=0.2,
    repeat_share=0.2,
    ask_all_share=0.4,
    ask_some_share=0.4,
    ask_more_share=0.2,
    crashes_per_hour=0.0,
    absences_per_hour=0.0,
    joins=0,
    leaves=0,
    partitions=0,
    segment_size_bytes=500,
    bloom_capacity=500,
    settle_ms=HOUR_MS,
)
"""What a kind leaves as it is: few participants who talk much, in a network that only delays and duplicates."""

KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"loss": 0.3, "crashes_per_hour": 30.0, "mixed_options": True},
    {
        "store": StoreKind.DISK,
        "disk_ms": 400,
        "storage_faults_per_hour": 30.0,
        "crashes_per_hour": 20.0,
        "loss": 0.1,
        "bursts": 1,
        "burst_messages": 8,
    },
    {
        "profile": Profile.LOGOS,
        "loss": 0.3,
        "crashes_per_hour": 20.0,
        "long_share": 0.3,
        "lost_timeout_ms": 10 * _MINUTE_MS,
    },
    {
        "absences_per_hour": 30.0,
        "absence_ms": _MINUTE_MS,
        "deaf_per_hour": 10.0,
        "node_deaths_per_hour": 10.0,
        "store_page": 2,
        "partitions": 1,
        "partition_ms": _MINUTE_MS,
        "joins": 1,
        "leaves": 1,
        "participants": 4,
        "loss": 0.1,
    },
    {
        "rate_limit": 28,
        "duration_ms": 32 * _MINUTE_MS,
        "messages_per_hour": 20.0,
        "ephemeral_share": 0.3,
        "bursts": 2,
        "burst_messages": 8,
        "crashes_per_hour": 12.0,
        "clock_jumps_per_hour": 4.0,
        "loss": 0.1,
        "refusals": 0.1,
        "answer_loss": 0.1,
    },
    {
        "slow_readers": 1,
        "handler_failures": 0.5,
        "direct_readers": True,
        "pauses_per_hour": 20.0,
        "crashes_per_hour": 20.0,
        "bursts": 2,
        "burst_messages": 8,
        "store": StoreKind.DISK,
        "loss": 0.1,
        "option_changes": 0.5,
    },
    {
        "encrypted": True,
        "cipher_delay_ms": 500,
        "cipher_failures": 0.1,
        "long_share": 0.4,
        "crashes_per_hour": 10.0,
        "bursts": 1,
        "burst_messages": 5,
    },
    {
        "refusals": 0.2,
        "answer_loss": 0.1,
        "silence": 0.05,
        "slow_uplinks": 1,
        "node_rate": 1.0,
        "tight_quotas": True,
        "bursts": 1,
        "burst_messages": 30,
        "messages_per_hour": 60.0,
        "crashes_per_hour": 30.0,
    },
    {
        "store_gaps": 1.0,
        "store_page": 5,
        "loss": 0.35,
        "parity_rate": 0.5,
        "long_share": 0.5,
        "participants": 4,
        "messages_per_hour": 90.0,
        "crashes_per_hour": 20.0,
        "leaves": 1,
    },
    {"messages_per_hour": 700.0, "long_share": 0.0, "bloom_capacity": 100, "max_history": 60, "mixed_options": True},
    {
        "clock_skew_ms": 2 * _MINUTE_MS,
        "clock_jumps_per_hour": 20.0,
        "absences_per_hour": 6.0,
        "absence_ms": 30 * _MINUTE_MS,
        "lost_timeout_ms": 8 * _MINUTE_MS,
        "duration_ms": 60 * _MINUTE_MS,
        "messages_per_hour": 20.0,
        "loss": 0.2,
    },
    {"hostile": 2, "loss": 0.1, "long_share": 0.4, "lost_timeout_ms": 10 * _MINUTE_MS, "crashes_per_hour": 10.0},
    {
        "tight_quotas": True,
        "pauses_per_hour": 40.0,
        "slow_readers": 2,
        "bursts": 3,
        "burst_messages": 25,
        "loss": 0.3,
        "absences_per_hour": 15.0,
        "absence_ms": _MINUTE_MS,
    },
    {
        "delivery": Delivery.ARRIVAL,
        "lost_timeout_ms": 10 * _MINUTE_MS,
        "loss": 0.3,
        "crashes_per_hour": 20.0,
        "max_delay_ms": 2_000,
        "absences_per_hour": 10.0,
        "absence_ms": _MINUTE_MS,
    },
    {
        "profile": Profile.LOGOS,
        "store": StoreKind.DISK,
        "handler_failures": 0.2,
        "partitions": 1,
        "partition_ms": _MINUTE_MS,
        "answer_loss": 0.1,
        "crashes_per_hour": 20.0,
        "long_share": 0.4,
        "parity_rate": 0.5,
        "loss": 0.1,
    },
    {
        "store_lag_ms": 10_000,
        "store_page": 20,
        "store_lies": 0.4,
        "duplication": 0.5,
        "max_delay_ms": 2_000,
        "duration_ms": 8 * _MINUTE_MS,
        "messages_per_hour": 120.0,
        "long_share": 0.0,
        "absences_per_hour": 12.0,
        "absence_ms": 5 * _MINUTE_MS,
        "crashes_per_hour": 10.0,
    },
    {
        "cuts_per_hour": 60.0,
        "bursts": 3,
        "burst_messages": 8,
        "messages_per_hour": 60.0,
        "loss": 0.3,
        "refusals": 0.5,
        "slow_uplinks": 1,
    },
    {
        "tiny_quotas": True,
        "lost_timeout_ms": 10 * _MINUTE_MS,
        "bursts": 4,
        "burst_messages": 12,
        "loss": 0.3,
        "absences_per_hour": 10.0,
        "absence_ms": _MINUTE_MS,
    },
    {
        "store_gaps": 0.7,
        "loss": 0.4,
        "duration_ms": 60 * _MINUTE_MS,
        "messages_per_hour": 15.0,
        "absences_per_hour": 6.0,
        "absence_ms": 15 * _MINUTE_MS,
        "lost_timeout_ms": 10 * _MINUTE_MS,
    },
    {
        "encrypted": True,
        "cipher_failures": 0.6,
        "loss": 0.2,
        "long_share": 0.2,
        "messages_per_hour": 60.0,
        "duration_ms": 10 * _MINUTE_MS,
    },
    {
        "hostile": 1,
        "haste": True,
        "duration_ms": 12 * _MINUTE_MS,
        "messages_per_hour": 30.0,
        "long_share": 0.4,
        "answer_loss": 0.2,
        "lost_timeout_ms": 10 * _MINUTE_MS,
    },
    {
        "hostile": 1,
        "haste": True,
        "tight_quotas": True,
        "reassembly_timeout_ms": _MINUTE_MS,
        "duration_ms": 3 * _MINUTE_MS,
        "messages_per_hour": 60.0,
        "lost_timeout_ms": 5 * _MINUTE_MS,
    },
    {
        "reassembly_timeout_ms": 40_000,
        "store_gaps": 1.0,
        "loss": 0.35,
        "long_share": 0.5,
        "parity_rate": 0.5,
        "lost_timeout_ms": 40 * _MINUTE_MS,
        "crashes_per_hour": 10.0,
    },
    {
        "repairs": False,
        "store_gaps": 1.0,
        "loss": 0.4,
        "ask_all_share": 1.0,
        "long_share": 0.4,
        "bloom_error_rate": 0.1,
        "bloom_capacity": 100,
        "crashes_per_hour": 10.0,
    },
    {
        "tiny_quotas": True,
        "refusals": 0.5,
        "loss": 0.3,
        "store_gaps": 0.7,
        "bursts": 3,
        "burst_messages": 8,
        "messages_per_hour": 60.0,
    },
)
"""What is otherwise in each."""


def tour_plan(seed: int, **given: Any) -> SimulationPlan:
    """Return the world of a tour that a seed stands for, with the fields that are given in place of its own."""
    kind = KINDS[(seed - 1) % len(KINDS)]
    own = {field.name: kind.get(field.name, getattr(_QUIET, field.name)) for field in fields(_QUIET)}
    return replace(_QUIET, **own | {"seed": seed} | given)
