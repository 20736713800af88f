"""``fairway simulate``: what a person and a program read, and the exit codes."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import typer
from typer.testing import CliRunner

from fairway.cli.simulate import command
from fairway.errors import ConfigurationError
from fairway.simulation import Plan, replay_command

SMALL = ("--participants", "3", "--hours", "0.02", "--messages-per-hour", "60", "--troubles", "none")


def run(*words):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(words))


def test_one_world_prints_its_figures_and_what_happened():
    result = run("--seed", "1", *SMALL)
    assert result.exit_code == 0, result.output
    for text in ("the sender knows", "everybody has it", "bytes a message", "MessageDelivered", "x real time"):
        assert text in result.stdout


def test_json_is_one_object_with_the_figures_and_the_command_that_replays_the_world():
    report = json.loads(run("--seed", "1", *SMALL, "--json").stdout)
    assert report["ok"] is True
    assert report["furps"]["messages"] == report["sent"] > 0
    again = shlex.split(report["replay"])
    assert again[:2] == ["fairway", "simulate"]
    assert json.loads(run(*again[2:], "--json").stdout) == report


@pytest.mark.parametrize("seed", range(10))
def test_the_replay_command_gives_the_plan(seed, monkeypatch):
    plan = Plan.drawn(seed)
    given = []

    def world(plan, **_):
        given.append(plan)
        raise SystemExit

    monkeypatch.setattr("fairway.cli.simulate.World", world)
    run(*shlex.split(replay_command(plan))[2:])
    assert given == [plan]


def test_each_world_is_a_line_and_all_are_summed_up():
    result = run("--worlds", "3", "--jobs", "2", *SMALL)
    assert result.exit_code == 0, result.output
    assert sum(line.startswith("seed ") for line in result.stdout.splitlines()) == 3
    assert "3 worlds" in result.stdout
    together = json.loads(run("--worlds", "3", "--jobs", "2", *SMALL, "--json").stdout)
    assert (together["worlds"], together["broken"]) == (3, [])


def test_a_violation_ends_the_run_with_exit_code_1_and_the_replay_command():
    result = run("--worlds", "9", "--jobs", "1", "--world-s", "1", "--hours", "700", "--participants", "3")
    assert result.exit_code == 1
    assert "violated: no program fails" in result.stdout
    assert "run it again: fairway simulate --seed 1 --participants 3 --hours 700" in result.stdout
    assert "1 broken" in result.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--seed", "1", "--participants", "1"), "participants must be 2 to 1000, not 1"),
        (("--seed", "1", "--loss", "1"), "loss must be 0 to 0.9, not 1"),
        (("--seed", "1", "--troubles", "rain"), "unknown trouble 'rain'"),
        (("--seed", "1", "--worlds", "2"), "--first-seed"),
        (("--archive", "new.db"), "--seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_impossible_world_is_refused(words, text):
    result = run(*words)
    assert isinstance(result.exception, ConfigurationError)
    assert text in str(result.exception)


def test_the_archive_holds_what_the_store_of_the_world_holds(tmp_path):
    path = tmp_path / "world.db"
    result = run("--seed", "2", *SMALL, "--store", "--archive", str(path), "--json")
    assert result.exit_code == 0, result.output
    with closing(sqlite3.connect(path)) as archive:
        (stored,) = archive.execute("SELECT count(*) FROM message").fetchone()
    assert stored > json.loads(result.stdout)["sent"] > 0
    assert isinstance(run("--seed", "2", *SMALL, "--archive", str(path)).exception, ConfigurationError)


def test_an_interrupt_prints_the_results_so_far_and_ends_with_exit_code_130():
    command = [sys.executable, "-m", "fairway", "simulate", "--worlds", "500", "--jobs", "1", *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert " worlds, " in out
    assert "Traceback" not in err
