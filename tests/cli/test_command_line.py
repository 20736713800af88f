"""The command line frame: help, version, exit codes, and what a person reads when something is wrong."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

import fairway.cli
from fairway.cli import app, main
from fairway.errors import ConfigurationError


def exit_code_of_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["fairway", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def when_the_app_does(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(fairway.cli, "app", fail)


def test_help_lists_every_command_and_shows_examples():
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "Examples" in result.output
    assert all(command.name in result.output for command in app.registered_commands if command.name)


@pytest.mark.parametrize("command", [command.name for command in app.registered_commands])
def test_every_command_explains_itself(command: str):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"fairway {command}" in result.output.replace("root", "fairway")


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"fairway {fairway.__version__}\n")


def test_an_error_of_fairway_is_one_line_with_a_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    when_the_app_does(monkeypatch, ConfigurationError("loss must lie in 0..1,\n not 7"))
    assert exit_code_of_main(monkeypatch, "demo", "--loss", "7") == 2
    assert capsys.readouterr().err == "fairway: loss must lie in 0..1, not 7; see 'fairway demo --help'\n"


def test_an_error_of_a_command_in_a_group_points_to_the_help_of_that_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert exit_code_of_main(monkeypatch, "pipeline", "report", "no-such-run") == 2
    assert capsys.readouterr().err.endswith("; see 'fairway pipeline report --help'\n")


def test_an_interrupt_ends_in_exit_code_130(monkeypatch: pytest.MonkeyPatch):
    when_the_app_does(monkeypatch, KeyboardInterrupt())
    assert exit_code_of_main(monkeypatch) == 130


def test_an_unexpected_exception_is_raised(monkeypatch: pytest.MonkeyPatch):
    when_the_app_does(monkeypatch, ZeroDivisionError("fault"))
    monkeypatch.setattr(sys, "argv", ["fairway"])
    with pytest.raises(ZeroDivisionError):
        main()
