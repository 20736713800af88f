"""Planting a bug, running worlds on it, and judging what they say; a small runner stands in for hours of worlds."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.mutants import __main__ as program
from tests.mutants.catalogue import Mutant
from tests.mutants.nursery import ENDS, RAISES, Nursery, Request, Result
from tests.mutants.planting import CRASHED, HUNG, Effort, Garden, marked, plan_fields, run_tests

from fairway.simulation.known_costs import COSTS, KnownCosts
from fairway.simulation.tour import KINDS

GOOD = "def answer():\n    return 42\n"
WRONG = Mutant(name="off-by-one", file="sums.py", old="42", new="43", harm="A wrong answer.", area="sums")
EFFORT = Effort(worlds=5, first_seed=10, budget_s=60.0, world_s=1.0)


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "sums.py").write_text(GOOD)
    (folder / "other.py").write_text("KEPT = True\n")
    return folder


class Small:
    """Stands in for hours of worlds: some break with the bug, and some without it as well."""

    def __init__(
        self,
        *seeds: int,
        also_clean: tuple[int, ...] = (),
        passing: Callable[[int], bool] = bool,
        otherwise: Callable[[int], bool] = bool,
    ) -> None:
        self.seeds = seeds
        self.otherwise = otherwise
        self.also_clean = also_clean
        self.passing = passing
        self.asked: list[list[int]] = []

    def run(self, request: Request, told: Callable[[Result], object]) -> str:
        source = (request.folder / "fairway" / "sums.py").read_text()
        assert (request.folder / "fairway" / "other.py").read_text() == "KEPT = True\n"
        seeds = [pickle.loads(plan).seed for plan in request.plans]
        self.asked.append(seeds)
        for place, seed in enumerate(seeds):
            is_broken = seed in self.also_clean or ("43" in source and seed in self.seeds)
            passed = frozenset([WRONG.name] if self.passing(seed) else [])
            told(
                Result(
                    place=place,
                    violations=(("sums are right", "it says 43"),) * 4 if is_broken else (),
                    cpu_s=1.0 + seed % 3,
                    trace_hash=f"{seed} {'43' in source and self.otherwise(seed)}",
                    passed=passed,
                )
            )
            if is_broken and not request.is_patient:
                break
        return ""

    def close(self) -> None:
        self.asked.append([])


def garden(tmp_path, sources, small, effort=EFFORT):
    place = Garden(tmp_path / "garden", effort, runner=lambda: small, sources=sources)
    place.baseline([WRONG])
    return place


def test_a_world_that_breaks_with_the_bug_alone_catches_it(tmp_path, sources):
    place = garden(tmp_path, sources, Small(12))
    assert not any(world.broken for world in place.worlds)
    verdict = place.try_out(WRONG)
    assert verdict.caught
    assert verdict.invariants == ("sums are right",)
    assert verdict.run.broken == {12: ("sums are right",)}
    assert "--seed 12" in verdict.run.replay
    assert len(verdict.run.sentences) == 3
    assert (place.clean / "fairway" / "sums.py").read_text() == GOOD
    assert {path.name for path in (tmp_path / "garden").iterdir()} == {"clean", "marked"}


def test_what_no_world_notices_survives_and_it_is_told_how_near_they_came(tmp_path, sources):
    verdict = garden(tmp_path, sources, Small(passing=lambda seed: seed < 13)).try_out(WRONG)
    assert not verdict.caught
    assert (verdict.run.passing, verdict.run.worlds, verdict.run.changed) == (3, 3, 3)


def test_a_world_that_breaks_without_the_bug_as_well_is_left_out(tmp_path, sources):
    small = Small(11, also_clean=(11,))
    place = garden(tmp_path, sources, small)
    assert [world.seed for world in place.worlds if world.broken] == [11]
    assert not place.try_out(WRONG).caught
    assert 11 not in small.asked[-1]


def test_a_bug_is_looked_for_where_its_place_is_passed_and_soonest_where_that_costs_little(tmp_path, sources):
    small = Small(passing=lambda seed: seed != 12)
    garden(tmp_path, sources, small).try_out(WRONG)
    assert small.asked[-1] == [10, 11, 13, 14] or small.asked[-1][-2:] == [11, 14]
    assert set(small.asked[-1]) == {10, 11, 13, 14}


def test_worlds_that_caught_bugs_of_an_area_come_first_for_the_next(tmp_path, sources):
    small = Small(11)
    place = garden(tmp_path, sources, small)
    assert small.asked[-1][0] != 11
    for _ in range(2):
        place.try_out(WRONG)
    assert small.asked[-1][0] == 11


def test_one_world_of_each_kind_is_run_whatever_the_budget_is(tmp_path, sources):
    small = Small(passing=lambda seed: seed != 12)
    effort = Effort(worlds=2 * len(KINDS), first_seed=1, budget_s=0.0, world_s=1.0)
    assert garden(tmp_path, sources, small, effort).try_out(WRONG).run.worlds == len(KINDS)
    assert {seed % len(KINDS) for seed in small.asked[-1]} == set(range(len(KINDS)))
    assert 12 + len(KINDS) in small.asked[-1]


def test_others_of_its_kind_come_next_where_something_went_otherwise(tmp_path, sources):
    small = Small(otherwise=lambda seed: seed == 8)
    effort = Effort(worlds=2 * len(KINDS), first_seed=1, budget_s=6.0, world_s=1.0)
    verdict = garden(tmp_path, sources, small, effort).try_out(WRONG)
    assert small.asked[-1][0] == 8 + len(KINDS)
    assert len(small.asked[-1]) > 1
    assert (verdict.run.worlds, verdict.run.changed) == (len(KINDS) + len(small.asked[-1]), 1)


def test_of_the_others_no_more_are_run_than_the_budget_is_for(tmp_path, sources):
    drawn = Effort(worlds=5, first_seed=2 * len(KINDS) + 1, budget_s=3.0, world_s=1.0)
    assert garden(tmp_path, sources, Small(), drawn).try_out(WRONG).run.worlds == 2


def test_a_simulator_that_ends_is_a_catch_of_its_own(tmp_path, sources):
    class Ending(Small):
        def run(self, request, told):
            if not request.is_patient:
                return "the process ended with exit code 11"
            return super().run(request, told)

    verdict = garden(tmp_path, sources, Ending()).try_out(WRONG)
    assert verdict.invariants == (CRASHED,)
    assert verdict.run.sentences == ("the process ended with exit code 11",)


SOURCE = """\
def f(x):
    \"\"\"Return it.\"\"\"
    if x:
        y = 1
    elif x is None:
        y = 2
    else:
        try:
            y = int(
                x
            )
        except ValueError:
            y = 4
    return y
