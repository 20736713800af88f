"""Worlds in which no second service node makes up for what a light client gets wrong, and what is noticed in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError, StoreQueryError
from fairway.simulation.invariants import Invariant
from fairway.simulation.light.troubles import Vice
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.runner import simulate
from fairway.waku.light.filter_client import FilterClient
from fairway.waku.light.node import LightNode
from fairway.waku.light.options import LightOptions
from fairway.waku.light.peer_pool import PeerPool
from fairway.waku.light.store_client import StoreClient

PLAN = SimulationPlan(
    participants=2,
    duration_ms=240_000,
    loss=0.0,
    duplication=0.0,
    messages_per_hour=100.0,
    long_share=0.0,
    crashes_per_hour=0.0,
    absences_per_hour=0.0,
    joins=0,
    leaves=0,
    partitions=0,
    bloom_capacity=500,
    settle_ms=3_600_000,
    service_nodes=3,
    bad_nodes=2,
)
GAPS = replace(PLAN, bad_nodes=0, store_gaps=0.5, store_page=2, duration_ms=120_000, crashes_per_hour=60.0)
ALL_MUTE = replace(PLAN, service_nodes=2, vice=Vice.MUTES, duration_ms=360_000, messages_per_hour=20.0)


def said(plan):
    """Return what is said of light clients in a world."""
    found = [each for each in simulate(plan).violations if each.invariant is Invariant.SERVED]
    return " | ".join(violation.sentence for violation in found)


@pytest.mark.full
@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, vice=Vice.IDLES),
        replace(PLAN, vice=Vice.MUTES),
        replace(PLAN, vice=Vice.HANGS, bad_nodes=1),
        ALL_MUTE,
        GAPS,
    ],
)
def test_a_sound_light_client_passes(plan):
    report = simulate(plan)
    assert report.violations == ()
    assert report.delivered > 0


@pytest.mark.full
def test_a_client_that_believes_nodes_that_reach_nobody_is_noticed(monkeypatch):
    serving = PeerPool.serving
    monkeypatch.setattr(PeerPool, "serving", lambda self, *protocols: serving(self, *protocols)[:2])
    assert "counts as sent" in said(replace(PLAN, vice=Vice.IDLES, duration_ms=120_000))


@pytest.mark.full
def test_a_client_that_never_asks_whether_nodes_still_have_its_subscription_is_noticed(monkeypatch):
    start = LightNode.start

    async def trusting(peers, options=None, **named):
        return await start(peers, replace(options or LightOptions(), ping_interval_s=100_000.0), **named)

    monkeypatch.setattr(LightNode, "start", staticmethod(trusting))
    assert "keeps its subscription" in said(replace(PLAN, vice=Vice.MUTES))


@pytest.mark.full
def test_a_client_that_says_that_it_is_connected_while_nobody_has_its_subscription_is_noticed(monkeypatch):
    monkeypatch.setattr(FilterClient, "holders", property(lambda _: 2))
    assert "no service node has its subscription" in said(ALL_MUTE)


@pytest.mark.full
def test_a_client_that_asks_again_who_did_not_answer_is_noticed(monkeypatch):
    monkeypatch.setattr(PeerPool, "failed", lambda *_, **__: None)
    assert "had not answered" in said(replace(PLAN, vice=Vice.HANGS, bad_nodes=1))


def test_a_client_that_reads_one_store_to_the_end_is_noticed(monkeypatch):
    query = StoreClient.query

    async def first_pages_only(self, wanted, cursor=None):
        return replace(await query(self, wanted, cursor), cursor=None)

    monkeypatch.setattr(StoreClient, "query", first_pages_only)
    assert "a sound store had" in said(GAPS)


@pytest.mark.full
def test_a_client_whose_query_fails_although_a_store_answers_is_noticed(monkeypatch):
    async def fail(self, wanted, cursor=None):
        raise StoreQueryError("nobody answers")

    monkeypatch.setattr(StoreClient, "query", fail)
    assert "told that no store answers" in said(replace(GAPS, duration_ms=60_000))


def test_a_vice_is_one_of_bad_nodes():
    with pytest.raises(ConfigurationError, match="vice must be given with bad_nodes"):
        replace(PLAN, bad_nodes=0, vice=Vice.IDLES)
    with pytest.raises(ConfigurationError, match="bad_nodes must be less than service_nodes"):
        replace(PLAN, bad_nodes=3)
    assert "--vice idles" in replay_command(replace(PLAN, vice=Vice.IDLES))
