"""The report of a run at a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from rich.console import Console, RenderableType

from fairway.pipeline.report.archive_report import ArchiveReport, ChannelReport, ToDo
from fairway.pipeline.report.evidence import AcknowledgementBasis
from fairway.pipeline.report.headline import Headline
from fairway.pipeline.report.oddities import Oddity
from fairway.pipeline.report.tables import ColumnKind, ReportTable, small_table
from fairway.pipeline.report.terminal import render_summary, render_table
from fairway.pipeline.sources.waku_messages import Selection

SECOND = 1_000_000_000
BEYOND = "What they cite beyond these counts as lost."
NOTHING = Headline(known=0, readable=0, lost=0, damaged=0, incomplete=0, held_up=0, undetermined=0)
EMPTY = ArchiveReport(
    headline=NOTHING,
    oddities=(),
    to_do=(),
    causes=(),
    circumstances={},
    stores=(),
    over_limit=(),
    over_limit_senders=0,
    double_signals=(),
    double_signal_senders=0,
    acknowledgement=AcknowledgementBasis(content=0, acknowledged=0, filters_read=False, evidence={}),
    archive="store.db",
    selection=None,
    messages=0,
    payload_bytes=0,
    first_ns=None,
    last_ns=None,
    channels=(),
    channel_count=0,
    totals={"reassembled": 0, "recovered": 0},
    senders=0,
    quarantined={},
)
COUNTS = Headline(known=1_207, readable=1_198, lost=7, damaged=0, incomplete=2, held_up=40, undetermined=3)
CHANNEL = ChannelReport(
    channel_id="team",
    messages=COUNTS,
    content=1_200,
    sync=30,
    ephemeral=0,
    repeats=4,
    senders=3,
    acknowledged=600,
    latency_p50_ms=1_500,
    latency_p95_ms=65_000,
    delivered=1_100,
    delivered_bytes=5 * 1_024**2,
    reassembled=2,
    recovered=1,
    incomplete=1,
    missing=7,
)
FULL = replace(
    EMPTY,
    headline=COUNTS,
    oddities=(Oddity(kind="before-2015", count=2, text="2 messages have a time before 2015."),),
    to_do=(ToDo(what="[b] was out.", action="Fill it.", commands=("fairway pipeline backfill",), section="stores"),),
    acknowledgement=AcknowledgementBasis(content=1_200, acknowledged=600, filters_read=False, evidence={"cited": 700}),
    messages=1_240,
    payload_bytes=6 * 1_024**2,
    first_ns=1_760_000_000 * SECOND,
    last_ns=1_760_003_600 * SECOND,
    channels=(CHANNEL,),
    channel_count=1,
    totals={"reassembled": 2, "recovered": 1},
)


def rendered(report: ArchiveReport, width: int = 110) -> str:
    return printed(render_summary(report), width)


def printed(shown: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(shown)
    return out.getvalue()


def test_the_head_of_a_report_tells_what_became_of_all_messages():
    text = rendered(FULL)
    for expected in [
        "store.db",
        "Of 1,207 messages known, 1,198 readable (99.3%), 7 lost (0.6%)",
        "40 (3.3%) are held up",
        "2 messages have a time before 2015.",
        "2 (0.2%) are segments that lack the others",
        "Of 3 it is not computed whether they are held up",
        "To do",
        "[b] was out.",
        "Fill it.",
        "fairway pipeline backfill",
        "1,240 Waku messages, 6.0 MiB, sent from 2025-10-09 08:53:20 to 2025-10-09 09:53:20 UTC",
        "At least 600 of 1,200 that are there (50.0%) are acknowledged by others",
        "1 of 2 messages in segments saved by Reed-Solomon",
    ]:
        assert expected in text, expected


def test_what_should_be_done_comes_before_everything_but_the_headline():
    lines = rendered(FULL).splitlines()
    (place,) = (number for number, line in enumerate(lines) if "To do" in line)
    assert place < 10
    assert "Nothing to do." in rendered(EMPTY)


def test_held_up_messages_are_counted_below_what_should_be_done():
    text = rendered(replace(FULL, to_do=()))
    assert text.index("Nothing to do.") < text.index("40 (3.3%) are held up")


def test_a_report_without_messages_says_so():
    assert "No channel message is known." in rendered(EMPTY)


def channels(name: str) -> ReportTable:
    columns = {"channel": ColumnKind.NAME, "message": ColumnKind.ID, "known": ColumnKind.COUNT, "p95": ColumnKind.SPAN}
    columns |= {"lost": ColumnKind.SHARE, "sent": ColumnKind.TIME}
    row = (name, "ab" * 32, 1_207, 65_000, "7 (0.6%)", 1_760_000_000_000)
    return small_table("Channels", columns, [row, row, (None, None, None, None, "0", None)], 9)


def test_a_table_fits_a_terminal_of_eighty_columns_without_losing_a_figure():
    text = printed(render_table(channels("a channel with quite a long name indeed"), 1), 80)
    assert max(map(len, text.splitlines())) <= 80
    for figure in ["1,207", "abababababab…", "7 (0.6%)", "1.08 min", "2025-10-09 08:53:20", "1 of 9 shown"]:
        assert figure in text


def test_a_narrow_terminal_shows_whole_words_and_figures_and_names_the_columns_that_it_leaves_out():
    columns = {"cause": ColumnKind.WORD, "that is": ColumnKind.TEXT} | {
        f"figure {n}": ColumnKind.SHARE for n in range(9)
    }
    row = ("quarantined: hash-mismatch", "every store that has it has it damaged", *["1,207 (99.3%)"] * 9)
    text = printed(render_table(small_table("Wide", columns, [row])), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text
    assert text.count("1,207 (99.3%)") == 2
    left_out = " ".join(text.partition("also shows: ")[2].split())
    assert left_out == ", ".join(f"figure {n}" for n in range(2, 9))


def test_what_is_absent_is_unknown_or_a_dash():
    assert printed(render_table(channels("x")), 120).splitlines()[5].split() == [
        "unknown",
        "unknown",
        "-",
        "-",
        "0",
        "-",
    ]


def test_names_from_the_network_can_neither_style_nor_steer_the_terminal():
    text = printed(render_table(channels("[red]x[/]\x1b[2J\x07")), 160)
    assert "[red]x[/]\\x1b[2J\\x07" in text
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1_023, "1,023 B"), (1_024, "1.0 KiB"), (1_024**3, "1.0 GiB"), (1_024**5, "1,024.0 TiB")],
)
def test_sizes_are_told_in_a_unit_that_suits(size, shown):
    assert f"Waku messages, {shown}" in rendered(replace(EMPTY, payload_bytes=size))


def test_times_are_told_as_dates():
    assert "1969-12-31 23:59:59 to 2262-04-11 23:47:16 UTC" in rendered(replace(EMPTY, first_ns=-1, last_ns=2**63 - 1))


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (
            {"start_ns": 1_760_000_000 * SECOND, "end_ns": 1_760_000_060_050_000_000},
            f"from 2025-10-09T08:53:20Z, up to 2025-10-09T08:54:20.05Z were read. {BEYOND}",
        ),
        ({"channels": ("team\x1b",)}, r"of channel team\x1b were read."),
        (
            {"channels": ("a", "b", "c", "d"), "content_topics": ("/x",)},
            f"of channels a, b, c and 1 more, of content topic /x were read. {BEYOND}",
        ),
        ({"topics_pattern": "/a/.*"}, f"of content topics that match /a/.* were read. {BEYOND}"),
    ],
)
def test_a_report_of_some_messages_says_which(chosen, told):
    shown = rendered(replace(EMPTY, selection=Selection(**chosen).as_json()), width=200)
    assert f"Only messages {told} " in shown
    assert "Only messages" not in rendered(EMPTY)
