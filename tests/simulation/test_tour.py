"""The tour of all kinds of trouble, which ``fairway simulate`` runs by itself."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from fairway.cli.simulate import command
from fairway.errors import ConfigurationError
from fairway.simulation import random_plans
from fairway.simulation.campaign import Campaign
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.runner import simulate
from fairway.simulation.tour import KINDS, tour_plan

SIZE = {"seed", "participants", "duration_ms", "settle_ms"}
"""Of a plan what is no trouble."""


def run(*words):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(words))


def drawn_fields():
    """Return the fields in which drawn worlds differ."""
    plans = [draw_plan(seed) for seed in range(1, 200)]
    names = {field.name for field in fields(SimulationPlan)} - SIZE
    return {name for name in names if len({getattr(plan, name) for plan in plans}) > 1}


def test_whatever_trouble_is_drawn_for_worlds_is_met_on_the_tour():
    tour = [tour_plan(seed) for seed in range(1, len(KINDS) + 1)]
    met = {name for name in drawn_fields() for plan in tour if getattr(plan, name) != getattr(random_plans.CALM, name)}
    lacking = drawn_fields() - met
    assert lacking <= {"partition_sides"}, "give each a place in one of KINDS"


def test_kinds_follow_one_another_and_come_again_with_other_chances():
    first, again = tour_plan(3), tour_plan(3 + len(KINDS))
    assert (first.profile, first.loss) == (again.profile, again.loss) != (tour_plan(4).profile, tour_plan(4).loss)
    assert first.seed != again.seed


def test_what_is_given_holds_for_all_of_the_tour():
    assert {tour_plan(seed, participants=5).participants for seed in range(1, len(KINDS) + 1)} == {5}


@pytest.mark.full
def test_a_tour_can_be_asked_for_in_part():
    result = run("--tour", "--worlds", "2", "--first-seed", "7", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["worlds"], answer["broken"]) == (0, 2, [])


def test_a_calm_tour_is_refused():
    result = run("--tour", "--calm")
    assert isinstance(result.exception, ConfigurationError)
    assert "leave one of them out" in str(result.exception)


def test_without_options_each_kind_of_trouble_is_met_once(monkeypatch):
    plans = []

    def note(campaign):
        plans.extend(campaign.draw(seed, **campaign.given) for seed in range(1, campaign.worlds + 1))
        yield from ()

    monkeypatch.setattr(Campaign, "outcomes", note)
    assert run().exit_code == 0
    assert plans == [tour_plan(seed) for seed in range(1, len(KINDS) + 1)]


_IMPOSSIBLE = {116}
"""Without repairs nobody can give what one did not hear and no store kept, and its author need not send it again."""


@pytest.mark.full
@pytest.mark.parametrize("seed", sorted({*range(1, 3 * len(KINDS) + 1)} - _IMPOSSIBLE))
def test_the_tour_holds_whatever_its_chances(seed):
    assert simulate(tour_plan(seed)).violations == ()
