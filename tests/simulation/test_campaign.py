"""Many worlds in processes: whatever becomes of one is an outcome, and whoever stops ends them all."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from fairway.errors import ConfigurationError
from fairway.simulation.campaign import Campaign, CampaignTally, broken_row, row_of, rows_in
from fairway.simulation.figures import Figures, add_up, loss_class
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.runner import simulate
from fairway.simulation.workers import ENDS, RAISES, run_worlds
from patience import PATIENCE_S

LIMITS = {"limit_s": 600.0, "wall_s": 600.0}


@pytest.fixture(scope="module")
def module():
    """Return this folder's module of worlds, which the processes that run them import by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield import_module("campaign_worlds")


@pytest.fixture(scope="module")
def worlds(module):
    return module.Worlds.after_one()


def drawn(count):
    return [draw_plan(seed) for seed in range(count)]


def test_every_plan_comes_to_an_outcome_in_several_processes(worlds):
    outcomes = list(run_worlds(drawn(7), jobs=2, **LIMITS, world=worlds.breaks_in_every_third_world))
    assert {outcome.plan for outcome in outcomes} == set(drawn(7))
    assert {outcome.plan.seed for outcome in outcomes if not outcome.ok} == {0, 3, 6}
    assert {outcome.violations for outcome in outcomes if outcome.plan.seed == 3} == {
        (("causal order", "seed 3 overtook"),)
    }
    assert not multiprocessing.active_children()


def test_a_world_run_in_a_process_is_the_world_run_here():
    plan = draw_plan(4, participants=3, duration_ms=60_000)
    (outcome,) = run_worlds([plan], jobs=1, **LIMITS)
    assert outcome.report == simulate(plan)
    assert outcome.cpu_s > 0


def test_a_world_finds_nothing_in_memory_that_another_one_left(worlds):
    assert all(outcome.ok for outcome in run_worlds(drawn(3), jobs=1, **LIMITS, world=worlds.finds_what_ran_before))


def test_a_world_that_raises_is_broken_with_the_traceback_as_its_sentence_and_others_go_on(module):
    outcomes = list(run_worlds(drawn(3), jobs=1, **LIMITS, world=module.raises))
    assert [outcome.violations[0][0] for outcome in outcomes] == [RAISES] * 3
    assert outcomes[2].violations[0][1].startswith("Traceback")
    assert outcomes[2].violations[0][1].endswith("LookupError: nobody called 2")
    assert outcomes[2].report is None


def test_a_world_that_never_ends_is_broken_and_says_where_it_was(module):
    (outcome,) = run_worlds(drawn(1), jobs=1, limit_s=0.2, wall_s=600.0, world=module.never_ends)
    assert outcome.violations[0][0] == ENDS
    assert "in never_ends" in outcome.violations[0][1]


@pytest.mark.full
def test_a_world_of_many_may_take_longer_before_it_counts_as_one_that_never_ends(module):
    plan = replace(drawn(1)[0], participants=100)
    (outcome,) = run_worlds([plan], jobs=1, limit_s=0.1, wall_s=600.0, world=module.never_ends)
    assert outcome.violations[0][1].startswith("the world was ended after 0.25 s of CPU time")


def test_a_world_whose_process_dies_is_broken_and_others_go_on(worlds):
    outcomes = list(run_worlds(drawn(5), jobs=1, **LIMITS, world=worlds.kills_its_process))
    assert [outcome.plan.seed for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert [outcome.ok for outcome in outcomes] == [True, True, False, True, True]
    assert outcomes[2].violations == ((RAISES, f"the world's process ended with exit code {-signal.SIGSEGV}"),)


def test_a_world_that_waits_for_ever_without_doing_anything_is_broken(module):
    (outcome,) = run_worlds(drawn(1), jobs=1, limit_s=600.0, wall_s=0.5, world=module.sleeps_for_ever)
    assert outcome.violations == ((ENDS, "the world was ended after 0.5 s in which it did little"),)


def test_closing_the_iterator_ends_the_worlds_that_run(worlds):
    outcomes = run_worlds(drawn(5), jobs=3, **LIMITS, world=worlds.fine_but_for_one)
    assert next(outcomes).ok
    outcomes.close()
    assert not multiprocessing.active_children()


def test_a_campaign_draws_its_plans_from_seeds_that_follow_one_another(worlds):
    campaign = Campaign(worlds=3, first_seed=40, given={"loss": 0.5}, world=worlds.fine)
    assert [outcome.plan for outcome in campaign.outcomes()] == [draw_plan(s, loss=0.5) for s in (40, 41, 42)]


@pytest.mark.full
def test_a_campaign_begins_no_world_once_its_budget_is_used_up(worlds):
    assert list(Campaign(worlds=9, budget_s=1e-9, world=worlds.fine).outcomes()) == []
    some = 0
    for some, _ in enumerate(Campaign(budget_s=2.0, world=worlds.fine).outcomes(), 1):  # noqa: B007
        pass
    assert some > 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({}, "give a number of worlds, a budget, or both"),
        ({"worlds": 0}, "worlds must be at least 1, not 0"),
        ({"worlds": 1, "jobs": 0}, "jobs must be 1 to 1024, not 0"),
        ({"worlds": 1, "first_seed": -1}, "first_seed must be 0 or more, not -1"),
        ({"budget_s": -1.0}, r"budget_s must be more than 0 seconds, not -1\.0"),
        ({"budget_s": float("nan")}, "budget_s must be more than 0 seconds, not nan"),
        ({"worlds": 1, "world_s": 0.0}, r"world_s must be more than 0 seconds, not 0\.0"),
        ({"worlds": 1, "given": {"seed": 4}}, "give the first one as first_seed"),
        ({"worlds": 1, "given": {"loss": 1.0}}, "loss must be 0 or more and less than 1"),
    ],
)
def test_a_campaign_that_cannot_be_is_refused_with_what_could(words, text):
    with pytest.raises(ConfigurationError, match=text):
        Campaign(**words)


