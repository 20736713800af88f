"""Commands are imported when they run: the list of all needs none of them, and survives one that is broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fairway.cli._lazy import lazy_class, lazy_command
from patience import PATIENCE_S

WORKING = '''"""A module."""

import typer


def command(name: str, loud: bool = False) -> None:
    """Greet somebody.

    At
    length.
    """
    typer.echo(f"hello {name}" + "!" * loud)
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Return an app of three commands: one that works, and two that do not."""
    (tmp_path / "lazy_working.py").write_text(WORKING)
    (tmp_path / "lazy_failing.py").write_text('import nothing_of_this_name\ndef command() -> None:\n    """Fail."""\n')
    (tmp_path / "lazy_garbled.py").write_text("def command(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = typer.Typer()
    for name in ("working", "failing", "garbled"):
        made.command(name=name, cls=lazy_class(f"lazy_{name}"))(lazy_command(f"lazy_{name}"))
    return made


def test_the_list_of_commands_needs_none_of_them(app: typer.Typer):
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for words in ("Greet somebody.", "Fail.", "its source has a syntax error"):
        assert words in result.output
    assert not {"lazy_working", "lazy_failing"} & set(sys.modules)


def test_a_command_runs_with_its_own_options_and_help(app: typer.Typer):
    result = CliRunner().invoke(app, ["working", "bob", "--loud"])
    assert (result.exit_code, result.output) == (0, "hello bob!\n")
    told = CliRunner().invoke(app, ["working", "--help"])
    assert "--loud" in told.output
    assert "At length." in told.output
    assert CliRunner().invoke(app, ["working"]).exit_code == 2


def test_a_broken_command_fails_only_itself(app: typer.Typer):
    assert isinstance(CliRunner().invoke(app, ["failing"]).exception, ModuleNotFoundError)
    assert isinstance(CliRunner().invoke(app, ["garbled"]).exception, SyntaxError)


def test_the_help_of_fairway_loads_no_command_and_no_client_of_nodes_elsewhere():
    parts = ("fairway.cli.", "fairway.nodes.light", "fairway.nodes.rest", "fairway.libp2p")
    code = (
        "import sys; sys.argv = ['fairway', '--help']; from fairway.cli import app\n"
        "try:\n    app()\nexcept SystemExit:\n"
        f"    loaded = [name for name in sys.modules if name.startswith({parts})]\n"
        "    sys.exit(' '.join(loaded))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "participant" in ended.stdout
    assert ended.stderr.split() == ["fairway.cli._lazy"]
