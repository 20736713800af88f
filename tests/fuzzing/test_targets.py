"""The fuzz targets without the fuzzer: they hold for real traffic and for some of what can become of it.

Inputs that once broke a promise are kept in `regressions`, in a folder of the target's name.
"""

from pathlib import Path
from random import Random

import pytest
from fuzz.mutation import mutate, mutate_blindly
from fuzz.targets import TARGETS

REGRESSIONS = sorted(path for path in (Path(__file__).parent / "regressions").glob("*/*") if path.is_file())
SEEDS_REPLAYED = 25
MUTANTS = 15


@pytest.fixture(params=TARGETS.values(), ids=list(TARGETS))
def target(request):
    return request.param


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_that_once_broke_a_promise_keep_it(path):
    TARGETS[path.parent.name].check(path.read_bytes())


def test_real_traffic_breaks_no_promise(target):
    seeds = list(target.seeds())
    assert seeds
    for seed in Random(1).sample(seeds, min(SEEDS_REPLAYED, len(seeds))):
        target.check(seed)


def test_traffic_that_was_tampered_with_breaks_no_promise(target):
    random = Random(2)
    seeds = list(target.seeds())
    for _ in range(MUTANTS):
        target.check(mutate(random.choice(seeds), target.max_input_bytes, random, mutate_blindly(random)))


def test_inputs_are_the_same_in_every_run(target):
    assert list(target.seeds()) == list(target.seeds())


# The targets notice what they are for


# Fields and what is changed about them
