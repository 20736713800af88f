"""Runs and streams over some of the messages of their sources: by time, channel and topic."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.run import RunOptions, RunTables, run
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.sources import open_source
from fairway.pipeline.sources.options import selection_of
from fairway.pipeline.streaming import StreamOptions, stream
from fairway.pipeline.times import exact_text, first_ns, last_ns
from fairway.protocol.encryption import AesGcm
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import WAKU_SDS
from iso_times import iso

KEY = bytes(range(32))


SHARD = "/waku/2/rs/1/0"
STEP_NS = 1_000_000_000
COUNTS = {"team": 6, "files": 4, "sealed": 3}

pytestmark = pytest.mark.spark


@dataclass
class Archive:
    """An archive with two channels in clear, and one that is encrypted; each has a message every second."""

    path: Path
    times: dict[str, list[int]] = field(default_factory=dict)
    """The timestamps of the messages of each channel."""

    @property
    def keys(self) -> ChannelKeys:
        return ChannelKeys.from_mapping({"sealed": {"cipher": "aes-256-gcm", "key": KEY.hex()}})


@pytest.fixture(scope="module")
def archive(log, tmp_path_factory):
    made = Archive(tmp_path_factory.mktemp("selection") / "one.db")
    with NwakuArchive(made.path) as written:
        for name, count in COUNTS.items():
            channel = log(name)
            for number in range(count):
                channel.message("alice", f"{name} {number}".encode())
            for sent, waku in channel.sent:
                payload = AesGcm(KEY).encrypt(WAKU_SDS.encode(sent)) if name == "sealed" else waku.payload
                message = replace(waku, payload=payload)
                written.append(SHARD, message)
                made.times.setdefault(name, []).append(message.timestamp_ns or 0)
        # What says that it is of a channel, and is no message; and one that names a channel in its content.
        channel = log("files")
        channel.message("bob", b"\x22\x04team")
        (_, mention), garbage = channel.sent[0], log("team").wrapped(b"\x22\x04team\xff")
        for message in (mention, garbage):
            written.append(SHARD, replace(message, timestamp_ns=made.times["team"][-1] + 10 * STEP_NS))
    return made


def ran(archive, tmp_path, spark, *, keys=None, source=None, **selected):
    source = source or f"a=sqlite:{archive.path}"
    summary = run([source], tmp_path / "run", selection=selection_of(**selected), keys=keys, spark=spark)
    assert summary.balance.adds_up, str(summary.balance)
    return summary, RunTables(tmp_path / "run")


def counted(tables):
    return {row["channel_id"]: row["content"] for row in tables.all("channel_stats")}


@pytest.mark.full
@pytest.mark.parametrize(
    "scheme",
    [pytest.param("sqlite", marks=pytest.mark.full), "parquet", pytest.param("pattern", marks=pytest.mark.full)],
)
def test_a_run_takes_the_messages_of_a_time_a_channel_and_a_topic(archive, tmp_path, spark, scheme):
    source = f"a=sqlite:{archive.path}"
    if scheme != "sqlite":
        open_source(spark, f"sqlite:{archive.path}", label="a").write.parquet(str(tmp_path / "rows"))
        source = f"a=parquet:{tmp_path / ('rows' if scheme == 'parquet' else 'row*')}"
    times = archive.times["team"]
    summary, tables = ran(archive, tmp_path, spark, source=source, since=iso(times[1]), until=iso(times[3]))
    assert counted(tables) == {"team": 3, "files": 3}
    assert tables.range_of("waku_messages", "timestamp_ns") == (times[1], times[3])
    assert summary.as_json()["selection"] == {
        "since_ns": times[1],
        "until_ns": times[3],
        "channels": [],
        "topics": [],
        "topics_pattern": None,
    }
    summary, tables = ran(archive, tmp_path, spark, source=source, topics_pattern="/tests/1/f.*")
    assert summary.because == "the tables in the folder had other options (selection)"
    assert counted(tables) == {"files": 5}
    _, tables = ran(archive, tmp_path, spark, source=source, channels=["team"])
    # What only names the channel is not in the tables, what claims to be of it and is broken is.
    assert counted(tables) == {"team": 6}
    assert [row["status"] for row in tables.all("quarantine")] == ["not-sds"]
    assert tables.rows("waku_messages") == 7


def test_an_encrypted_channel_is_chosen_by_what_its_key_opens(archive, tmp_path, spark):
    _, tables = ran(archive, tmp_path, spark, keys=archive.keys, channels=["sealed", "files"])
    assert counted(tables) == {"sealed": 3, "files": 5}
    assert tables.rows("waku_messages") == 8


@pytest.mark.full
def test_a_run_of_a_time_grows_by_what_came_in_it(archive, tmp_path, spark, monkeypatch):
    monkeypatch.setitem(grow.__kwdefaults__, "most_grown", inf)
    times = archive.times["team"]
    rows = open_source(spark, f"sqlite:{archive.path}", label="a")
    (tmp_path / "rows").mkdir()
    pq.write_table(rows.where(f"timestamp_ns <= {times[3]}").toArrow(), tmp_path / "rows" / "one.parquet")
    source = f"parquet:{tmp_path / 'rows'}"
    _, tables = ran(archive, tmp_path, spark, source=source, until=iso(times[4]))
    assert counted(tables) == {"team": 4, "files": 4}
    pq.write_table(rows.where(f"timestamp_ns > {times[3]}").toArrow(), tmp_path / "rows" / "two.parquet")
    summary, tables = ran(archive, tmp_path, spark, source=source, until=iso(times[4]))
    assert (summary.mode, summary.new_rows) == ("grown", 1)
    assert counted(tables) == {"team": 5, "files": 4}


@pytest.mark.full
def test_a_command_says_that_nothing_is_selected(archive, tmp_path, spark):
    given = ["pipeline", "run", "--source", f"a=sqlite:{archive.path}", "--since", "2031-01-01"]
    told = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "run"), "--json"])
    assert told.exit_code == 0, told.output
    summary = json.loads(told.stdout)
    assert (summary["selects_nothing"], summary["balance"]["rows_in"]) == (True, 0)
    told = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "run")])
    assert "no message of the sources is selected" in told.stdout
    report = CliRunner().invoke(app, ["pipeline", "report", str(tmp_path / "run")])
    words = " ".join(report.stdout.replace("│", " ").split())
    assert "Only messages from 2031-01-01T00:00:00Z were read." in words
    assert "No message of the sources is selected" in words
    assert "Nothing to do" not in words
    write_html_report(tmp_path / "run", tmp_path / "page.html")
    assert "Only messages from 2031-01-01T00:00:00Z were read." in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("command", ["run", "stream"])
def test_what_cannot_select_anything_is_refused_before_work_begins(archive, tmp_path, command):
    for wrong, what in (
        (["--since", "soon"], "--since is a time such as"),
        (["--since", "2026-02-01", "--until", "2026-01-01"], "selects nothing"),
        (["--channel", ""], "--channel is empty"),
        (["--topic-pattern", "/a/("], "--topic-pattern is a regular expression"),
    ):
        given = ["pipeline", command, "--source", f"a=sqlite:{archive.path}", "--out", str(tmp_path / "out"), *wrong]
        told = CliRunner().invoke(app, given)
        assert what in str(told.exception), told.output
        assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_stream_delivers_the_messages_of_its_channels_and_keeps_to_them(archive, tmp_path, spark):
    def followed(**selected):
        options = StreamOptions(tables=RunOptions(selection=selection_of(**selected)), once=True, settle_ms=0)
        return stream([f"a=sqlite:{archive.path}"], tmp_path / "out", options=options, keys=archive.keys, spark=spark)

    times = archive.times["team"]
    summary = followed(channels=["team", "sealed"], topics_pattern="/tests/.*/(team|sealed)/proto", until=iso(times[2]))
    assert summary.delivered == 6
    assert counted(RunTables(tmp_path / "out")) == {"team": 3, "sealed": 3}
    with pytest.raises(ConfigurationError, match="selection"):
        followed(channels=["team"])


@given(time_ns=st.integers(-(2**63), 2**63 - 1))
def test_an_exact_text_is_read_as_this_very_time(time_ns):
    text = exact_text(time_ns)
    assert (first_ns(text, "time"), last_ns(text, "time")) == (time_ns, time_ns)
