"""The code on the pages that people read first runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairway.events import EVENT_NAMES

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/guide.md")
EXAMPLES = [
    pytest.param(source, id=f"{page}-{number}")
    for page in PAGES
    for number, source in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL), 1
    )
]


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_runs_and_shows_something(source, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "example", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_the_pages_have_examples_and_links_that_lead_somewhere():
    assert len(EXAMPLES) >= len(PAGES)
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert missing == [], page.name


def test_the_guide_lists_every_event_with_all_its_names():
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for kind, names in EVENT_NAMES.items():
        assert f"| `{kind.__name__}` | {', '.join(f'`{name}`' for name in names)} |" in guide
