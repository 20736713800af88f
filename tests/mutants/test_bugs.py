"""The planted bugs fit the sources as they are."""

from __future__ import annotations

import ast

import pytest
from tests.mutants.__main__ import SOURCES, bugs


@pytest.mark.parametrize("bug", bugs(), ids=lambda bug: bug.name)
def test_a_planted_bug_has_one_place_and_leaves_a_program(bug):
    ast.parse(bug.planted((SOURCES / "fairway" / bug.file).read_text(encoding="utf-8")))
