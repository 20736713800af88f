"""How soon messages came, how soon losses were noticed, and what of that the FURPS of SDS ask for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.options import Profile, SdsConfig
from fairway.simulation import World
from fairway.simulation.figures import Figures, loss_class
from fairway.simulation.histogram import Histogram
from fairway.simulation.ledger import Ledger
from fairway.simulation.random_plans import CALM
from fairway.simulation.runner import simulate
from fairway.simulation.wire_rules import WireRules
from fairway.waku.local import NO_FAULTS, NetworkFaults

GONE = NetworkFaults(loss=0.999_999)


@pytest.fixture
def story():
    """Return a perfect network with Alice and Bob, and a ledger that watches it."""
    with World([], seed=1) as world:
        ledger = Ledger(lambda *_: True, WireRules(Profile.WAKU, SdsConfig()))
        world.observers.append(ledger)
        for name in ("alice", "bob"):
            ledger.joined(name)
            world.join(name)
        world.run(1_000)
        yield world, ledger


def say(world, ledger, name, payload):
    ledger.tried(world.now_ms, name, world.send(name, payload), payload)


def test_a_loss_is_noticed_when_the_next_message_tells_of_it_and_not_before(story):
    world, ledger = story
    world.network.faults = GONE
    say(world, ledger, "alice", b"lost")
    world.run(1_500)
    world.network.faults = NO_FAULTS
    assert (len(ledger.unnoticed()), ledger.noticed_ms) == (1, [])
    say(world, ledger, "alice", b"heard")
    world.run(100)
    assert (ledger.unnoticed(), ledger.noticed_ms) == ([], [1_500])


def test_a_loss_that_is_made_good_before_anything_tells_of_it_is_noticed_then(story):
    world, ledger = story
    world.network.faults = GONE
    say(world, ledger, "alice", b"lost")
    world.run(1_000)
    world.network.faults = NO_FAULTS
    world.run(60_000, lambda: not ledger.unnoticed())
    (noticed_ms,) = ledger.noticed_ms
    assert 1_000 < noticed_ms < 60_000
    assert "bob" in ledger.sent[0].deliveries or world.participants["bob"].stack.statistics().missing


def test_what_was_lost_on_the_way_to_somebody_who_left_needs_no_noticing(story):
    world, ledger = story
    world.network.faults = GONE
    say(world, ledger, "alice", b"lost")
    world.run(1_000)
    world.leave("bob")
    ledger.left(world.now_ms, "bob")
    assert ledger.unnoticed() == []


def test_where_the_network_loses_nothing_no_loss_is_noticed():
    plan = replace(CALM, participants=3, duration_ms=120_000, messages_per_hour=200.0)
    figures = Figures.of(simulate(plan))
    assert (figures.losses, figures.noticed.count, figures.noticed_within_3s) == (0, 0, None)
    # What is said once the world is healed is no part of them.
    assert 20 < figures.first.count < figures.messages
    assert (figures.first.within(1_000), figures.consistent_within_6s) == (figures.first.count, 1.0)


def test_where_it_loses_a_third_every_loss_is_noticed_some_before_they_are_made_good():
    plan = replace(CALM, participants=4, duration_ms=300_000, messages_per_hour=200.0, loss=0.3)
    report = simulate(plan)
    figures = Figures.of(report)
    assert report.ok
    assert report.unnoticed == 0
    assert 0 < figures.losses == figures.noticed.count < report.network_lost
    assert (figures.noticed.percentile(50) or 0) <= (figures.last.percentile(50) or 0)


def test_shares_are_of_what_the_furps_ask_for():
    figures = Figures(
        known=Histogram.of([100, 5_000, 6_000, 7_000]),
        noticed=Histogram.of([14_000, 15_000, 20_000]),
        losses=4,
        last=Histogram.of([29_000, 31_000]),
    )
    assert figures.known_within_s == 0.5
    assert figures.noticed_within_3s == 0.5
    assert figures.consistent_within_6s == 0.5


def test_figures_go_to_a_record_and_back():
    figures = Figures.of(
        simulate(replace(CALM, participants=3, duration_ms=120_000, messages_per_hour=200.0, loss=0.2))
    )
    told = json.loads(json.dumps((figures + figures).as_json()))
    assert Figures.of_json(told) == figures + figures
    assert told["messages"] == 2 * figures.messages > 0
    assert sum(told["each_ms"].values()) == 2 * figures.each.count > 0


@pytest.mark.parametrize(
    "changed", [{"worlds": -1}, {"worlds": "3"}, {"noticed_ms": []}, {"transmitted_bytes": {"gossip": 1}}]
)
def test_what_are_no_figures_is_refused(changed):
    with pytest.raises(ConfigurationError, match="these are no figures of worlds"):
        Figures.of_json(Figures().as_json() | changed)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 0), (0.01, 10), (0.149, 10), (0.3, 30), (0.46, 50)])
def test_a_world_without_loss_is_in_a_class_of_its_own(loss, expected):
    assert loss_class(loss) == expected
