"""The page of a run holds all that it shows and nothing that a stranger put there; tables are made without a JVM."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from rich.console import Console

from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.pipeline.report.as_json import report_json
from fairway.pipeline.report.causes import Causes
from fairway.pipeline.report.findings import Findings
from fairway.pipeline.report.html import data as embedding
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.report.tables import causes, data_tables
from fairway.pipeline.report.terminal import print_run_report
from fairway.pipeline.run.reading import RunTables
from fairway.visible import visible
from run_tables import write_run

BEGIN = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
HOSTILE = "<script>alert(1)</script>\"'>&\u202e\x00"
LONG = "n" * 150 + "<script>" + "m" * 142
VOID = {"meta"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"


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
        "first_cited_ns": BEGIN + number * SECOND,
        "last_cited_ns": BEGIN + 60 * SECOND,
    }


def contents() -> dict[str, list[dict]]:
    times = [BEGIN + place * SECOND for place in range(100)]
    many = [stats(f"channel-{number}", 5, 0) for number in range(30)]
    return {
        "waku_messages": [
            {
                "timestamp_ns": time,
                "content_topic": f"/{row % 2}{HOSTILE}",
                "sources": ["a", HOSTILE] if row < 51 else ["a"],
            }
            for row, time in enumerate([*times, 0, BEGIN + SECOND])
        ],
        "sender_stats": [sender("alice", 10, 2), sender("bob", 40, 5, 1), sender(HOSTILE, 90, 0), sender(None, 0, 3)],
        "sds_messages": [{"timestamp_ns": time, "payload_bytes": 100} for time in [*times, 0]],
        "quarantine": [
            {"timestamp_ns": BEGIN + SECOND, "status": "undecodable", "error": f"bad {HOSTILE}", "payload_bytes": 7}
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
            {
                "channel_id": "team",
                "sender_id": LONG,
                "epoch_start_ms": 1_700_000_000_000,
                "messages": 120,
                "charged": 120,
                "rate_limit": 100,
                "pct": 120.0,
            },
            {
                "sender_id": HOSTILE,
                "epoch_start_ms": 1_700_000_000_000,
                "messages": 60,
                "charged": 60,
                "rate_limit": 100,
                "pct": 60.0,
            },
        ],
        "store_completeness": [
            {"source": "a", "messages": 102, "known": 102, "missing": 0},
            {"source": HOSTILE, "messages": 51, "known": 102, "missing": 51},
        ],
    }


def run_folder(path: Path, tables: dict[str, list[dict]], **changes) -> Path:
    """A run folder as a run leaves it, with the rows that are given, of a source with a hostile name."""
    return write_run(path, tables, **{"sources": [{"label": HOSTILE, "uri": "sqlite:a.db"}]} | changes)


def page_of(tmp_path: Path, tables: dict[str, list[dict]], **changes) -> str:
    page = page_of_folder(run_folder(tmp_path / "run", tables, **changes), tmp_path / "report.html")
    assert {child.name for child in tmp_path.iterdir()} == {"run", "report.html"}
    return page


def page_of_folder(folder: Path, target: Path) -> str:
    write_html_report(folder, target)
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
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        assert len(told) == len(attrs), f"<{tag}> has an attribute twice"
        assert not {name for name in told if name.startswith("on") or name in {"src", "style", "srcset"}}
        if told.get("http-equiv") == "Content-Security-Policy":
            self.policy = told["content"]
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
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.text += data


def rows_in(page: str) -> dict[str, list[dict]]:
    """The tables with all their rows, as the script unpacks them."""
    found = {}
    for name, packed in re.findall(r'<script type="application/octet-stream" id="data-(\w+)">([^<]*)</script>', page):
        told = json.loads(gzip.decompress(base64.b64decode(packed)))
        titles = [column["title"] for column in told["columns"]]
        found[name] = [dict(zip(titles, row, strict=True)) for row in zip(*told["values"], strict=True)]
    return found


@pytest.mark.parametrize("tables", [contents(), {}], ids=["full", "empty"])
def test_the_page_is_well_formed(tmp_path, tables):
    page = Checked(page_of(tmp_path, tables))
    assert page.seen.count("section") == 12
    assert len(page.ids) == len(set(page.ids))
    assert set(page.labelled) <= set(page.ids)
    # Every chart is named and described.
    assert len(page.labelled) == 2 * page.seen.count("svg")


def test_what_strangers_wrote_is_text(tmp_path):
    page = page_of(tmp_path, contents())
    assert "\u202e" not in page
    assert "\x00" not in page
    checked = Checked(page)
    tables = rows_in(page)
    # Nothing but the data and the one script whose digest the policy names.
    assert checked.seen.count("script") == len(tables) + 1
    digest = base64.b64encode(hashlib.sha256(checked.scripts[-1].encode()).digest()).decode()
    assert checked.policy.startswith(f"{POLICY}{digest}'")
    assert "<script>alert(1)</script>\"'>&\\u202e\\x00" in checked.text
    assert "n" * 24 + "…" + "m" * 12 in checked.text
    assert "n" * 41 not in checked.text
    assert {row["channel"] for row in tables["channels"]} >= {"<script>alert(1)</script>\"'>&\\u202e\\x00", LONG}


def test_the_page_asks_nobody_for_anything(tmp_path):
    page = page_of(tmp_path, contents())
    page = re.sub(r'(<script type="application/octet-stream"[^>]*>)[^<]*', r"\1", page).lower()
    for word in ("http:", "https:", "//", "@import", "<link", "<img", "<iframe", "javascript:", "fetch(", "xmlhttp"):
        assert word not in page, word
    assert re.findall(r"(?<!createobject)(?<!revokeobject)url\(", page) == []
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_every_figure_has_its_denominator_and_the_worst_come_first(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    assert "Of 307 messages known, 211 readable (68.7%), 96 lost (31.3%)." in told
    assert "86 of 109 (78.9%)" in told  # rows delivered, of rows in
    assert "90 of 100 (90.0%)" in told  # lost, of all that is known of the channel
    assert "2 of 5 (40.0%)" in told  # acknowledged within a second: 5 ms and exactly 1,000 ms
    assert "4 of 5 (80.0%)" in told  # at any time
    assert "6.8 KiB of 9.8 KiB (70.0%)" in told
    assert "1 of 2 (50.0%) of the pairs are at the limit" in told
    assert "1 of 102 (1.0%) distinct messages could not be decoded" in told
    assert "1 of 102 (1.0%) messages have timestamps far from all others" in told
    assert "51 of 102 (50.0%)" in told
    channels = told[told.index("Channels, worst first") :]
    assert channels.index("90 (90.0%)") < channels.index("1 (50.0%)") < channels.index("5 (9.1%)")


def test_the_same_denominators_stand_everywhere(tmp_path):
    folder = run_folder(tmp_path / "run", contents())
    told = report_json(RunTables(folder), 50)
    headline = told["headline"]
    assert (headline["known"], headline["readable"] + headline["lost"] + headline["incomplete"]) == (307, 307)
    for name in ("known", "readable", "lost", "incomplete", "held_up"):
        assert headline[name] == sum(channel["messages"][name] for channel in told["channels"])
    page = page_of_folder(folder, tmp_path / "report.html")
    by_channel = {row["channel"]: row for row in rows_in(page)["channels"]}
    for channel in told["channels"]:
        row = by_channel[visible(channel["channel_id"])]
        assert {name: row[name] for name in ("known", "readable", "lost")} == {
            name: channel["messages"][name] for name in ("known", "readable", "lost")
        }
        assert row["held up"] == channel["messages"]["held_up"]


def test_all_rows_are_in_the_page_with_full_ids(tmp_path):
    tables = rows_in(page_of(tmp_path, contents()))
    assert len(tables["channels"]) == 33
    assert [row["message"] for row in tables["lost"]] == [f"gone-{number}" for number in range(40, 0, -1)]
    assert [row["sender"] for row in tables["senders"]] == [None, "bob", "alice", visible(HOSTILE)]
    assert tables["rate"][0]["messages"] == 120
    assert tables["lost"][0]["first cited (UTC)"] == (BEGIN + 40 * SECOND) // 1_000_000
    (refused,) = tables["quarantine"]
    assert (refused["reason"], refused["size"]) == ("undecodable", 7)


def test_what_does_not_fit_is_left_out_from_the_end_and_said(tmp_path, monkeypatch):
    rng = random.Random(1)
    tables = contents()
    tables["sds_ordered"] = [
        {
            "channel_id": "tiny",
            "message_id": rng.randbytes(32).hex(),
            "timestamp_ns": BEGIN + number,
            "status": "complete",
        }
        for number in range(5_000)
    ]
    monkeypatch.setattr(embedding, "MOST_BYTES", 100_000)
    page = page_of(tmp_path, tables)
    kept = rows_in(page)
    assert 500 < len(kept["messages"]) < 5_000
    assert [len(kept[name]) for name in ("channels", "lost")] == [33, 40]
    assert kept["messages"][0]["message"] == tables["sds_ordered"][-1]["message_id"]
    packed = re.findall(r'octet-stream" id="data-\w+">([^<]*)<', page)
    assert sum(map(len, packed)) <= 100_000
    assert f"{len(kept['messages']):,} of them are in this page" in Checked(page).text


def test_more_rows_than_a_page_has_are_chosen_by_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr("fairway.pipeline.report.html.report.MOST_ROWS", 7)
    tables = contents()
    tables["rate_utilisation"] = [
        {
            "sender_id": f"s{number}",
            "epoch_start_ms": 0,
            "messages": number % 13,
            "charged": number % 13,
            "rate_limit": 100,
            "pct": 1.0,
        }
        for number in range(100)
    ]
    told = rows_in(page_of(tmp_path, tables))["rate"]
    assert [row["messages"] for row in told] == [12] * 7


def test_what_is_held_up_behind_lost_messages_is_said(tmp_path):
    page = page_of(tmp_path, contents())
    told = Checked(page).text
    assert "7 of 307 (2.3%) messages known are held up" in told
    assert "Of 50 of 307 (16.3%) it is not computed" in told
    assert f"The causal order is not computed of 50 messages in {visible(LONG)[:39]}" in told
    assert "larger --max-channel-bytes" in told
    assert {row["held up"] for row in rows_in(page)["channels"] if row["channel"] == visible(HOSTILE)} == {7}


def test_why_messages_are_lost_is_said_as_far_as_an_archive_proves_it(tmp_path):
    def lost(number: int, **told) -> dict:
        cited = {"cited_by": 2, "first_cited_ns": BEGIN, "last_cited_ns": BEGIN + SECOND}
        return {"channel_id": "team", "message_id": f"m{number}", **cited} | told

    def citing(sender_id: str, *cited: str, kind: str = "content") -> dict:
        return {
            "channel_id": "team",
            "sender_id": sender_id,
            "kind": kind,
            "causal_history": [{"message_id": message_id} for message_id in cited],
        }

    by_alice = {"first_cited_by": "alice", "last_cited_by": "alice"}
    many = {"cited_by": 3}
    cases = {
        "quarantined": lost(0, sender_id="alice", retrieval_hint=b"q" * 32, **by_alice),
        "another cites it": lost(1, sender_id="alice", first_cited_by="alice", last_cited_by="bob"),
        "only another cites it": lost(2, sender_id="bob", **by_alice),
        "two cite it, its author is not named": lost(3, first_cited_by="alice", last_cited_by="bob"),
        "only its author": lost(4, sender_id="alice", retrieval_hint=b"x" * 32, **by_alice),
        "only its author, but another between": lost(5, sender_id="alice", **by_alice, **many),
        "only its author, often": lost(6, sender_id="alice", **by_alice, **many),
        "one cites it, its author is not named": lost(7, **by_alice),
        "only its author, and nobody wrote later": lost(8, sender_id="alice", **by_alice)
        | {"first_cited_ns": BEGIN + 100 * SECOND},
        "only its author, and an ephemeral message": lost(9, sender_id="alice", **by_alice, **many),
    }
    tables = {
        "missing_messages": list(cases.values()),
        "quarantine": [{"message_hash": b"q" * 32, "status": "not-for-us", "payload_bytes": 1, "timestamp_ns": BEGIN}],
        "sender_stats": [
            sender(name, 1, 0) | {"channel_id": "team", "last_seen_ns": BEGIN + seconds * SECOND}
            for name, seconds in (("alice", 200), ("bob", 50), (None, None))
            if seconds is not None
        ],
        "sds_messages": [
            citing("alice", "m5", "m6", "m9"),
            citing("bob", "m5", "other"),
            citing("bob", "m9", kind="ephemeral"),
        ],
        "channel_stats": [stats("team", 3, 10)],
    }
    found = RunTables(run_folder(tmp_path / "run", tables))
    told = {message.message_id: message.cause.value for message in Causes(found)}
    assert dict(zip(cases, (told[case["message_id"]] for case in cases.values()), strict=True)) == {
        "quarantined": "quarantined",
        "another cites it": "no-store",
        "only another cites it": "no-store",
        "two cite it, its author is not named": "no-store",
        "only its author": "sender-only",
        "only its author, but another between": "no-store",
        "only its author, often": "sender-only",
        "one cites it, its author is not named": "unknown",
        "only its author, and nobody wrote later": "unknown",
        "only its author, and an ephemeral message": "sender-only",
    }


def test_what_was_wrong_when_a_lost_message_was_first_cited_is_said_beside_its_cause(tmp_path):
    epoch_ms = BEGIN // 1_000_000 // 600_000 * 600_000
    out_at = BEGIN + 80 * SECOND  # the second store lacked the second half
    rows = [
        gap("tiny", number) | {"sender_id": sender_id, "first_cited_ns": at}
        for number, (sender_id, at) in enumerate(
            [("loud", BEGIN + SECOND), ("calm", BEGIN + SECOND), ("calm", out_at), ("loud", out_at), (None, out_at)]
        )
    ]
    over = {
        "channel_id": "tiny",
        "sender_id": "loud",
        "epoch_start_ms": epoch_ms,
        "messages": 120,
        "charged": 120,
        "rate_limit": 100,
        "pct": 120.0,
    }
    tables = contents() | {"missing_messages": rows, "rate_utilisation": [over], "channel_stats": [stats("tiny", 9, 5)]}
    folder = run_folder(tmp_path / "run", tables)
    assert report_json(RunTables(folder))["circumstances"] == {
        f"{HOSTILE} was out": 3,
        "its sender was over the rate limit": 2,
    }
    told = {row["message"]: row["meanwhile"] for row in rows_in(page_of_folder(folder, tmp_path / "r.html"))["lost"]}
    both = f"{visible(HOSTILE)} was out, its sender was over the rate limit"
    assert (told["gone-0"], told["gone-1"], told["gone-3"]) == ("its sender was over the rate limit", "", both)


def test_a_lost_message_says_how_many_it_holds_up(tmp_path):
    waits: dict[str, str | None] = {"channel_id": "tiny", "sender_id": "a", "status": "waiting"}
    tables = contents() | {
        "missing_messages": [gap("tiny", 1), gap("tiny", 2), gap("other", 1)],
        "sds_ordered": [waits | {"waits_for": name} for name in ("gone-1", "gone-1", "gone-2", None)],
    }
    folder = run_folder(tmp_path / "run", tables)
    lost = report_json(RunTables(folder))["tables"]["lost"]["rows"]
    told = {(each["channel_id"], each["message_id"]): each["holds_up"] for each in lost}
    assert told == {("tiny", "gone-1"): 2, ("tiny", "gone-2"): 1, ("other", "gone-1"): 0}
    rows = rows_in(page_of_folder(folder, tmp_path / "r.html"))["lost"]
    assert {(row["channel"], row["message"]): row["holds up"] for row in rows} == told


@pytest.mark.parametrize(
    ("uri", "commands"),
    [
        ("sqlite:b c.db", ["--from sqlite:a.db --to 'sqlite:b c.db' --since 2023-11-14T22:14:10Z"]),
        ("lip76:folder", []),
    ],
)
def test_the_command_that_fills_a_store_is_named_if_it_can_be_written_to(tmp_path, uri, commands):
    sources = [{"label": HOSTILE, "uri": uri}, {"label": "a", "uri": "sqlite:a.db"}]
    told = report_json(RunTables(run_folder(tmp_path / "run", contents(), sources=sources)))
    (outage,) = (each for each in told["to_do"] if "lacked everything" in each["what"])
    assert [command.partition(" --until")[0] for command in outage["commands"]] == [
        f"fairway pipeline backfill {command}" for command in commands
    ]


@pytest.mark.parametrize(
    ("uri", "donor", "words"),
    [
        ("sqlite:b.db", "parquet:t/a", "--from parquet:{place}/t/a --to sqlite:{place}/b.db"),
        ("sqlite:/var/b.db", "http://a:8645/", "--from http://a:8645/ --to sqlite:/var/b.db"),
        (
            "parquet:s3://bucket/b",
            "lip76:a?pubsubTopic=/waku/2/rs/1/0",
            "--from 'lip76:{place}/a?pubsubTopic=/waku/2/rs/1/0' --to parquet:s3://bucket/b",
        ),
    ],
)
def test_the_command_holds_where_the_report_is_made(tmp_path, monkeypatch, uri, donor, words):
    sources = [{"label": HOSTILE, "uri": uri}, {"label": "a", "uri": donor}]
    folder = run_folder(tmp_path / "run", contents(), sources=sources, given_in=str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    for here, place in ((tmp_path, None), (tmp_path / "elsewhere", tmp_path)):
        monkeypatch.chdir(here)
        told = report_json(RunTables(folder))
        (command,) = (command for each in told["to_do"] for command in each["commands"] if " --since " in command)
        expected = words.replace("{place}/", "" if place is None else f"{place}/")
        assert command.partition(" --since")[0] == f"fairway pipeline backfill {expected}"


def test_stores_that_one_table_names_are_no_places_to_write_to(tmp_path):
    sources = [{"label": None, "uri": "parquet:both"}]
    told = report_json(RunTables(run_folder(tmp_path / "run", contents(), sources=sources)))
    (outage,) = (each for each in told["to_do"] if "lacked everything" in each["what"])
    assert outage["commands"] == []


def test_causes_are_counted_and_say_what_to_do(tmp_path):
    rows = [gap("tiny", number) | {"first_cited_by": "alice", "last_cited_by": "bob"} for number in range(3)]
    tables = contents() | {"missing_messages": rows, "channel_stats": [stats("tiny", 10, 3)]}
    told = report_json(RunTables(run_folder(tmp_path / "run", tables)))
    assert [(each["cause"], each["count"]) for each in told["causes"]] == [("no-store", 3)]
    (to_do,) = (each for each in told["to_do"] if each["section"] == "gaps")
    assert to_do["what"] == "3 of 3 lost messages: other participants had them, no store has them."


def test_damaged_messages_are_among_the_causes_and_all_shares_add_up(tmp_path):
    hint = b"d" * 32
    rows = [gap("tiny", 1) | {"retrieval_hint": hint}, gap("tiny", 2), gap("tiny", 3)]
    quarantined = [{"message_hash": hint, "status": "hash-mismatch", "payload_bytes": 1, "timestamp_ns": BEGIN}]
    tables = {"missing_messages": rows, "quarantine": quarantined, "channel_stats": [stats("tiny", 9, 3)]}
    found = Findings(RunTables(run_folder(tmp_path / "run", tables)))
    assert [row[1] for row in causes(found.report).rows] == ["2 of 3 (66.7%)", "1 of 3 (33.3%)"]
    assert data_tables(found)["lost"].total == 3
    assert (found.report.headline.lost, found.report.headline.damaged) == (2, 1)
    assert [each.what for each in found.report.to_do] == ["1 message in quarantine as hash-mismatch."]


def to_dos(tmp_path: Path, tables: dict[str, list[dict]], section: str, **changes) -> list[dict]:
    told = report_json(RunTables(run_folder(tmp_path / "run", tables, **changes)))
    return [each for each in told["to_do"] if each["section"] == section]


def test_a_sender_is_named_if_more_is_lost_of_it_than_chance_explains(tmp_path):
    unlucky = [sender(f"unlucky-{number}", 1, 2) for number in range(3)]
    others = [sender(f"other-{number}", 9, 1) for number in range(60)]
    senders = [*unlucky, *others, sender("gone", 3, 9)]
    in_all = stats("tiny", sum(row["content"] for row in senders), sum(row["missing"] for row in senders))
    (to_do,) = to_dos(tmp_path, {"sender_stats": senders, "channel_stats": [in_all]}, "senders")
    assert to_do["what"] == "Much is lost of gone in tiny (9 of 12 lost, of unknown cause)."


def test_no_sender_is_named_where_all_lose_alike_or_no_citation_names_the_author(tmp_path):
    for number, senders in enumerate(
        ([sender("a", 40, 60), sender("b", 40, 60)], [sender("a", 9, 0), sender(None, 0, 9)])
    ):
        in_all = stats("tiny", sum(row["content"] for row in senders), sum(row["missing"] for row in senders))
        tables = {"sender_stats": senders, "channel_stats": [in_all]}
        assert to_dos(tmp_path / str(number), tables, "senders") == []


def epoch(sender_id: str, messages: int, **told) -> dict:
    return {
        "channel_id": "team",
        "sender_id": sender_id,
        "epoch_start_ms": 1_700_000_400_000,
        "messages": messages,
        "charged": messages,
    } | told


def test_a_sender_that_used_a_message_id_twice_is_named_with_the_command_that_says_more(tmp_path):
    rows = [
        epoch("mallory", 5, message_ids=3, double_signals=2),
        epoch("mallory", 5, message_ids=4, double_signals=1, epoch_start_ms=1_700_001_000_000),
        epoch("alice", 5, message_ids=5, double_signals=0),
    ]
    no_limit = {"options": {"format": "parquet", "epoch_ms": 600_000}}
    (to_do,) = to_dos(tmp_path, {"rate_utilisation": rows}, "rate", **no_limit)
    assert to_do["what"] == (
        "Used RLN message ids twice: mallory in team (3 message ids, first in the epoch from 2023-11-14 22:20 UTC)."
    )
    assert to_do["commands"] == [f"fairway pipeline violations {tmp_path / 'run'}"]
    page = page_of_folder(tmp_path / "run", tmp_path / "report.html")
    assert [row["used twice"] for row in rows_in(page)["rate"]] == [2, 1, 0]


def test_what_counts_towards_the_limit_is_the_same_everywhere(tmp_path):
    rows = [
        epoch("repeats", 150, message_ids=90, double_signals=0, charged=90, rate_limit=100, pct=90.0),
        epoch("above", 120, message_ids=101, double_signals=0, charged=101, rate_limit=100, pct=101.0),
    ]
    (to_do,) = to_dos(tmp_path, {"rate_utilisation": rows}, "rate")
    assert to_do["what"].startswith("Over the rate limit of 100: above in team (101 in the epoch")
    page = page_of_folder(tmp_path / "run", tmp_path / "report.html")
    assert [(row["messages"], row["charged"]) for row in rows_in(page)["rate"]] == [(150, 90), (120, 101)]
    bars = page[page.index("Busiest senders in one epoch") :]
    assert bars.index("90 of 100 (90.0%)") < bars.index("101 of 100 (101.0%)") < bars.index("</figure>")
    assert bars[: bars.index("</figure>")].count('class="bar bad"') == 1


def test_an_archive_of_which_nothing_could_be_read_asks_for_keys(tmp_path):
    refused = [{"timestamp_ns": BEGIN, "status": "not-sds", "error": "x", "payload_bytes": 7}]
    messages = [{"timestamp_ns": BEGIN, "content_topic": "/t", "sources": ["a"]}]
    (to_do,) = to_dos(tmp_path, {"quarantine": refused, "waku_messages": messages}, "quarantine")
    assert to_do["what"] == "Of 1 Waku message none could be read as a message of a channel."
    assert "--keys" in to_do["action"]


def test_an_empty_archive_has_sections_that_say_so_and_no_empty_tables(tmp_path):
    page = page_of(tmp_path, {})
    told = Checked(page).text
    for empty in (
        "No channel message is known.",
        "There are no channels.",
        "There are no senders.",
        "no messages at all",
    ):
        assert empty in told
    assert "data-table=" not in page.partition("<script>")[0]


def test_red_is_only_what_something_can_be_done_about(tmp_path):
    quiet = {
        "channel_stats": [stats("tiny", 100, 0)],
        "quarantine": [{"timestamp_ns": BEGIN, "status": "not-sds", "error": "x", "payload_bytes": 7}],
        "sds_ordered": [{"channel_id": "tiny", "sender_id": "a", "status": "waiting"}],
        "rate_utilisation": [
            {
                "sender_id": "a",
                "epoch_start_ms": 0,
                "messages": 100,
                "charged": 100,
                "rate_limit": 100,
                "pct": 100.0,
            }
        ],
    }
    page = page_of(tmp_path, quiet)
    assert "Nothing to do" in Checked(page).text
    assert re.findall(r'class="[^"]*\bbad\b', page) == []


def test_what_a_store_lacked_is_said_by_topic_and_drawn_by_its_share(tmp_path):
    page = page_of(tmp_path, contents())
    lacked = rows_in(page)["lacked"]
    assert [(row["store"], row["lacked"], row["of the topic"]) for row in lacked] == [
        (visible(HOSTILE), 26, 51),
        (visible(HOSTILE), 25, 51),
    ]
    lane = page[page.index("Share that a store lacked") :]
    lane = lane[: lane.index("</figure>")]
    drawn = re.findall(r'class="bar( bad)?" x="([0-9.]+)"[^>]*><title>[^<]*: ([0-9]+) of ([0-9]+) ', lane)
    # From message 51 on, which is in the middle of the axis, but for the one that is far from all others, and the one
    # in quarantine, which was sent in the second second.
    assert sum(int(part) for _, _, part, _ in drawn) == 50
    assert [float(x) < 200 for _, x, _, _ in drawn].count(True) == 1
    assert all(bad == " bad" for bad, x, _, _ in drawn if float(x) > 220)
    assert "lacked everything from 2023-11-14 22:14:" in Checked(page).text


def test_stores_that_have_everything_lack_nothing(tmp_path):
    tables = contents() | {"store_completeness": [{"source": "a", "messages": 102, "known": 102, "missing": 0}]}
    page = page_of(tmp_path, tables)
    assert rows_in(page)["lacked"] == []
    assert "Outages" not in page


def test_one_store_alone_is_said_to_show_no_outage(tmp_path):
    tables = contents() | {"store_completeness": [{"source": "a", "messages": 102, "known": 102, "missing": 0}]}
    assert "What one store lacked shows only beside another one." in Checked(page_of(tmp_path, tables)).text


def test_acknowledgement_is_said_to_be_a_lower_bound_and_what_it_rests_on(tmp_path):
    rows = [
        {"channel_id": "tiny", "message_id": "m", "acknowledged_by": name, "how": how}
        for name, how in (("a", "cited"), ("b", "bloom"), ("c", "cited"))
    ]
    tables = contents() | {"acknowledgements": rows}
    folder = run_folder(tmp_path / "run", tables)
    told = report_json(RunTables(folder))["acknowledgement"]
    assert told == {"content": 211, "acknowledged": 90, "filters_read": False, "evidence": {"bloom": 1, "cited": 2}}
    page = Checked(page_of_folder(folder, tmp_path / "report.html")).text
    assert "A lower bound: bloom filters were not read" in page
    assert "2 of 3 (66.7%)" in page
    options = {"format": "parquet", "epoch_ms": 600_000, "rate_limit": None, "blooms": True}
    read = run_folder(tmp_path / "read", tables, options=options)
    page = Checked(page_of_folder(read, tmp_path / "report.html")).text
    assert "A lower bound: bloom filters were read, but senders also hear" in page


def terminal_report(tmp_path: Path, tables: dict[str, list[dict]], limit: int = 20, **changes) -> str:
    console = Console(record=True, width=200, file=io.StringIO())
    print_run_report(RunTables(run_folder(tmp_path / "run", tables, **changes)), console, limit)
    return console.export_text()


def test_the_terminal_has_the_tables_of_the_page(tmp_path):
    told = terminal_report(tmp_path, contents(), 3)
    captions = re.findall(r"<caption>([^<]*)</caption>", page_of_folder(tmp_path / "run", tmp_path / "report.html"))
    single = {"Messages in quarantine", "Messages that are there", "Busiest stretches"}
    assert {caption for caption in captions if caption not in told} == single
    channels = told[told.index("Channels, worst first") :]
    assert channels.index("90 (90.0%)") < channels.index("1 (50.0%)") < channels.index("5 (9.1%)")
    assert "3 of 33 shown" in channels
    assert "4 of 5 (80.0%)" in told


def test_programs_get_the_same_answers(tmp_path):
    told = report_json(RunTables(run_folder(tmp_path / "run", contents())), 2)
    assert told["latency"]["within_ms"]["1000"] == 2
    senders = told["tables"]["senders"]
    assert (senders["total"], [sender["lost"] for sender in senders["rows"]]) == (4, [3, 5])
    assert [store["had"] for store in told["stores"]] == [51, 102]
    assert [store["alone"] for store in told["stores"]] == [0, 51]
    assert [lack["lacked"] for lack in told["tables"]["lacked"]["rows"]] == [26, 25]
    assert [each["sender_id"] for each in told["over_limit"]] == [LONG]
    assert json.loads(json.dumps(told)) == told


def test_of_incomplete_messages_those_that_lack_least_come_first(tmp_path):
    held = {"far": (40, 1_000), "near": (2, 3), "unknown": (5, None), "half": (5, 10)}
    rows = [
        {"channel_id": channel, "sender_id": "alice", "outcome": "incomplete", "held": there, "data_segments": needed}
        for channel, (there, needed) in held.items()
    ]
    tables = RunTables(run_folder(tmp_path / "run", {"incomplete": rows}))
    for most, expected in ((9, ["near", "half", "far", "unknown"]), (1, ["near"])):
        told = report_json(tables, most)["tables"]["incomplete"]
        assert (told["total"], [row["channel_id"] for row in told["rows"]]) == (4, expected)


def test_every_section_names_the_tables_that_it_was_made_from(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    for names in ("channel_stats, incomplete, sds_ordered", "ack_latency, acknowledgements", "rate_utilisation"):
        assert f"Figures from {names}." in told
    assert str(tmp_path / "run" / "tables") in told


def test_the_first_questions_are_answered_at_the_top(tmp_path):
    told = Checked(page_of(tmp_path, contents())).text
    top = told[: told.index("Channels, worst first")]
    assert "Lost31.3%96 of 307 known" in top.replace("\n", "")
    assert "Held up2.3%7 of 307 known" in top
    assert "Over the rate limit1sender" in top
    assert f"Over the rate limit of 100: {'n' * 39}… in team (120 in the epoch from 2023-11-14 22:13 UTC)." in top
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
    assert len(page) < 400_000
    assert len(rows_in(page)["channels"]) == 2_000


def test_a_balance_that_does_not_add_up_is_said(tmp_path):
    figures = dict.fromkeys(
        ("duplicates", "quarantined", "retransmissions", "other_shards", "sync", "delivered", "incomplete"), 1
    )
    told = Checked(page_of(tmp_path, {}, balance={"rows_in": 9, **figures, "adds_up": False})).text
    assert "This does not add up: 7 rows are accounted for." in told


def test_the_command_writes_the_page(tmp_path):
    folder, target = run_folder(tmp_path / "run", contents()), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["pipeline", "report", str(folder), "--html", str(target)])
    assert result.exit_code == 0, result.output
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(target) in result.output.replace("\n", "")


def test_a_program_gets_one_object(tmp_path):
    tables = contents()
    tables["sender_stats"] = [sender(HOSTILE, 2, 0)]
    tables["incomplete"] = [{"channel_id": "a", "sender_id": "b", "segment_hash": b"\xab" * 32, "held": 1}]
    folder, target = run_folder(tmp_path / "run", tables), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["pipeline", "report", str(folder), "--json", "--html", str(target)])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["balance"]["adds_up"] is True
    rows = {name: table["rows"] for name, table in told["tables"].items()}
    assert (told["messages"], len(told["channels"]), len(rows["lost"])) == (102, 33, 20)
    assert rows["incomplete"][0]["segment_hash"] == "ab" * 32
    assert rows["senders"][0]["sender_id"] == HOSTILE
    assert told["bandwidth"][0] == {"part": "content", "bytes": 7_000, "messages": 90}
    assert target.is_file()


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_html_report(run_folder(tmp_path / "run", {}), tmp_path / "nowhere" / "page.html")