def test_a_broken_world_is_shrunk_to_the_smallest_that_violates_the_same_invariant(worlds):
    campaign = Campaign(
        worlds=1, given={"participants": 9, "loss": 0.5}, world=worlds.breaks_with_loss_in_company, shrink_s=600.0
    )
    (outcome,) = campaign.outcomes()
    tried = []
    shrunk = campaign.shrunk(outcome, tried.append)
    assert 4 <= shrunk.plan.participants <= 5
    assert 0 < shrunk.plan.loss < 0.5
    assert shrunk.violations[0][0] == "causal order"
    assert tried


def test_a_world_that_cannot_be_shrunk_in_time_is_given_back_as_it_is(worlds):
    campaign = Campaign(worlds=1, first_seed=3, world=worlds.breaks_in_every_third_world, shrink_s=1e-9)
    (outcome,) = campaign.outcomes()
    assert campaign.shrunk(outcome) == outcome


def test_the_figures_of_a_world_are_plain_json():
    plan = draw_plan(4, participants=3, duration_ms=60_000, messages_per_hour=300.0)
    (outcome,) = run_worlds([plan], jobs=1, **LIMITS)
    row = json.loads(json.dumps(row_of(outcome)))
    report = simulate(plan)
    assert row["bytes_per_delivery"] == report.transmitted_bytes // report.delivered > 0
    assert (row["seed"], row["participants"], row["loss"], row["ok"]) == (4, 3, plan.loss, True)
    assert (row["messages"], row["p95_delivery_ms"]) == (report.sent, report.delivery.p95_ms)
    assert row["replay"].startswith("fairway simulate --participants 3 ")


def test_a_tally_counts_worlds_and_keeps_the_broken_ones(worlds):
    tally = CampaignTally()
    outcomes = list(run_worlds(drawn(4), jobs=1, **LIMITS, world=worlds.breaks_in_every_third_world))
    for outcome in outcomes:
        tally.add(outcome)
    assert (tally.worlds, [each.plan.seed for each in tally.broken]) == (4, [0, 3])
    virtual_ms = sum(outcome.report.virtual_ms for outcome in outcomes if outcome.report is not None)
    assert tally.virtual_ms == virtual_ms
    told = json.loads(json.dumps(broken_row(tally.broken[1], tally.broken[0])))
    assert told["plan"]["seed"] == 3
    assert told["violations"] == [{"invariant": "causal order", "sentence": "seed 3 overtook"}]
    assert told["shrunk"]["plan"]["seed"] == 0


@pytest.mark.full
def test_figures_of_worlds_of_the_same_loss_add_up():
    tally = CampaignTally()
    plans = [draw_plan(seed, participants=3, duration_ms=60_000, messages_per_hour=300.0) for seed in (1_476, 1_477)]
    outcomes = list(run_worlds(plans, jobs=1, **LIMITS))
    for outcome in outcomes:
        tally.add(outcome)
    assert list(tally.figures) == [0]
    figures = tally.figures[0]
    assert (figures.worlds, figures.virtual_ms) == (2, tally.virtual_ms)
    delivered = sum(outcome.report.delivered for outcome in outcomes if outcome.report is not None)
    assert figures.deliveries == delivered > 0
    assert figures.each.count == figures.deliveries
    rows = [json.loads(json.dumps(row_of(outcome))) for outcome in outcomes]
    assert add_up((loss_class(row["loss"]), Figures.of_json(row["figures"])) for row in rows) == tally.figures


def test_a_record_whose_last_line_was_being_written_is_read_up_to_it(tmp_path):
    record = tmp_path / "worlds.jsonl"
    record.write_text('{"seed": 1, "loss": 0.0, "ok": true}\n{"seed": 2, "lo')
    assert [row["seed"] for row in rows_in(record)] == [1]


@pytest.mark.parametrize("line", ["[]", "{", '{"seed": 1}'])
def test_what_is_no_record_is_refused_with_the_line(tmp_path, line):
    record = tmp_path / "worlds.jsonl"
    record.write_text('{"seed": 1, "loss": 0.0, "ok": true}\n' + line + "\n")
    with pytest.raises(ConfigurationError, match=r"line 2 of .*worlds\.jsonl is no world"):
        list(rows_in(record))


SCRIPT = """
import os, pathlib, sys, time
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.workers import run_worlds

def forever(plan):
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    while True:
        time.sleep(1)

if __name__ == "__main__":
    list(run_worlds([draw_plan(1)], jobs=1, limit_s=3600, wall_s=3600, world=forever))
"""


@pytest.mark.full
def test_a_campaign_that_is_killed_leaves_no_world_running(tmp_path):
    script, told = tmp_path / "campaign.py", tmp_path / "pid"
    script.write_text(SCRIPT)
    campaign = subprocess.Popen([sys.executable, script, told])
    until(lambda: told.exists() and told.read_text())
    campaign.kill()
    campaign.wait()
    until(lambda: not is_alive(int(told.read_text())))


def is_alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def until(condition):
    ends_at_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_at_s
        time.sleep(0.05)
