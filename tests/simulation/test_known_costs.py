"""What a tour costs, compared with what is known: a change in most worlds is told, and chance is not."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from fairway.cli import app
from fairway.simulation.known_costs import KnownCosts, TourCosts
from fairway.simulation.runner import simulate
from fairway.simulation.tour import KINDS, tour_plan

SEEDS = range(1, len(KINDS) + 1)
CHEAP = 29
"""A world of the tour that takes a fraction of a second."""


def tours(count, change=lambda seed, costs: costs):
    """Return the costs of several tours, in which chance makes a fifth at most in each world."""
    dice = random.Random(7)
    return [
        {
            seed: change(
                seed,
                {
                    "writes": round(100 * seed * dice.uniform(0.8, 1.2)),
                    "sync bytes": round(10_000 * seed * dice.uniform(0.8, 1.2)),
                    "delivery: 95 % ms": round(1_000 * seed * dice.uniform(0.8, 1.2)),
                },
            )
            for seed in SEEDS
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def known():
    return KnownCosts.of_runs(tours(8))


def told(known, change):
    (tour,) = tours(1, change)
    return {each.figure: each for each in known.unusual(tour)}


def test_what_chance_makes_is_not_unusual(known):
    assert not any(known.unusual(tour) for tour in tours(20))


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2])
def test_what_costs_more_or_less_in_each_world_is_told_with_the_factor(known, factor):
    found = told(known, lambda _, costs: costs | {"writes": round(costs["writes"] * factor)})
    assert found.keys() == {"writes"}
    assert found["writes"].factor == pytest.approx(factor, rel=0.1)
    assert f"{found['writes'].factor:.2f} times what is known" in found["writes"].sentence


def test_what_comes_to_cost_ten_times_as_much_in_a_few_worlds_is_told(known):
    found = told(known, lambda seed, costs: costs | {"sync bytes": costs["sync bytes"] * (10 if seed < 8 else 1)})
    assert found.keys() == {"sync bytes"}


def test_what_ceases_is_told(known):
    assert told(known, lambda _, costs: costs | {"writes": 0}).keys() == {"writes"}
    assert told(known, lambda _, costs: {"writes": costs["writes"], "sync bytes": costs["sync bytes"]}).keys() == {
        "delivery: 95 % ms"
    }


def test_what_nothing_is_known_of_is_not_compared(known):
    assert not told(known, lambda _, costs: costs | {"postcards": 12})


def test_what_is_known_is_the_same_after_it_was_written_and_read(known):
    again = KnownCosts.of_text(known.as_text())
    assert again.as_text() == known.as_text()
    assert not any(again.unusual(tour) for tour in tours(20))


def test_what_comes_with_the_package_is_of_each_world_of_the_tour():
    figures = json.loads(KnownCosts.load().as_text())
    assert {len(of["typical"]) for of in figures.values()} == {len(KINDS)}
    assert {"content messages", "retry messages", "sync bloom bytes", "pages asked by hash", "writes"} <= figures.keys()


def test_a_world_has_costs_which_other_chances_change():
    report = simulate(tour_plan(CHEAP))
    assert report.costs == simulate(tour_plan(CHEAP)).costs
    sent = report.costs
    assert sent["content messages"] >= report.sent
    assert sent["writes"] > report.sent
    other = simulate(tour_plan(CHEAP), chances=3)
    assert other.sent == report.sent
    assert other.costs != report.costs


def test_a_tour_is_compared_when_each_of_its_worlds_ended_and_no_others_count(known):
    report = simulate(tour_plan(CHEAP))
    costs = TourCosts(known)
    for seed in SEEDS:
        assert not costs.is_whole
        assert costs.unusual() == []
        costs.add(replace(report, plan=tour_plan(seed + len(KINDS)), costs={"writes": 1}))
        costs.add(replace(report, plan=tour_plan(seed, loss=0.6), costs={"writes": 1}))
        costs.add(replace(report, plan=tour_plan(seed), costs={"writes": 200 * seed}))
    assert costs.is_whole
    assert "writes" in {each.figure for each in costs.unusual()}


@pytest.mark.full
def test_the_tour_costs_what_it_is_known_to_cost():
    result = CliRunner().invoke(app, ["simulate", "--tour", "--json"])
    answer = json.loads(result.stdout)
    assert (answer["broken"], answer["unusual"]) == ([], [])
    assert result.exit_code == 0