"""


@pytest.mark.parametrize(
    ("old", "new", "passing"),
    [
        ("    if x:\n        y = 1\n", "    if x:\n        y = 5\n", [1]),
        ("    if x:\n", "    if not x:\n", [1, None, 0, ""]),
        ("        y = 2\n", "", [None]),
        ("                x\n", "                -x\n", [0, ""]),
        ("        except ValueError:\n", "        except KeyError:\n", [0, ""]),
        ("    return y\n", "    y += 1\n    return y\n", [1, None, 0, ""]),
    ],
)
def test_marked_sources_say_what_they_pass(monkeypatch, old, new, passing):
    mutant = Mutant(name="it", file="f.py", old=old, new=new, harm="None.")
    found = []
    for x in (1, None, 0, ""):
        passed: set[str] = set()
        place: dict[str, object] = {"__passed__": passed}
        exec(marked(SOURCE, [mutant]), place)
        passed.clear()
        assert place["f"](x) == {1: 1, None: 2, 0: 0, "": 4}[x]  # type: ignore[operator]
        found += [x] if passed else []
    assert found == passing


def package(folder, runner):
    """Lay down a package with a simulator."""
    place = folder / "fairway" / "simulation"
    place.mkdir(parents=True)
    (folder / "fairway" / "__init__.py").write_text("")
    (place / "__init__.py").write_text("")
    (place / "runner.py").write_text(runner)
    return folder


def test_a_process_runs_worlds_of_whatever_sources_until_one_breaks(tmp_path):
    runner = """
