"""The page that says what is kept names tests that show it: each is there, is never skipped, and is named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
FOLDER = "musts"
"""Below it is nothing that the page does not name."""
EXCUSES = ("**not followed**", "**not the default**")


class Row(NamedTuple):
    """A requirement, and the tests that show it: file and function."""

    text: str
    tests: tuple[tuple[str, str], ...]


def rows_of(page: str) -> list[Row]:
    rows, file = [], ""
    for line in page.splitlines():
        if (named := re.search(r"Tests: `([\w/]+\.py)`", line)) is not None:
            file = named[1]
        elif line.startswith("| ") and not line.startswith("| section"):
            section, requirement, shown = (cell.strip() for cell in line.strip("|").split("|"))
            found = re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", shown)
            excuse = next((excuse for excuse in EXCUSES if excuse in shown), "")
            rows.append(Row(f"{section} {requirement} {excuse}", tuple((path or file, name) for path, name in found)))
    return rows


PAGE = rows_of((TESTS.parent / "docs" / "musts.md").read_text(encoding="utf-8"))


@cache
def functions_of(file: str) -> list[str]:
    """Return the names of the tests at the top of a file, as they stand there."""
    path = TESTS / file
    if not path.is_file():
        return []
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.mark.parametrize("row", PAGE, ids=lambda row: row.text[:60])
def test_each_requirement_has_a_test_that_is_there_once_and_cannot_be_skipped(row: Row):
    assert row.tests or any(excuse in row.text for excuse in EXCUSES), "no test shows it"
    for file, name in row.tests:
        assert functions_of(file).count(name) == 1, f"there must be one {file}::{name}"
        assert file.startswith(f"{FOLDER}/") or "skip" not in (TESTS / file).read_text(encoding="utf-8")


def test_each_test_of_the_folder_is_on_the_page():
    named = {test for row in PAGE for test in row.tests}
    there = {
        (f"{FOLDER}/{path.name}", name)
        for path in (TESTS / FOLDER).glob("test_*.py")
        for name in functions_of(f"{FOLDER}/{path.name}")
    }
    assert len(there) > 60
    assert there - named == set()
