"""The first screen of a report names what was planted in two archives: an outage, a lost sender, a flood."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from rich.console import Console
from typer.testing import CliRunner

from browsing import SCREENS, launched, opened
from fairway.cli import app
from fairway.options import Profile
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.report.terminal import print_run_report
from fairway.pipeline.run import run
from fairway.pipeline.run.reading import RunTables
from fairway.storage.nwaku_archive import NwakuArchive

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHARD = "/waku/2/rs/1/0"
BEGIN = datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)  # of every `Log`
OUT_FROM, OUT_TO = BEGIN + timedelta(seconds=700), BEGIN + timedelta(seconds=1_300)
LIMIT = 100
SCREEN_LINES = 30


@pytest.fixture(scope="module")
def planted(spark, log, tmp_path_factory):
    """Run two stores: b was out for ten minutes, most of dave's messages never left him, mallory sent too much."""
    folder = tmp_path_factory.mktemp("planted")
    team, alone, noise = log("team"), log("team"), log("noise")
    for number in range(450):
        team.message(("alice", "bob", "carol")[number % 3], b"number %d" % number, elapsed_ms=5_000)
    for number in range(12):
        alone.message("dave", b"does anybody hear me? %d" % number, elapsed_ms=40_000)
    noise.message("mallory", b"first", elapsed_ms=420_000)
    for number in range(129):
        noise.message("mallory", b"buy %d" % number, elapsed_ms=1_000)
    noise.message("alice", b"stop it")
    heard = [waku for number, (_, waku) in enumerate(alone.sent) if number % 3 == 2]
    messages = [waku for _, waku in team.sent] + heard + [waku for _, waku in noise.sent]
    for name in ("a", "b"):
        with NwakuArchive(folder / f"{name}.db") as archive:
            for waku in messages:
                at = datetime.fromtimestamp(waku.timestamp_ns / 1e9, UTC)
                if name == "a" or not OUT_FROM <= at < OUT_TO:
                    archive.append(SHARD, waku)
    sources = [f"{name}=sqlite:{folder / name}.db" for name in ("a", "b")]
    run(sources, folder / "run", profile=Profile.WAKU, rate_limit=LIMIT, spark=spark)
    page = folder / "report.html"
    write_html_report(folder / "run", page)
    return SimpleNamespace(run=folder / "run", page=page, folder=folder)


def names_what_was_planted(screen: str) -> None:
    words = " ".join(screen.split())
    window = re.search(r"b lacked everything from 2025-10-09 (\d\d:\d\d:\d\d) to (\d\d:\d\d:\d\d) UTC", words)
    assert window, words
    for told, planted in zip(window.groups(), (OUT_FROM, OUT_TO), strict=True):
        at = datetime.strptime(f"2025-10-09 {told} +0000", "%Y-%m-%d %H:%M:%S %z")
        assert abs(at - planted) <= timedelta(seconds=10), told
    assert "dave in team (8 of 12 lost, nobody else cites them)" in words
    assert "Over the rate limit of 100: mallory in noise (130 in the epoch from 2025-10-09 09:00 UTC)" in words
    assert re.search(r"Of 593 messages known, 585 readable \S+ 8 lost", words), words


def test_the_terminal_names_them_on_its_first_screen(planted):
    shown = io.StringIO()
    print_run_report(RunTables(planted.run), Console(file=shown, width=100, force_terminal=False), 20)
    first = "\n".join(shown.getvalue().splitlines()[:SCREEN_LINES])
    names_what_was_planted(first.replace("│", " "))


def test_programs_are_told_the_same(planted):
    result = CliRunner().invoke(app, ["pipeline", "report", str(planted.run), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["headline"]["known"] == 593
    assert (told["headline"]["readable"], told["headline"]["lost"]) == (585, 8)
    names_what_was_planted(
        "Of 593 messages known, 585 readable () 8 lost " + " ".join(each["what"] for each in told["to_do"])
    )
    (store,) = (store for store in told["stores"] if store["outages"])
    (outage,) = store["outages"]
    assert (store["source"], outage["lacked"]) == ("b", outage["of"])
    assert outage["lacked"] == store["lacked"]
    assert [(each["cause"], each["count"]) for each in told["causes"]] == [("sender-only", 8)]
    assert [(each["sender_id"], each["messages"]) for each in told["over_limit"]] == [("mallory", 130)]


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_page_names_them_on_its_first_screen(planted, screen):
    with launched() as browser, opened(browser, planted.page, screen) as page:
        visible = page.evaluate(
            """() => [...document.querySelectorAll('header p, header li')]
                .filter((each) => each.getBoundingClientRect().bottom <= innerHeight)
                .map((each) => each.innerText).join(' ')"""
        )
        page.locator(".todo summary").first.click()
        page.locator(".todo").get_by_role("button", name="Copy fairway pipeline backfill").click()
        assert page.evaluate("navigator.clipboard.readText()").startswith("fairway pipeline backfill --from")
    names_what_was_planted(visible)


def test_the_command_that_the_report_names_fills_the_store(planted, tmp_path):
    told = json.loads(CliRunner().invoke(app, ["pipeline", "report", str(planted.run), "--json"]).stdout)
    (command,) = (command for each in told["to_do"] for command in each["commands"])
    words = command.split()
    assert words[:3] == ["fairway", "pipeline", "backfill"]
    result = CliRunner().invoke(app, [*words[1:], "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    outage = next(store for store in told["stores"] if store["outages"])
    assert str(outage["lacked"]) in result.stdout
