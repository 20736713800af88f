"""The code on the pages that people read first runs as it stands, and their links lead somewhere."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import tomllib
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from opentelemetry import trace
from typer.testing import CliRunner

from fairway.cli import app
from fairway.events import EVENT_NAMES, Limit
from patience import PATIENCE_S

ROOT = Path(__file__).parents[1]


def blocks(page, language):
    """The blocks of code in a language that a page has."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


EXAMPLE_ADDRESS = "/ip4/127.0.0.1/tcp/60000"
PAGES = (
    "docs/guide.md",
    "docs/agents.md",
    "docs/channels.md",
    "docs/identity.md",
    "docs/group-keys.md",
    "docs/requests.md",
    "docs/snapshots.md",
    "docs/presence.md",
    "docs/testing.md",
    "docs/node.md",
    "docs/operating.md",
)
EXAMPLES = [
    pytest.param(source, id=f"{page}-{number}")
    for page in PAGES
    for number, source in enumerate(blocks(page, "python"), 1)
]


@pytest.fixture
def loggers():
    """Give all loggers their levels back."""
    levels = {name: logging.getLogger(name).level for name in logging.root.manager.loggerDict}
    yield
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


@pytest.fixture
def tracing(monkeypatch):
    """Let an example set up the SDK of OpenTelemetry for itself alone: the API allows it once in a process."""

    def set_tracer_provider(provider):
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    monkeypatch.setattr(trace, "set_tracer_provider", set_tracer_provider)


@pytest.mark.usefixtures("loggers", "tracing")
@pytest.mark.parametrize("source", EXAMPLES)
def test_an_example_runs_and_shows_something(source, capsys, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "example", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr()
    assert said.out or caplog.messages


@pytest.fixture
def start(tmp_path):
    """Start programs as a person does at several terminals; none of them outlives the test."""
    with ExitStack() as running:

        def start(*command):
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, *command],
                    cwd=tmp_path,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            running.callback(process.kill)
            too_late = threading.Timer(PATIENCE_S, process.kill)
            too_late.start()
            running.callback(too_late.cancel)
            return process

        yield start


def test_the_ten_lines_are_ten_lines():
    (program,) = blocks("README.md", "python")
    assert len([line for line in program.splitlines() if line and not line.startswith("import ")]) == 10


@pytest.mark.parametrize("first", ["alice", pytest.param("bob", marks=pytest.mark.full)])
def test_the_ten_lines_work_in_two_terminals_with_a_node_in_a_third(first, start, tmp_path):
    node = start("-m", "fairway", "node", "--json")
    address = json.loads(node.stdout.readline())["multiaddrs"][0]
    (program,) = blocks("README.md", "python")
    assert program.count(EXAMPLE_ADDRESS) == 1
    (tmp_path / "team.py").write_text(program.replace(EXAMPLE_ADDRESS, address), encoding="utf-8")

    words = {"alice": ["who is on watch?"], "bob": []}
    order = sorted(words, key=lambda name: name != first)
    people = {name: start("team.py", name, *words[name]) for name in order}

    said = {name: process.communicate(timeout=PATIENCE_S)[0] for name, process in people.items()}
    assert said == {"alice": "delivered to bob\n", "bob": "alice says who is on watch?\n"}
    assert {process.returncode for process in people.values()} == {0}
    node.terminate()
    assert node.wait(PATIENCE_S) == 0


def test_the_readme_counts_the_packages_and_lists_the_folders_of_the_sources():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) == 8
    assert "eight direct dependencies" in page
    folders = {path.name for path in (ROOT / "src" / "fairway").iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^ {6}(\w+)/", page, re.MULTILINE)) == folders


def test_the_browsers_side_in_the_guide_is_the_example():
    (program,) = blocks("docs/guide.md", "js")
    assert program == (ROOT / "examples" / "js-waku" / "team.mjs").read_text(encoding="utf-8")


def test_the_pages_have_examples_and_links_that_lead_somewhere():
    assert len(EXAMPLES) >= len(PAGES)
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert missing == [], page.name


def test_every_file_and_name_of_the_map_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([\w./]+(?:/|\.py))`", row)}
    bases = [ROOT, ROOT / "src" / "fairway", ROOT / "tests" / "interop"]
    assert {name for name in named if not any((base / name).exists() for base in bases)} == set()

    found = re.findall(r"`(_?[A-Z]\w+)(?:\.(\w+))?`[^`|]*`([\w/]+\.py)`", "\n".join(rows))
    sources = [(first, second, ROOT / "src" / "fairway" / file) for first, second, file in found]
    assert len(sources) >= 5
    for first, second, file in sources:
        source = file.read_text(encoding="utf-8")
        assert re.search(rf"^(?:class {first}\b|{first}\b)", source, re.MULTILINE), (first, file.name)
        assert not second or f"def {second}(" in source, (second, file.name)


def test_every_test_that_the_documentation_names_is_there():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    there = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}
    for page in ROOT.glob("docs/**/*.md"):
        named = set(re.findall(r"`(?:[\w/.]+::)?(test_\w+)`", page.read_text(encoding="utf-8")))
        assert named <= there, page.name


def commands_of(page):
    """The commands of fairway that a page shows, with their words."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split(" #")[0].split() for line in re.findall(r"^ {4,}(fairway .+)$", text, re.MULTILINE)]


def test_every_option_of_a_command_in_the_documentation_is_there(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    @cache
    def options(*words):
        shown = CliRunner().invoke(app, [*words, "--help"])
        assert shown.exit_code == 0, words
        return set(re.findall(r"--[a-z-]+", shown.output))

    shown = [words for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")) for words in commands_of(page)]
    assert len(shown) >= 20
    for words in shown:
        depth = 3 if words[1] in {"pipeline", "rln"} else 2
        assert {word for word in words if word.startswith("--")} <= options(*words[1:depth]), " ".join(words)


def test_every_event_is_explained_to_operators():
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert [kind.__name__ for kind in EVENT_NAMES if f"`{kind.__name__}`" not in page] == []


def test_the_page_on_the_protocol_says_what_happens_at_every_limit():
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert [limit.name for limit in Limit if f"| `{limit.name}` |" not in page] == []


def test_the_guide_lists_every_event_with_its_name():
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for kind, name in EVENT_NAMES.items():
        assert f"| `{kind.__name__}` | `{name}` |" in guide
