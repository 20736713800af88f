"""The page of a run holds all that it shows and nothing that a stranger put there; tables are made without a JVM."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.pipeline.report import report_of
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.report.terminal import print_run_report
from fairway.pipeline.run.folder import MANIFEST
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import SCHEMA_VERSION, TABLES

BEGIN = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
HOSTILE = "<script>alert(1)</script>\"'>&\u202e\x00"
LONG = "n" * 150 + "<script>" + "m" * 142
VOID = {"meta"}


def stats(channel: str, content: int, missing: int, incomplete: int = 0) -> dict:
    return {
        "channel_id": channel,
        "senders": 2,
        "content": content,
        "missing": missing,
        "delivered": content,
        "incomplete": incomplete,
        "acknowledged": content // 2,
        "repeats": 1,
        "sync": 0,
        "ephemeral": 0,
        "reassembled": 0,
        "recovered": 0,
        "delivered_bytes": 0,
    }


def sender(name: str | None, content: int, missing: int, incomplete: int = 0) -> dict:
    return stats("tiny", content, missing, incomplete) | {"sender_id": name}


def gap(channel: str, number: int) -> dict:
    return {
        "channel_id": channel,
        "message_id": f"gone-{number}",
        "sender_id": None,
        "cited_by": number,
        "first_cited": BEGIN + number * SECOND,
        "last_cited": BEGIN + 60 * SECOND,
    }


def contents() -> dict[str, list[dict]]:
    times = [BEGIN + place * SECOND for place in range(100)]
    many = [stats(f"channel-{number}", 5, 0) for number in range(30)]
    return {
        "waku_messages": [
            {
                "timestamp": time,
                "content_topic": f"/{row % 2}{HOSTILE}",
                "sources": ["a", HOSTILE] if row < 51 else ["a"],
            }
            for row, time in enumerate([*times, 0, BEGIN + SECOND])
        ],
        "sender_stats": [sender("alice", 10, 2), sender("bob", 40, 5, 1), sender(HOSTILE, 90, 0), sender(None, 0, 3)],
        "sds_messages": [{"timestamp": time, "payload_bytes": 100} for time in [*times, 0]],
        "quarantine": [
            {"timestamp": BEGIN + SECOND, "status": "undecodable", "error": f"bad {HOSTILE}", "payload_bytes": 7}
        ],
        "channel_stats": [stats("tiny", 1, 1), stats(HOSTILE, 10, 90), stats(LONG, 50, 5, 3), *many],
        "missing_messages": [gap(HOSTILE, number) for number in range(1, 41)],
        "sds_ordered": [
            *(
                {"channel_id": HOSTILE, "status": status}
                for status in ["waiting"] * 6 + ["circular"] + ["complete"] * 3
            ),
            *({"channel_id": LONG, "status": "not-computed"} for _ in range(50)),
            {"channel_id": "tiny", "status": "complete"},
        ],
        "ack_latency": [{"latency_ms": latency} for latency in (5, 1_000, 1_001, 100_000_000, None)],
        "bandwidth": [
            {"channel_id": HOSTILE, "part": "content", "bytes": 7_000, "messages": 90},
            {"channel_id": HOSTILE, "part": "bloom", "bytes": 3_000, "messages": 40},
        ],
        "rate_utilisation": [
            {"sender_id": LONG, "epoch_start_ms": 1_700_000_000_000, "messages": 120, "limit": 100, "pct": 120.0},
            {"sender_id": HOSTILE, "epoch_start_ms": 1_700_000_000_000, "messages": 60, "limit": 100, "pct": 60.0},
        ],
        "store_completeness": [
            {"source": "a", "messages": 102, "of": 102, "missing": 0},
            {"source": HOSTILE, "messages": 51, "of": 102, "missing": 51},
        ],
    }


def run_folder(path: Path, tables: dict[str, list[dict]], **changes) -> Path:
    """A run folder as a run leaves it, with the rows that are given."""
    for table in TABLES:
        place = path / "tables" / table.name
        place.mkdir(parents=True)
        rows = pa.Table.from_pylist(tables.get(table.name, []), schema=arrow_schema(table.schema))
        pq.write_table(rows, place / "part-0.parquet")
    figures = {"duplicates": 8, "quarantined": 1, "retransmissions": 1, "sync": 10, "delivered": 86, "incomplete": 3}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "state": "complete",
        "sources": [{"label": HOSTILE, "uri": "sqlite:a.db"}],
        "options": {"format": "parquet", "epoch_ms": 600_000, "rate_limit": 100},
        "balance": {"rows_in": sum(figures.values()), **figures, "adds_up": True},
        "tables": {table.name: {"rows": len(tables.get(table.name, []))} for table in TABLES},
    }
    (path / MANIFEST).write_text(json.dumps(manifest | changes), encoding="utf-8")
    return path


def page_of(tmp_path: Path, tables: dict[str, list[dict]], **changes) -> str:
    target = tmp_path / "report.html"
    write_html_report(run_folder(tmp_path / "run", tables, **changes), target)
    assert {child.name for child in tmp_path.iterdir()} == {"run", "report.html"}
    return target.read_text(encoding="utf-8")


class Checked(HTMLParser):
    """Follows the elements of a page, and fails at one that is not closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.labelled: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        assert len(told) == len(attrs), f"<{tag}> has an attribute twice"
        assert not {name for name in told if name.startswith("on") or name in {"src", "style", "srcset"}}
        assert told.get("href", "#").startswith("#")
        self.seen.append(tag)
        self.ids += [told["id"]] if "id" in told else []
        self.labelled += told.get("aria-labelledby", "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


@pytest.mark.parametrize("tables", [contents(), {}], ids=["full", "empty"])
def test_the_page_is_well_formed(tmp_path, tables):
    page = Checked(page_of(tmp_path, tables))
    assert page.seen.count("section") == 9
    assert len(page.ids) == len(set(page.ids))
    assert set(page.labelled) <= set(page.ids)
    # Every chart is named and described.
    assert len(page.labelled) == 2 * page.seen.count("svg")


def test_what_strangers_wrote_is_text(tmp_path):
    page = page_of(tmp_path, contents())
    assert "<script" not in page
    assert "\u202e" not in page
    assert "\x00" not in page
    checked = Checked(page)
    assert "script" not in checked.seen
    assert "<script>alert(1)</script>\"'>&\\u202e\\x00" in checked.text
    assert "n" * 24 + "…" + "m" * 12 in checked.text
    assert "n" * 25 not in checked.text


def test_the_page_asks_nobody_for_anything(tmp_path):
    page = page_of(tmp_path, contents()).lower()
    for word in ("http", "//", "url(", "@import", "<link", "<img", "<iframe", "javascript"):
        assert word not in page, word
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_every_figure_has_its_denominator_and_the_worst_come_first(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    assert "86 of 109 (78.9%)" in told  # rows delivered, of rows in
    assert "90 of 100 (90.0%)" in told  # missing, of all that is known of
    assert "50 of 53 (94.3%)" in told  # readable
    assert "2 of 5 (40.0%)" in told  # acknowledged within a second: 5 ms and exactly 1,000 ms
    assert "4 of 5 (80.0%)" in told  # at any time
    assert "6.8 KiB of 9.8 KiB (70.0%)" in told
    assert "1 of 2 (50.0%) of the pairs are at the limit" in told
    assert "1 of 102 (1.0%) distinct messages could not be decoded" in told
    assert "1 of 102 (1.0%) messages have timestamps far from all others" in told
    assert "51 of 102 (50.0%)" in told
    losses = told[told.index("Channels, worst first") :]
    assert losses.index("90 of 100") < losses.index("1 of 2 (50.0%)") < losses.index("5 of 55")


def test_what_waits_behind_gaps_is_said_for_each_channel(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    assert "7 of 211 (3.3%) SDS messages that are there wait for missing ones" in told
    assert "Of 50 of 211 (23.7%) it is not known" in told
    waits = told[told.index("SDS messages that wait behind gaps") : told.index("Missing messages, most cited first")]
    assert waits.index("7 of 10 (70.0%)") < waits.index("90") < waits.index("unknown")
    assert "tiny" not in waits


def test_whose_messages_were_lost_is_said_with_the_most_first(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    lost = told[told.index("Senders, those of whom most was lost first") :]
    assert lost.index("5 of 45 (11.1%)") < lost.index("3 of 3 (100.0%)") < lost.index("2 of 12 (16.7%)")
    assert "1 of 41 (2.4%)" in lost
    assert "1 more of 4 channels and senders are not shown." in lost


def test_what_a_store_lacked_is_said_by_topic_and_drawn_over_time(tmp_path):
    page = page_of(tmp_path, contents())
    told = Checked(page).text
    lacked = told[told.index("What stores lacked, most first") :]
    assert lacked.index("26 of 51 (51.0%)") < lacked.index("25 of 51 (49.0%)")
    assert lacked.count("<script>") == 4  # two topics of the one store that lacked something
    lane = page[page.index("Messages that a store lacked, by the time they were sent") :]
    drawn = re.findall(r'class="bar bad" x="([0-9.]+)"[^>]*><title>[^<]*: ([0-9]+)</title>', lane)
    # From message 51 on, which is in the middle of the axis, but for the one that is far from all others, and the one
    # in quarantine, which was sent in the second second.
    assert sum(int(number) for _, number in drawn) == 50
    assert [float(x) < 200 for x, _ in drawn].count(True) == 1


def test_stores_that_have_everything_lack_nothing(tmp_path):
    tables = contents() | {"store_completeness": [{"source": "a", "messages": 102, "of": 102, "missing": 0}]}
    assert "What stores lacked" not in page_of(tmp_path, tables)


def terminal_report(tmp_path: Path, tables: dict[str, list[dict]], limit: int = 20, **changes) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    print_run_report(RunTables(run_folder(tmp_path / "run", tables, **changes)), console, limit)
    return console.export_text()


def test_the_terminal_answers_the_same_questions_with_the_worst_first(tmp_path):
    told = terminal_report(tmp_path, contents())
    channels = told[told.index("Channels, worst first") :]
    assert channels.index("90 (90.0%)") < channels.index("1 (50.0%)") < channels.index("5 (9.1%)")
    senders = told[told.index("Senders, those of whom most was lost first") :]
    assert senders.index("5 (11.1%)") < senders.index("unknown") < senders.index("2 (16.7%)")
    within = told[told.index("Time until the first acknowledgement") :]
    assert within.split("of 5 content messages")[0].split()[-5:] == ["at", "any", "time", "4", "80.0%"]
    assert "of 2 pairs of sender and epoch" in told
    assert "1 at the limit or above it," in told
    assert "0 from 80 %, 1 from 50 %" in told
    found = told[told.index("Stores, least complete first") :]
    assert found.index("50.0%") < found.index("100.0%") < found.index("What stores lacked, most first")
    assert "1 (1.0%)" in told[told.index("Quarantine: not decoded, or forged") :]


def test_programs_get_the_same_answers(tmp_path):
    told = report_json(RunTables(run_folder(tmp_path / "run", contents())), 2)
    assert told["latency"]["within_ms"]["1000"] == 2
    assert [sender["missing"] for sender in told["senders"]] == [5, 3]
    assert told["senders_in_all"] == 4
    assert [store["messages"] for store in told["stores"]] == [51, 102]
    assert [lack["lacked"] for lack in told["stores_lacked"]] == [26, 25]
    assert [waits["waiting"] for waits in told["waiting"]] == [7, 0]
    assert json.loads(json.dumps(told)) == told


def test_the_terminal_says_what_waits_too(tmp_path):
    told = terminal_report(tmp_path, contents(), 1)
    waits = told[told.index("Waiting for missing messages") :].splitlines()
    assert waits[3].split()[-3:] == ["7", "10", "90"]
    assert "and 1 more of 2 channels" in waits[4]


def test_of_incomplete_messages_those_that_lack_least_come_first(tmp_path):
    held = {"far": (40, 1_000), "near": (2, 3), "unknown": (5, None), "half": (5, 10)}
    rows = [
        {"channel_id": channel, "sender_id": "alice", "outcome": "incomplete", "held": there, "data_segments": needed}
        for channel, (there, needed) in held.items()
    ]
    tables = RunTables(run_folder(tmp_path / "run", {"incomplete": rows}))
    assert [told.channel_id for told in report_of(tables, 9).incomplete] == ["near", "half", "far", "unknown"]
    assert [(told.held, told.needed) for told in report_of(tables, 1).incomplete] == [(2, 3)]


def test_what_is_cut_is_said(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    assert "18 more of 33 channels are not shown." in told
    assert "25 more of 40 missing messages are not shown." in told


def test_every_section_names_the_tables_that_it_was_made_from(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    for names in (
        "sds_messages, quarantine",
        "channel_stats",
        "ack_latency",
        "missing_messages, channel_stats, sds_ordered",
    ):
        assert f"Figures from {names}." in told
    for names in ("bandwidth", "rate_utilisation", "quarantine", "sender_stats", "store_completeness, waku_messages"):
        assert f"Figures from {names}." in told
    assert str(tmp_path / "run" / "tables") in told


def test_the_first_questions_are_answered_at_the_top(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    top = told[: told.index("What became of")]
    assert "SDS messages missing31.3%96 of 307 known" in top.replace("\n", "")
    assert "Held up by missing ones3.3%7 of 211 SDS messages" in top
    assert "At the rate limit50.0%1 of 2 senders and epochs" in top
    assert "had 51 of 102" in top
    (tmp_path / "again").mkdir()
    no_limit = {"format": "parquet", "epoch_ms": 600_000, "rate_limit": None}
    assert "no limit was given to the run" in page_of(tmp_path / "again", contents(), options=no_limit)


def test_what_is_above_the_limit_is_drawn_beyond_its_mark(tmp_path):
    page = page_of(tmp_path, contents())
    chart = page[page.index("Busiest senders in one epoch") :]
    bars = [float(width) for width in re.findall(r'class="bar[^"]*"[^>]* width="([0-9.]+)"', chart)][:2]
    mark = float(re.findall(r'class="limit" d="M([0-9.]+) ', chart)[0])
    assert bars[1] < mark - 4 < bars[0]
    assert bars[0] / bars[1] == pytest.approx(2, rel=0.01)


def test_the_page_stays_small_whatever_strangers_name_their_channels(tmp_path):
    tables = contents()
    names = [f"{HOSTILE}{number}" + "x" * 10_000 for number in range(2_000)]
    tables["channel_stats"] = [stats(name, 100, number % 50, number % 7) for number, name in enumerate(names)]
    tables["missing_messages"] = [gap(name, 1) for name in names[:500]]
    page = page_of(tmp_path, tables)
    assert len(page) < 250_000
    assert "1,985 more of 2,000 channels are not shown." in Checked(page).text


def test_a_balance_that_does_not_add_up_is_said(tmp_path):
    figures = dict.fromkeys(("duplicates", "quarantined", "retransmissions", "sync", "delivered", "incomplete"), 1)
    told = Checked(page_of(tmp_path, {}, balance={"rows_in": 9, **figures, "adds_up": False})).text
    assert "This does not add up: 6 rows are accounted for." in told


def test_the_command_writes_the_page(tmp_path):
    folder, target = run_folder(tmp_path / "run", contents()), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["pipeline", "report", str(folder), "--html", str(target)])
    assert result.exit_code == 0, result.output
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(target) in result.output.replace("\n", "")


def test_a_program_gets_one_object(tmp_path):
    tables = contents()
    tables["sender_stats"] = [{"channel_id": "a", "sender_id": HOSTILE, "first_seen": 1, "content": 2, "sync": 0}]
    tables["incomplete"] = [{"channel_id": "a", "sender_id": "b", "segment_hash": b"\xab" * 32, "held": 1}]
    folder, target = run_folder(tmp_path / "run", tables), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["pipeline", "report", str(folder), "--json", "--html", str(target)])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["balance"]["adds_up"] is True
    assert (told["messages"], len(told["channels"]), len(told["missing"])) == (102, 33, 20)
    assert told["incomplete"][0]["payload_hash"] == "ab" * 32
    assert told["senders"][0]["sender_id"] == HOSTILE
    assert told["bandwidth"][0] == {"part": "content", "bytes": 7_000, "messages": 90}
    assert target.is_file()


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_html_report(run_folder(tmp_path / "run", {}), tmp_path / "nowhere" / "page.html")