import os
from types import SimpleNamespace
__passed__.add("import")
def simulate(plan):
    __passed__.add(f"plan {plan}")
    if plan == 2:
        raise ValueError("no such world")
    while plan == 3:
        pass
    if plan == 4:
        os._exit(7)
    print("worlds may print")
    violation = SimpleNamespace(invariant=SimpleNamespace(value="once"), sentence="bob got it twice")
    return SimpleNamespace(violations=[violation] * (plan == 1), trace_hash=f"trace {plan}", costs={"writes": plan})
"""
    folder = package(tmp_path, runner)
    nursery = Nursery()

    def run(*plans, is_patient=False):
        request = Request(folder=folder, plans=[*map(pickle.dumps, plans)], world_s=0.2, is_patient=is_patient)
        results: list[Result] = []
        ended = nursery.run(request, results.append)
        return results, ended

    try:
        (first, second), ended = run(0, 1, 0)
        assert not ended
        assert (first.violations, first.trace_hash, first.passed) == ((), "trace 0", {"import", "plan 0"})
        assert second.costs == {"writes": 1}
        assert second.violations == (("once", "bob got it twice"),)
        (raised, late), ended = run(2, 3, is_patient=True)
        assert raised.violations[0][0] == RAISES
        assert "no such world" in raised.violations[0][1]
        assert late.violations[0][0] == ENDS
        assert run(4) == ([], "the process ended with exit code 7")
        assert len(run(0)[0]) == 1
    finally:
        nursery.close()


def test_what_worlds_have_in_common_is_given_as_options_of_the_simulator():
    assert plan_fields(["--participants", "3", "--hours", "0.5", "--encrypted"]) == {
        "participants": 3,
        "duration_ms": 1_800_000,
        "encrypted": True,
    }


@pytest.mark.parametrize(("value", "caught"), [("1", False), ("2", True)])
def test_a_bug_that_no_world_sees_is_caught_by_a_test_that_fails(tmp_path, value, caught):
    (tmp_path / "planted_value.py").write_text(f"VALUE = {value}\n")
    (tmp_path / "test_it.py").write_text("from planted_value import VALUE\n\n\ndef test_it():\n    assert VALUE == 1\n")
    found = run_tests(tmp_path, [str(tmp_path / "test_it.py")])
    assert bool(found.broken) is caught
    if caught:
        assert "test_it" in found.broken[-1][0]
        assert HUNG not in found.broken[-1]


def test_tests_that_are_not_there_are_no_catch(tmp_path):
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        run_tests(tmp_path, [str(tmp_path / "test_nothing.py")])


def test_the_table_tells_catches_survivors_their_reasons_areas_and_the_share(tmp_path, sources):
    caught = garden(tmp_path, sources, Small(12)).try_out(WRONG)
    silent = garden(tmp_path / "silent", sources, Small())
    verdicts = [caught]
    for name, reason in (("hole", ""), ("harmless", "nobody adds there")):
        mutant = Mutant(name=name, file="sums.py", old="42", new="43", harm="A sum.", survives=reason, area="sums")
        for world in silent.worlds:
            world.passes |= {name}
        verdicts.append(silent.try_out(mutant))
    text = program.table(verdicts)
    assert "caught: 1" in text
    assert "sums/off-by-one" in text
    assert f"1/{caught.run.worlds} worlds" in text
    assert "survived; a user suffers: A sum." in text
    assert "5 worlds pass its place, in 5 of 5 something went otherwise" in text
    assert "without effect: nobody adds there" in text
    assert ["sums", "1/2"] in [line.split() for line in text.splitlines()]
    assert "sums are right" in text
    assert text.endswith("worlds alone catch 50.0% of the bugs that have an effect")


def test_a_few_are_drawn_by_the_seed_that_is_told(monkeypatch, capsys):
    drawn = []

    def note(chosen, options):
        drawn.append([mutant.name for mutant in chosen])
        return 0

    monkeypatch.setattr(program, "_run", note)
    for seed in ("7", "7", "8"):
        assert program.main(["run", "--count", "5", "--seed", seed, "--by", "worlds"]) == 0
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 5
    assert "drawn with --seed 7" in capsys.readouterr().err


@pytest.fixture
def small_program(monkeypatch, sources):
    small = Small(12)

    def make(folder, effort, jobs):
        return Garden(folder / "garden", effort, jobs=jobs, runner=lambda: small, sources=sources)

    monkeypatch.setattr(program, "Garden", make)
    monkeypatch.setattr(program, "mutants", lambda: [WRONG])
    monkeypatch.setattr(program, "misfits", lambda _: ())
    return small


def test_programs_read_one_object(small_program, capsys):
    status = program.main(["run", "--json", "--worlds", "5", "--first-seed", "10"])
    answer = json.loads(capsys.readouterr().out)
    assert status == 0
    assert answer["share_caught_by_worlds"] == 1.0
    assert [world["broken"] for world in answer["baseline"]] == [[]] * 5
    assert answer["mutants"][0]["name"] == "off-by-one"
    assert answer["mutants"][0]["caught"]
    assert small_program.asked[-1] == []


def test_a_run_goes_on_from_its_record(small_program, capsys, tmp_path):
    words = ["run", "--worlds", "5", "--first-seed", "10", "--record", str(tmp_path / "record.jsonl")]
    assert program.main(words) == 0
    first = capsys.readouterr().out
    small_program.asked.clear()
    assert program.main(words) == 0
    assert capsys.readouterr().out == first
    assert small_program.asked == []
    assert program.main(["table", str(tmp_path / "record.jsonl")]) == 0
    assert capsys.readouterr().out == first


class Dear(Small):
    """Of which each world writes a hundred times, or a tenth more with the bug."""

    def run(self, request: Request, told: Callable[[Result], object]) -> str:
        is_planted = "43" in (request.folder / "fairway" / "sums.py").read_text()
        return super().run(request, lambda result: told(replace(result, costs={"writes": 110 if is_planted else 100})))


def dear_garden(tmp_path, sources, small, writes=100):
    known = KnownCosts.of_runs([{seed: {"writes": writes} for seed in range(1, len(KINDS) + 1)}] * 2)
    effort = Effort(worlds=2 * len(KINDS), first_seed=1, budget_s=6.0, world_s=1.0)
    place = Garden(tmp_path / "garden", effort, runner=lambda: small, sources=sources, known=known)
    place.baseline([WRONG])
    return place


def test_a_bug_by_which_a_tour_costs_more_is_caught_though_no_world_breaks(tmp_path, sources):
    verdict = dear_garden(tmp_path, sources, Dear()).try_out(WRONG)
    assert verdict.caught
    assert verdict.run.worlds == len(KINDS)
    assert verdict.invariants == (COSTS,)
    assert "writes: 1.10 times" in verdict.run.sentences[0]
    assert verdict.run.replay == "fairway simulate"


def test_worlds_that_do_not_pass_the_place_of_a_bug_cost_what_they_cost_without_it(tmp_path, sources):
    verdict = dear_garden(tmp_path, sources, Dear(passing=lambda seed: seed % len(KINDS) == 1)).try_out(WRONG)
    assert not verdict.caught


def test_no_costs_are_compared_should_they_be_unusual_without_a_bug(tmp_path, sources):
    assert not dear_garden(tmp_path, sources, Dear(), writes=50).try_out(WRONG).caught
