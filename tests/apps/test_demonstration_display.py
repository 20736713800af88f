"""What people see of a demonstration, as text."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from fairway.apps.demonstration import Demonstration, Said
from fairway.apps.demonstration_bookkeeping import DemonstrationFaults
from fairway.apps.demonstration_display import progress_view, said_line, summary
from fairway.apps.demonstration_result import DemonstrationPlan, DemonstrationResult, Killing, SentMessage

FILE = SentMessage(
    sender="alice",
    title="[bold]sea.png",
    is_file=True,
    message_id="f" * 64,
    size_bytes=1_000_000,
    sent_at_ms=1_000,
    received_by=("bob", "carol"),
    delivered_to=("bob", "carol"),
    delivered_at_ms=7_250,
    failed=None,
)
RESULT = DemonstrationResult(
    channel_id="demo",
    participants=("alice", "bob", "carol"),
    messages=(FILE, replace(FILE, title="ok", is_file=False, size_bytes=2, delivered_at_ms=None, failed="no [answer]")),
    elapsed_ms=12_340,
    verdict=DemonstrationFaults(lost=0, twice=0, out_of_order=0, unacknowledged=0, ended_twice=0),
    faults=(),
    file_sha256="f" * 64,
    saved={"bob": "f" * 64, "carol": "f" * 64},
    segments=10,
    recovered_by_parity=("bob",),
    killing=Killing(name="carol", killed_at_ms=2_000, segments_held=5, back_at_ms=4_500, file_at_ms=6_000),
    network={"lost": 30, "delivered": 70, "published": 50, "published_bytes": 3 * 2**20},
)


def text_of(renderable):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def test_the_summary_tells_what_was_sent_and_what_became_of_it():
    text = text_of(summary(RESULT, "sea.png"))
    (row,) = [line for line in text.splitlines() if "[bold]sea.png" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        *("alice", "[bold]sea.png", "1,000,000", "bob, carol", "bob, carol", "6.2 s")
    ]
    assert "no [answer]" in text
    assert "nothing lost, nothing twice, all in order: 0 lost, 0 twice, 0 out of order, in 12.3 s" in text
    assert "2 of 2 saved copies of sea.png have SHA-256 ffffffffffffffff..., 1 of them completed" in text
    assert (
        "carol was killed after 2.0 s, holding 5 of 10 segments of sea.png; back after 2.5 s on its store, "
        "it had the file at 6.0 s" in text
    )
    assert "the network swallowed 30 of 100 deliveries (30%); 50 transmissions, 3.0 MiB" in text


def test_the_summary_does_not_hide_what_went_wrong():
    assert RESULT.killing is not None
    wrong = replace(
        RESULT,
        verdict=DemonstrationFaults(lost=1, twice=2, out_of_order=3, unacknowledged=4, ended_twice=0),
        faults=("bob got 'ok' of [alice] once too often",),
        saved={"bob": "f" * 64, "carol": None},
        killing=replace(RESULT.killing, file_at_ms=1_000, redelivered=1),
    )
    text = text_of(summary(wrong, "sea.png"))
    assert "something went wrong: 1 lost, 2 twice, 3 out of order, 4 not acknowledged by all" in text
    assert "bob got 'ok' of [alice] once too often" in text
    assert "1 of 2 saved copies" in text
    assert "told 1 unfinished again" in text
    assert "it had the file" not in text


@pytest.fixture
def demonstration(tmp_path):
    file = tmp_path / "sea.png"
    file.write_bytes(bytes(1_000))
    return Demonstration(DemonstrationPlan(file=file, title="sea.png"), tmp_path, archive=tmp_path / "archive.sqlite")


def test_bars_and_marks_follow_the_books(demonstration):
    books = demonstration.books
    assert "got:" not in text_of(progress_view(demonstration, height=40))
    demonstration.present |= {"alice", "bob", "carol"}
    text = books.command("alice", "r1", title="hello", sha256="h", size_bytes=5, at_ms=0)
    text.received_at_ms = {"bob": 1, "carol": 1}
    text.acknowledged_by = {"carol"}
    file = books.command("alice", "r2", title="sea.png", sha256="s", size_bytes=1_000, at_ms=0, is_file=True)
    file.total_chunks, file.chunks_acknowledged, file.acknowledged_by = 10, 3, {"bob", "carol"}
    file.received_at_ms["bob"] = 5
    demonstration.held["carol"] = 4
    demonstration.said.append(Said(1_500, "carol did something"))
    shown = text_of(progress_view(demonstration, height=40))
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(row.startswith("bob receives sea.png") and row.endswith("complete") for row in rows)
    assert any(row.startswith("carol receives sea.png") and row.endswith("4 of 10 segments") for row in rows)
    assert any(row.endswith("3 of 10 acknowledged by bob or carol") for row in rows)
    assert "alice hello got ack" in rows
    assert "1.5 s carol did something" in rows


def test_the_killed_one_is_shown_as_killed_and_then_as_back(demonstration):
    file = demonstration.books.command("alice", "r", title="sea.png", sha256="s", size_bytes=9, at_ms=0, is_file=True)
    demonstration.present |= {"alice", "bob"}
    demonstration.killing = Killing(name="carol", killed_at_ms=1, segments_held=1)
    assert "killed" in text_of(progress_view(demonstration, height=40))
    demonstration.present.add("carol")
    assert "back on its store" in text_of(progress_view(demonstration, height=40))
    file.delivered_at_ms, file.delivered_to = 5, ("bob", "carol")
    assert "acknowledged by bob, carol" in text_of(progress_view(demonstration, height=40))


def test_on_a_small_terminal_what_happened_last_gives_way(demonstration):
    demonstration.said += [Said(number, f"thing {number}") for number in range(20)]
    shown = {height: text_of(progress_view(demonstration, height=height)).count("thing") for height in (40, 17, 5)}
    assert shown == {40: 8, 17: 3, 5: 0}
    assert "thing 19" in text_of(progress_view(demonstration, height=16))


def test_many_names_are_counted():
    names = ("bob", "carol", "dave", "erin")
    crowd = replace(RESULT, participants=("alice", *names), messages=(replace(FILE, received_by=names),))
    text = text_of(summary(crowd, "sea.png"))
    assert "all 4 others" in text
    assert "bob, carol" in text


def test_what_happens_is_one_line_each():
    assert said_line(Said(61_234, "bob is back")) == "  61.2 s  bob is back"
