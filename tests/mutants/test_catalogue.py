"""The planted bugs fit the sources as they are, and there are enough of them everywhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
from tests.mutants.catalogue import ROOT, TESTS, WORLDS, Mutant, misfits, mutants
from tests.mutants.planting import TROUBLES

from fairway.simulation.plan import SimulationPlan

CATALOGUE = mutants()


@pytest.mark.full
def test_every_text_to_replace_stands_in_the_sources_exactly_once():
    # After a change of the sources: `python -m tests.mutants check`, then give the mutant another place.
    assert list(misfits(CATALOGUE)) == []


def test_there_are_bugs_in_every_layer():
    layers = Counter(mutant.file.split("/")[0] for mutant in CATALOGUE)
    assert len(CATALOGUE) >= 100
    assert layers["protocol"] >= 60
    assert layers["channel"] >= 20
    assert layers["storage"] >= 10
    assert layers["waku"] >= 10


def test_of_each_area_it_is_known_what_worlds_are_about_it():
    names = {field.name for field in fields(SimulationPlan)}
    assert TROUBLES.keys() == {mutant.area for mutant in CATALOGUE if mutant.caught_by == WORLDS}
    assert set().union(*TROUBLES.values()) <= names


def test_what_no_world_sees_is_all_in_code_that_no_world_runs():
    assert all(mutant.file.startswith("waku/light/") for mutant in CATALOGUE if mutant.caught_by == TESTS)


@pytest.mark.parametrize("path", sorted({path for mutant in CATALOGUE for path in mutant.tests}))
def test_tests_that_are_named_are_there(path):
    file, _, function = path.partition("::")
    assert (ROOT / file).exists()
    assert not function or f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")


def planted(**changes: str) -> Mutant:
    return Mutant(**{"name": "one", "file": "errors.py", "old": "a", "new": "b", "harm": "none", **changes})


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        (planted(file="nowhere.py"), "there is no file nowhere.py"),
        (planted(old="no such text"), "stands 0 times"),
        (planted(old="\n\n"), "times in errors.py, not once"),
        (planted(old="from __future__ import annotations\n", new="(\n"), "was never closed"),
    ],
)
def test_a_mutant_that_does_not_fit_is_told_with_its_reason(mutant, told):
    (sentence,) = misfits([mutant])
    assert told in sentence
    assert "one" in sentence


def test_a_bug_is_caught_by_worlds_unless_it_says_otherwise():
    assert planted().caught_by == WORLDS
