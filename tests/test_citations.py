"""What code and documentation cite can be opened: specifications by names that docs/specifications.md lists."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from tests.test_architecture import ROOT, name_of, text_files

SPECIFICATIONS = ROOT / "docs" / "specifications.md"
DECISIONS = ROOT / "docs" / "decisions" / "specifications.md"

# Documents that stood beside the repository once. Written so that this file does not match itself.
UNOPENABLE = re.compile(
    r"\b[Ss]eeds? 0\d\d\b|\bdesign(?:\.md|,? section)? ?\d\.\d|\bdesign\.md\b|\bfacts?/\w|\bfacts? on @"
)
# A name and the title of a section: SDS, "Receive Message".
CITATION = re.compile(r"(?<![\w/.-])(?<!, )((?:\d+/)?[A-Z][A-Z0-9-]{2,}),\s+(?:#\s+)?\"[A-Z]")
# The same with the titles of all sections that are named: SDS, "Send Message" and "Receive Message".
SECTIONS = re.compile(
    r"(?<![\w/.-])(?<!, )((?:\d+/)?[A-Z][A-Z0-9-]{2,}),((?:(?: and|,)?\s+(?:#\s+)?\"[A-Z][^\"]*\")+)", re.MULTILINE
)
TITLES: dict[str, list[str]] = json.loads(
    (ROOT / "tests" / "vectors" / "section_titles.json").read_text(encoding="utf-8")
)["titles"]
# Names that are recognised wherever they stand.
NAME = re.compile(
    r"(?<![\w/-])(?:\d+/WAKU2-[A-Z-]+[A-Z]|WAKU2?-[A-Z][A-Z0-9-]*[A-Z]|LIP-\d+|RELIABLE-[A-Z-]+|[A-Z]+-API)\b"
)
# Listed in the text below the tables.
OF_GENERAL_USE = {"HTML"}
REGISTRIES = re.compile(r"https?://(?:www\.)?(?:pypi\.org|npmjs\.com|crates\.io|pkg\.go\.dev|registry\.npmjs\.org)")


@cache
def texts() -> dict[str, str]:
    found = {}
    for path in text_files():
        if path.suffix in {".json", ".lock", ".sum", ".svg", ".html"}:
            continue
        try:
            found[name_of(path)] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # no text
    return found


def hits(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return where a pattern is found, and what it found: its group, if it has one."""
    return [
        (f"{name}:{text.count(chr(10), 0, match.start()) + 1}", match.group(match.lastindex or 0))
        for name, text in texts().items()
        for match in pattern.finditer(text)
    ]


def rows_of(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def listed() -> set[str]:
    assert all(name in SPECIFICATIONS.read_text(encoding="utf-8") for name in OF_GENERAL_USE)
    return {cells[0] for cells in rows_of(SPECIFICATIONS)} | OF_GENERAL_USE


def test_no_text_cites_a_document_that_a_reader_cannot_open():
    assert hits(UNOPENABLE) == []


def test_every_specification_that_is_cited_with_a_section_is_listed():
    known = listed()
    assert [(place, name) for place, name in hits(CITATION) if name not in known] == []


def test_every_specification_that_is_named_is_listed():
    known = listed()
    assert [(place, name) for place, name in hits(NAME) if name not in known] == []


def titles_in(cited: str) -> list[str]:
    """Return the titles between quotation marks, which may be broken over lines of comments."""
    return [" ".join(re.sub(r"\n\s*#", " ", title).split()) for title in re.findall(r'"([^"]+)"', cited)]


def is_title(name: str, title: str) -> bool:
    return title.lower() in (known.lower() for known in TITLES[name])


def test_every_section_that_is_cited_is_in_the_text():
    wrong = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1} {match[1]}, {title}"
        for name, text in texts().items()
        for match in SECTIONS.finditer(text)
        if match[1] in TITLES and name != name_of(Path(__file__))
        for title in titles_in(match[2])
        if not is_title(match[1], title)
    ]
    assert wrong == []


def test_every_listed_specification_has_a_link():
    text = SPECIFICATIONS.read_text(encoding="utf-8")
    labels = set(re.findall(r"\]\[([\w-]+)\]", text))
    targets = dict(re.findall(r"^\[([\w-]+)\]: (https://\S+)$", text, re.MULTILINE))
    assert labels == targets.keys()
    without = [
        cells[0]
        for cells in rows_of(SPECIFICATIONS)
        if cells[0] not in {"name", "project", "---"} and "](http" not in cells[-1] and "][" not in cells[-1]
    ]
    assert without == []


def test_every_decision_that_is_cited_is_in_the_table():
    rows = {cells[0] for cells in rows_of(DECISIONS)}
    headings = set(re.findall(r"^## (.+)$", DECISIONS.read_text(encoding="utf-8"), re.MULTILINE))
    cited = re.compile(r"decisions/specifications\.md,\s+(?:#\s+)?\"([^\"]+)\"")
    found = [(place, " ".join(title.split())) for place, title in hits(cited)]
    assert found
    assert [(place, title) for place, title in found if title not in rows | headings] == []


def test_no_page_links_to_a_package_registry():
    assert [place for place, _ in hits(REGISTRIES) if place.startswith(("docs/", "README", "CONTRIBUTING"))] == []
