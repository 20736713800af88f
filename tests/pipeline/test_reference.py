"""The reference of the pipeline has every stage, and every function that its packages name as public."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = [(FOLDER / name).read_text(encoding="utf-8") for name in ("pipeline.rst", "testing.rst")]
LISTED = {name for page in PAGES for name in re.findall(r"^\.\. auto(?:function|class):: (\S+)$", page, re.MULTILINE)}
INSIDE = {"decoding_mapper", "facts_mapper", "rows_mapper", "check_new", "run_with", "channel_options"}
INSIDE |= {"state_of_store", "states_of_run"}
"""Functions that the commands and other packages use, and a program hardly does."""


@pytest.mark.parametrize(
    "package",
    [
        "pipeline.stages",
        "pipeline.run",
        "pipeline.streaming",
        "pipeline.outgoing",
        "pipeline.report",
        "archives.backfill",
        "testing.archives",
    ],
)
def test_every_public_function_is_in_the_reference_and_says_what_it_returns(package):
    module = importlib.import_module(f"fairway.{package}")
    functions = {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    assert functions
    assert {f"{module.__name__}.{name}" for name in functions - INSIDE} <= LISTED
    assert all(inspect.getdoc(getattr(module, name)) for name in functions)


def test_what_the_reference_lists_is_there():
    for full in LISTED:
        module, _, name = full.rpartition(".")
        assert hasattr(importlib.import_module(module), name), full
