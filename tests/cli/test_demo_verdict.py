"""The last word of ``fairway demo``: what Spark finds beside what the participants got, and the exit code."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fairway.apps.demonstration_report
import fairway.cli.demo
from fairway.apps.demonstration_bookkeeping import DemonstrationFaults
from fairway.apps.demonstration_report import Rebuilt
from fairway.apps.demonstration_result import DemonstrationResult, SentMessage
from fairway.cli import app
from fairway.errors import MissingExtraError

MESSAGE = SentMessage(
    sender="alice",
    title="ok",
    is_file=False,
    message_id="2689367b",
    size_bytes=2,
    sent_at_ms=0,
    received_by=("bob",),
    delivered_to=("bob",),
    delivered_at_ms=10,
    failed=None,
)
GOOD = DemonstrationFaults(lost=0, twice=0, out_of_order=0, unacknowledged=0, ended_twice=0)
RESULT = DemonstrationResult(
    channel_id="demo",
    participants=("alice", "bob"),
    messages=(MESSAGE,),
    elapsed_ms=10,
    verdict=GOOD,
    faults=(),
    file_sha256="ab",
    saved={"bob": "ab"},
    segments=1,
    recovered_by_parity=(),
    killing=None,
    network={"lost": 0, "delivered": 1, "published": 1, "published_bytes": 2},
)
FOUND = ("alice", "2689367b", 2)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a run of the command in which the processes and Spark say what the test wants."""

    def run(*arguments, result=RESULT, found=(FOUND,)):
        class Told:
            def __init__(self, *_arguments, **_options):
                pass

            async def run(self):
                return result

        def rebuild(_archive, folder, tell):
            tell("table 1 of 16")
            return Rebuilt(run=folder / "run", page=folder / "report.html", delivered=found, summary="a summary")

        monkeypatch.setattr(fairway.cli.demo, "Demonstration", Told)
        monkeypatch.setattr(fairway.apps.demonstration_report, "rebuild", rebuild)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return CliRunner().invoke(app, ["demo", *arguments])

    return run


def test_spark_that_finds_the_same_ends_well_and_says_where_its_report_is(run, tmp_path):
    ran = run()
    assert ran.exit_code == 0, ran.output
    assert "a summary\n" in ran.stdout
    assert "Spark delivers the very messages that the participants got\n" in ran.stdout
    (left,) = tmp_path.iterdir()  # stores and logs are gone
    assert f"the report, for a browser: {(left / 'report.html').as_uri()}\n" in ran.stdout


@pytest.mark.parametrize("found", [(), (FOUND, FOUND), ((*FOUND[:2], 3),)], ids=["nothing", "twice", "another"])
def test_spark_that_finds_something_else_ends_in_exit_code_1(run, found):
    ran = run(found=found)
    assert ran.exit_code == 1
    assert "Spark and the participants disagree" in ran.stdout


@pytest.mark.parametrize("arguments", [("--no-spark",), ()])
def test_something_lost_ends_in_exit_code_1_whatever_spark_says(run, arguments):
    ran = run(*arguments, result=replace(RESULT, verdict=replace(GOOD, lost=1)))
    assert ran.exit_code == 1
    assert "1 lost" in ran.stdout


def test_a_copy_that_differs_ends_in_exit_code_1(run):
    assert run("--no-spark", result=replace(RESULT, saved={"bob": "cd"})).exit_code == 1


def test_without_spark_it_says_so_before_anything_runs(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    ran = run()
    assert isinstance(ran.exception, MissingExtraError)
    assert "--no-spark" in str(ran.exception)
    assert not ran.stdout
    assert run("--no-spark").exit_code == 0


def test_a_program_gets_one_object_and_nothing_else_on_stdout(run):
    ran = run("--json")
    told = json.loads(ran.stdout)
    assert (told["succeeded"], told["spark_agrees"], told["messages"][0]["title"]) == (True, True, "ok")
    assert Path(told["report"]).name == "report.html"
    assert "What was sent" in ran.stderr
