"""``fairway simulate``: what a person and a program read, and the exit codes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from fairway.cli.simulate import command
from fairway.errors import ConfigurationError
from fairway.simulation.plan import replay_command
from fairway.simulation.random_plans import draw_plan
from fairway.simulation.runner import simulate

SMALL = ("--participants", "4", "--hours", "0.02", "--messages-per-hour", "60", "--bloom-capacity", "500")
FEWEST = ("--participants", "2", "--hours", "0.01", "--bloom-capacity", "500")
QUIET_NEVER = (*SMALL, "--settle-ms", "0", "--loss", "0.7", "--messages-per-hour", "300")


def run(*words):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(words))


def test_what_happened_is_printed_as_tables_that_fit_a_terminal_of_100_columns():
    result = run(*SMALL, "--loss", "0.3")
    assert result.exit_code == 0, result.output
    for heading in ("What happened", "How long it took", "What was transmitted", "every invariant held", "trace "):
        assert heading in result.stdout
    tables = result.stdout.partition("every invariant held")[0]
    assert max(map(len, tables.splitlines())) <= 100
    assert "run it again: fairway simulate --participants 4 --hours 0.02 --loss 0.3 --seed 1" in result.stdout
    assert "simulated in" not in result.stdout


@pytest.mark.full
def test_the_same_words_print_the_same():
    assert run(*FEWEST).stdout == run(*FEWEST).stdout != run(*FEWEST, "--seed", "2").stdout


@pytest.mark.full
@pytest.mark.parametrize(("participants", "leaves"), [("2", 0), ("3", 1), ("4", 2)])
def test_however_few_take_part_nobody_has_to_say_how_many_leave(participants, leaves):
    result = run("--participants", participants, "--hours", "0.01", "--bloom-capacity", "500", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["plan"]["leaves"] == leaves


def test_json_is_one_object_with_everything():
    result = run(*SMALL, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["ok"] is True
    assert report["violations"] == []
    assert report["plan"]["participants"] == 4
    assert report["delivered"] == report["deliveries_owed"] > 0


def test_a_violation_is_printed_with_the_command_that_runs_it_again_and_ends_in_exit_code_1():
    result = run(*QUIET_NEVER)
    assert result.exit_code == 1
    assert "violated: the channel comes to rest: nothing came for 0 minutes, and it is not quiet" in result.stdout
    again = next(line for line in result.stdout.splitlines() if line.startswith("run it again: fairway simulate "))
    assert run(*shlex.split(again)[5:]).stdout == result.stdout


def test_json_tells_violations_too():
    result = run(*QUIET_NEVER, "--json")
    assert result.exit_code == 1
    assert {violation["invariant"] for violation in json.loads(result.stdout)["violations"]} >= {
        "the channel comes to rest"
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--participants", "1"), "participants must be 2 to 1000, not 1"),
        (("--loss", "1"), "loss must be 0 or more and less than 1"),
        (("--hours", "0"), "hours must be 0.00028 to 720, not 0"),
        (("--hours", "nan"), "hours must be 0.00028 to 720, not nan"),
        (("--hours", "1e300"), "hours must be 0.00028 to 720, not 1e+300"),
        (("--worlds", "1", "--record", "no/such/folder/worlds.jsonl"), "worlds.jsonl cannot be written (No such file"),
    ],
)
def test_a_world_that_cannot_be_is_refused(words, text):
    result = run(*words)
    assert isinstance(result.exception, ConfigurationError)
    assert text in str(result.exception)


@pytest.mark.parametrize("words", [("--profile", "carrier-pigeon"), ("--loss", "half"), ("--unheard-of",)])
def test_words_that_cannot_be_understood_end_in_exit_code_2(words):
    assert run(*words).exit_code == 2


@pytest.mark.full
def test_the_replay_command_of_a_world_with_every_trouble_gives_the_same_world():
    plan = draw_plan(11, participants=3, duration_ms=61_007, loss=0.123456789, settle_ms=20_000)
    replayed = json.loads(run(*shlex.split(replay_command(plan))[2:], "--json").stdout)
    report = simulate(plan)
    assert replayed["trace_hash"] == report.trace_hash
    assert replayed["plan"] == report.as_json()["plan"]


CALM_SEED = 1_476
"""From here on several seeds draw worlds without any trouble, which take no time."""
FEW = ("--participants", "3", "--hours", "0.02", "--jobs", "1", "--first-seed", str(CALM_SEED))
BROKEN = (*FEW, "--settle-ms", "0", "--loss", "0.7", "--messages-per-hour", "300", "--ask-all-share", "1")


def test_many_worlds_are_a_line_each_and_what_came_of_all():
    result = run(*FEW, "--worlds", "3")
    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()[:4]
    end, *table, verdict = result.stdout.splitlines()[4:]
    assert max(map(len, table)) <= 80
    assert head.split()[:3] == ["seed", "people", "loss"]
    assert [row.split()[0] for row in rows] == ["1476", "1477", "1478"]
    assert {row.split()[1] for row in rows} == {"3"}
    assert all(row.endswith("  ok") and len(row) <= 100 for row in rows)
    assert end.startswith("3 worlds, ")
    assert "x as fast as real time" in end
    assert verdict == "every invariant held in all of them"


@pytest.mark.full
def test_many_worlds_as_json_are_one_object():
    result = run(*FEW, "--worlds", "2", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["worlds"], answer["broken"], answer["interrupted"]) == (2, [], False)
    assert answer["virtual_hours"] > 0 < answer["seconds"]


def test_the_first_broken_world_ends_it_and_a_smaller_one_is_printed_last_with_the_command_that_runs_it():
    result = run(*BROKEN, "--worlds", "50", "--shrink-s", "30")
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert "broke: the channel comes to rest" in lines[1]
    assert "1 broke" in lines
    assert any(line.startswith("the smallest world found that breaks so: 2 participants") for line in lines)
    assert lines[-2].startswith("violated: the channel comes to rest: ")
    smaller = run(*shlex.split(lines[-1].removeprefix("run it again: "))[2:])
    assert smaller.exit_code == 1
    assert "violated: the channel comes to rest: " in smaller.stdout


@pytest.mark.full
def test_when_it_keeps_going_every_broken_world_is_listed_with_its_own_command():
    result = run(*BROKEN, "--worlds", "3", "--keep-going", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["worlds"] == 3
    assert len(answer["broken"]) >= 2
    for broken in answer["broken"]:
        assert broken["violations"][0]["invariant"] == "the channel comes to rest"
        assert broken["plan"]["loss"] == 0.7
        assert broken["shrunk"] is None
        again = run(*shlex.split(broken["replay"])[2:], "--json")
        assert json.loads(again.stdout)["violations"][0]["sentence"] == broken["violations"][0]["sentence"]


@pytest.mark.full
def test_the_figures_of_each_world_are_appended_to_a_file(tmp_path):
    file = tmp_path / "worlds.jsonl"
    for first_seed in (CALM_SEED, CALM_SEED + 2):
        words = ("--worlds", "2", "--first-seed", str(first_seed), "--record", str(file))
        assert run(*FEW, *words).exit_code == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["seed"] for row in rows] == list(range(CALM_SEED, CALM_SEED + 4))
    assert {"messages", "transmitted_bytes", "bytes_per_delivery", "p95_delivery_ms", "cpu_s"} <= rows[0].keys()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--worlds", "2", "--seed", "3"), "give --first-seed"),
        (("--worlds", "2", "--archive", "world.db"), "--archive keeps one world"),
        (("--worlds", "0"), "worlds must be at least 1, not 0"),
        (("--budget-s", "0"), "budget_s must be more than 0 seconds"),
        (("--worlds", "2", "--loss", "1"), "loss must be 0 or more and less than 1"),
    ],
)
def test_many_worlds_that_cannot_be_are_refused(words, text):
    result = run(*words)
    assert isinstance(result.exception, ConfigurationError)
    assert text in str(result.exception)


@pytest.mark.full
def test_an_interrupt_ends_all_worlds_and_says_what_came_of_those_that_ended():
    words = (*FEW, "--jobs", "2", "--budget-s", "3600")
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", "simulate", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert all(line.endswith("  ok\n") for line in lines[1:])
    assert ", interrupted\n" in stdout
    assert stderr == ""


@pytest.mark.full
def test_what_was_recorded_is_gone_on_with_and_shown_as_tables(tmp_path):
    record = tmp_path / "worlds.jsonl"
    words = (*FEW, "--loss", "0.3", "--messages-per-hour", "300", "--record", str(record), "--resume")
    assert run(*words, "--worlds", "1").exit_code == 0
    assert run(*words, "--worlds", "3").exit_code == 0
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [row["seed"] for row in rows] == [CALM_SEED, CALM_SEED + 1, CALM_SEED + 2]
    shown = run("--tables", str(record))
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "loss is noticed" in shown.stdout
    told = json.loads(run("--tables", str(record), "--tables", str(record), "--json").stdout)
    assert (told["worlds"], told["broken"]) == (6, [])
    assert told["figures"]["30"]["messages"] == 2 * sum(row["messages"] for row in rows)
    assert told["figures"]["30"]["noticed_within_3s"] > 0


def test_tables_name_the_broken_worlds_of_a_record_and_end_in_exit_code_1(tmp_path):
    record = tmp_path / "worlds.jsonl"
    assert run(*BROKEN, "--worlds", "1", "--keep-going", "--record", str(record)).exit_code == 1
    shown = run("--tables", str(record))
    assert shown.exit_code == 1
    assert f"broke: {json.loads(record.read_text())['replay']}" in shown.stdout.splitlines()


def test_going_on_needs_a_record():
    result = run(*FEW, "--worlds", "1", "--resume")
    assert isinstance(result.exception, ConfigurationError)
    assert "give it as --record FILE" in str(result.exception)
