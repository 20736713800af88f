"""The code in the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_of_the_readme_runs_and_shows_something(source: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(source, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_the_readme_has_examples_and_links_that_lead_somewhere():
    assert EXAMPLES
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert missing == [], page.name
