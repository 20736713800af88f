"""Worlds whose network asks for RLN proofs: what participants send is proven, and their memberships last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError, RlnError
from fairway.protocol.outgoing.dispatching import Outbound
from fairway.protocol.ratelimit.epoch import EpochCounter
from fairway.protocol.ratelimit.quota import Quota, QuotaSource
from fairway.rln.message_ids import MessageIds
from fairway.simulation.invariants import Invariant
from fairway.simulation.memberships import Memberships
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.runner import simulate

PLAN = SimulationPlan(
    participants=2,
    duration_ms=600_000,
    loss=0.1,
    messages_per_hour=40,
    long_share=0.0,
    crashes_per_hour=10,
    absences_per_hour=0,
    joins=0,
    leaves=0,
    partitions=0,
    bloom_capacity=200,
    settle_ms=3_600_000,
    rln_limit=16,
)
SHARED = replace(PLAN, rln_shared=True, bursts=2, burst_messages=10, crashes_per_hour=0)


def broken(plan=PLAN):
    """Return which invariants a world violates."""
    return {violation.invariant for violation in simulate(plan).violations}


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, rate_limit=24, rln_failures=0.3), SHARED])
def test_a_sound_world_passes(plan):
    report = simulate(plan)
    assert report.violations == ()
    assert report.delivered > 0


def test_every_other_membership_allows_twice_as_much():
    memberships = Memberships(5, seed=1)
    assert [memberships.limit_of(name) for name in ("alice", "bob", "carol", "alice")] == [5, 10, 5, 5]
    memberships.close()


def test_a_membership_knows_in_its_next_life_what_was_used_and_gives_out_no_more():
    memberships = Memberships(2, seed=1)
    memberships.open("alice").generate_proof(b"one", 0)
    again = memberships.open("alice")
    assert again.epoch_quota(0).remaining == 1
    again.generate_proof(b"two", 0)
    with pytest.raises(RlnError, match="all 2 message ids"):
        again.generate_proof(b"three", 0)
    memberships.close()


def test_what_counts_as_being_handed_out_for_ever_is_noticed(monkeypatch):
    proven, waits, out = Outbound.proven, Outbound.waits, set()

    def note(self, token):
        stamped = proven(self, token)
        out.add((self, stamped.transmission.sds_id))
        return stamped

    monkeypatch.setattr(Outbound, "proven", note)
    monkeypatch.setattr(Outbound, "waits", lambda self, sds_id: (self, sds_id) in out or waits(self, sds_id))
    assert Invariant.REPEATED in broken(replace(PLAN, loss=0.3))


def test_own_messages_that_count_twice_are_noticed(monkeypatch):
    report = EpochCounter.report_used
    monkeypatch.setattr(EpochCounter, "report_used", lambda self, total: report(self, total + self.own))
    assert Invariant.WAKES in broken()


def test_a_quota_of_the_membership_that_nobody_keeps_is_noticed(monkeypatch):
    tell = Quota.tell

    def ignore(self, source, **said):
        return source is not QuotaSource.PROVIDER and tell(self, source, **said)

    monkeypatch.setattr(Quota, "tell", ignore)
    assert broken() & {Invariant.WIRE, Invariant.WAKES}


def test_a_charge_that_stays_for_what_got_no_proof_is_noticed(monkeypatch):
    monkeypatch.setattr(Quota, "refund", lambda *_: None)
    assert Invariant.RATE in broken(replace(PLAN, rln_failures=0.5, crashes_per_hour=0, duration_ms=1_800_000))


def test_a_message_id_that_is_used_again_after_a_crash_is_noticed(monkeypatch):
    reserve = MessageIds.reserve
    used = {}

    def forget(self, commitment, epoch, limit, signal):
        reserve(self, commitment, epoch, limit, signal)
        number = used[id(self), epoch] = used.get((id(self), epoch), -1) + 1
        return number

    monkeypatch.setattr(MessageIds, "reserve", forget)
    assert Invariant.PROVEN in broken()


def test_a_message_without_a_proof_is_noticed(monkeypatch):
    hand_out = Outbound.hand_out
    monkeypatch.setattr(
        Outbound, "hand_out", lambda self, token, stamped, _, now_ms: hand_out(self, token, stamped, None, now_ms)
    )
    assert Invariant.PROVEN in broken()


def test_more_than_a_membership_allows_is_noticed(monkeypatch):
    reserve = MessageIds.reserve
    monkeypatch.setattr(
        MessageIds,
        "reserve",
        lambda self, commitment, epoch, limit, signal: reserve(self, commitment, epoch, 2 * limit, signal),
    )
    assert Invariant.PROVEN in broken(SHARED)


def test_what_ails_memberships_needs_some():
    with pytest.raises(ConfigurationError, match="rln_failures must be 0 without rln_limit"):
        replace(PLAN, rln_limit=None, rln_failures=0.1)
    assert "--rln-limit 16" in replay_command(PLAN)
