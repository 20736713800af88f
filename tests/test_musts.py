"""The page that says where each MUST is kept tells the truth: the section's name stands in the files that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "musts.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| section")]


def files_of(cell: str) -> list[Path]:
    found = []
    for name in re.findall(r"`((?:protocol|wire|channel)/[\w/]*(?:\.py)?|events\.py)", cell):
        path = ROOT / "src" / "fairway" / name
        found += sorted(path.glob("*.py")) if path.is_dir() else [path]
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if files_of(row)], ids=lambda row: row[2:60])
def test_a_section_is_named_where_the_page_says(row: str):
    sections = re.findall(r'"([^"]+)"', row.split("|")[1]) or [row.split("|")[1].strip()]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files_of(row))
    assert [name for name in sections if name not in re.sub(r"\s+", " ", text)] == []


def test_the_page_has_rows():
    assert len(ROWS) > 30
