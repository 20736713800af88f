"""How soon messages came, how soon losses were noticed, and what of that the FURPS of SDS ask for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.options import Profile, SdsConfig
from fairway.protocol.effects import Purpose
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
    # What is said in the scenes, once the world is healed, is no part of them.
    assert figures.first.count == figures.messages == 21
    assert (figures.first.within(1_000), figures.consistent_within_6s) == (figures.first.count, 1.0)


@pytest.mark.full
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


# What it costs


@pytest.mark.full
def test_the_parts_of_all_purposes_are_what_was_transmitted():
    plan = replace(CALM, participants=3, duration_ms=300_000, messages_per_hour=60.0, loss=0.3, long_share=0.3)
    report = simulate(plan)
    figures = Figures.of(report)
    assert sum(figures.part_bytes.values()) == sum(figures.transmitted_bytes.values()) == report.transmitted_bytes
    assert all(figures.part_bytes[part] > 0 for part in ("content", "history", "rest"))
    by_purpose = {traffic.purpose: traffic for traffic in report.traffic}
    assert by_purpose[Purpose.SYNC].content_bytes == 0
    assert report.payload_bytes <= by_purpose[Purpose.CONTENT].content_bytes


def test_citations_are_counted_as_they_stand_on_the_wire(story):
    world, ledger = story
    for number in range(4):
        say(world, ledger, "alice", b"%d" % number)
        world.run(100)
    # A message id of 64 characters, a hint of 32 bytes and a sender id of 5, each with tag and length, make 107 bytes,
    # and 109 with those of the entry; the first message cites nothing, the second one message, the others two each.
    assert ledger.bytes[Purpose.CONTENT]["history"] == 5 * 109
    assert ledger.bytes[Purpose.CONTENT]["content"] == 4


@pytest.mark.full
def test_all_acknowledgements_and_mended_losses_are_timed():
    plan = replace(CALM, participants=3, duration_ms=600_000, messages_per_hour=60.0, loss=0.3, ask_all_share=1.0)
    report = simulate(plan)
    assert 0 < report.full_acknowledgement.count <= report.sent
    assert (report.full_acknowledgement.p50_ms or 0) >= (report.first_acknowledgement.p50_ms or 0) > 0
    assert report.mending.count == report.noticed.count > 0
    assert (report.mending.p95_ms or 0) >= (report.noticed.percentile(50) or 0) > 0
    assert report.full_acknowledgements.count == report.full_acknowledgement.count


def test_what_an_idle_channel_transmits_is_counted_by_hour_and_participant(story):
    world, ledger = story
    say(world, ledger, "alice", b"good night")
    world.run(600_000)
    assert (ledger.idle_bytes, ledger.idle_until(world.now_ms)) == (0, 0)
    before = sum(sum(parts.values()) for parts in ledger.bytes.values())
    world.run(7_200_000)
    assert ledger.idle_bytes == sum(sum(parts.values()) for parts in ledger.bytes.values()) - before > 0
    assert ledger.idle_until(world.now_ms) == pytest.approx(2 * 7_200_000, abs=10_000)
    say(world, ledger, "bob", b"good morning")
    world.run(1_000)
    assert ledger.idle_ms == pytest.approx(2 * 7_200_000, abs=10_000)
    assert ledger.idle_until(world.now_ms) == 0


def test_a_record_of_an_earlier_version_has_no_costs_and_is_read():
    told = Figures().as_json()
    for name in ("part_bytes", "idle_bytes", "idle_ms", "known_of_all_ms", "mended_ms"):
        del told[name]
    assert Figures.of_json(told) == Figures()
