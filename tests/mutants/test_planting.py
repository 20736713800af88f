"""Planting a bug, running worlds on it, and judging what they say; small runners stand in for hours of worlds."""

from __future__ import annotations

import json

import pytest
from tests.mutants import __main__ as program
from tests.mutants.catalogue import Mutant
from tests.mutants.planting import CRASHED, HUNG, Effort, Garden, Run, run_tests, simulate

GOOD = "def answer():\n    return 42\n"
WRONG = Mutant(name="off-by-one", file="sums.py", old="42", new="43", harm="A wrong answer.", area="sums")
EFFORT = Effort(worlds=5, first_seed=10, budget_s=1.0, world_s=1.0)


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "sums.py").write_text(GOOD)
    (folder / "other.py").write_text("KEPT = True\n")
    return folder


def breaking(*seeds, also_clean=()):
    """Return a runner whose worlds with these seeds break with the bug, and some without it as well."""

    def run(folder, effort, seed):
        bad = "43" in (folder / "fairway" / "sums.py").read_text()
        assert (folder / "fairway" / "other.py").read_text() == "KEPT = True\n"
        tried = [seed] if seed is not None else range(effort.first_seed, effort.first_seed + effort.worlds)
        found = [one for one in tried if one in also_clean or (bad and one in seeds)]
        if seed is None and not effort.all_worlds:
            found = found[:1]
        return Run(worlds=len(tried), broken=dict.fromkeys(found, ("sums are right",)), sentences=("43",), seconds=0.1)

    return run


def garden(tmp_path, sources, run):
    return Garden(tmp_path / "garden", EFFORT, run=run, sources=sources)


def test_a_world_that_breaks_with_the_bug_alone_catches_it(tmp_path, sources):
    place = garden(tmp_path, sources, breaking(12))
    assert not place.baseline().broken
    verdict = place.try_out(WRONG)
    assert verdict.caught
    assert verdict.invariants == ("sums are right",)
    assert (place.clean / "fairway" / "sums.py").read_text() == GOOD
    assert [path.name for path in (tmp_path / "garden").iterdir()] == ["clean"]


def test_what_no_world_notices_survives(tmp_path, sources):
    assert not garden(tmp_path, sources, breaking()).try_out(WRONG).caught


def test_a_world_that_breaks_without_the_bug_as_well_catches_nothing(tmp_path, sources):
    verdict = garden(tmp_path, sources, breaking(11, also_clean=(11,))).try_out(WRONG)
    assert not verdict.caught
    assert verdict.false_alarms == (11,)


def test_a_broken_baseline_hides_no_catch(tmp_path, sources):
    place = garden(tmp_path, sources, breaking(13, also_clean=(11,)))
    assert list(place.baseline().broken) == [11]
    verdict = place.try_out(WRONG)
    assert verdict.caught
    assert verdict.false_alarms == (11,)


def test_a_simulator_that_ends_with_an_error_is_a_catch_of_its_own(tmp_path):
    (tmp_path / "fairway.py").write_text("raise SystemError('no world can be made')\n")
    found = simulate(tmp_path, EFFORT)
    assert found.broken == {-1: (CRASHED,)}
    assert "no world can be made" in found.sentences[0]


def test_the_simulator_is_asked_for_worlds_of_the_planted_sources(tmp_path):
    (tmp_path / "fairway.py").write_text(
        "import json, sys\n"
        "first = int(sys.argv[sys.argv.index('--first-seed') + 1])\n"
        "violation = {'invariant': 'once', 'sentence': 'bob got it twice'}\n"
        "world = {'plan': {'seed': first + 1}, 'replay': 'fairway simulate --seed 11', 'violations': [violation] * 4}\n"
        "print(json.dumps({'worlds': 2, 'broken': [world], 'words': sys.argv}))\n"
        "sys.exit(1)\n"
    )
    found = simulate(tmp_path, EFFORT)
    assert found.broken == {11: ("once",)}
    assert found.worlds == 2
    assert found.sentences == ("bob got it twice",) * 3
    assert found.replay == "fairway simulate --seed 11"


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


def test_the_table_tells_catches_survivors_their_reasons_and_the_share(tmp_path, sources):
    place = garden(tmp_path, sources, breaking(12))
    caught = place.try_out(WRONG)
    silent = Garden(tmp_path / "silent", EFFORT, run=breaking(), sources=sources)
    verdicts = [caught]
    for name, reason in (("hole", ""), ("harmless", "nobody adds there")):
        mutant = Mutant(name=name, file="sums.py", old="42", new="43", harm="A sum.", survives=reason, area="sums")
        verdicts.append(silent.try_out(mutant))
    text = program.table(verdicts)
    assert "caught: 1" in text
    assert "sums/off-by-one" in text
    assert "1/5 worlds" in text
    assert "survived; a user suffers: A sum." in text
    assert "without effect: nobody adds there" in text
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


def test_programs_read_one_object(monkeypatch, capsys, tmp_path, sources):
    def small(folder, effort):
        return Garden(folder / "garden", effort, run=breaking(12), sources=sources)

    monkeypatch.setattr(program, "Garden", small)
    monkeypatch.setattr(program, "mutants", lambda: [WRONG])
    monkeypatch.setattr(program, "misfits", lambda _: ())
    status = program.main(["run", "--json", "--worlds", "5", "--first-seed", "10"])
    answer = json.loads(capsys.readouterr().out)
    assert status == 0
    assert answer["share_caught_by_worlds"] == 1.0
    assert answer["baseline"] == {"worlds": 5, "broken": []}
    assert answer["mutants"][0]["name"] == "off-by-one"
    assert answer["mutants"][0]["caught"]
