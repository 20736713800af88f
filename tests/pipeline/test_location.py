"""Where tables and files lie: a path, or a URI, which is never taken for a path."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import ConfigurationError
from fairway.pipeline.export import export
from fairway.pipeline.jobs import report as report_job
from fairway.pipeline.jobs import run as run_job
from fairway.pipeline.jobs import send as send_job
from fairway.pipeline.jobs import stream as stream_job
from fairway.pipeline.location import local_path
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.restore import restore
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sinks.receipts import read_receipts
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import Selection

ELSEWHERE = "ftp://host/folder"
SENDING = ("--channel", "team", "--sender", "alice", "--dry-run")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Work in an empty folder, to see what a command leaves in it."""
    monkeypatch.chdir(tmp_path)
    Path("one.db").touch()
    Path("payloads").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--source", "one.db", "--out", ELSEWHERE),
        ("run", "--source", f"sqlite:{ELSEWHERE}", "--out", "run"),
        ("run", "--source", f"lip76:{ELSEWHERE}", "--out", "run"),
        ("run", "--source", ELSEWHERE, "--out", "run"),
        ("stream", "--source", "one.db", "--out", ELSEWHERE),
        ("stream", "--source", f"sqlite:{ELSEWHERE}", "--out", "live"),
        ("send", "--payloads", ELSEWHERE, "--out", "sent", *SENDING),
        ("send", "--payloads", "payloads", "--out", ELSEWHERE, *SENDING),
        ("send", "--payloads", "payloads", "--out", "sent", "--after", ELSEWHERE, *SENDING),
        ("report", ELSEWHERE),
        ("report", "run", "--html", ELSEWHERE),
        ("export", ELSEWHERE, "--to", "messages"),
        ("restore", ELSEWHERE, "--channel", "team", "--sender", "alice", "--store", "alice.db"),
    ],
    ids=" ".join,
)
def test_a_command_refuses_a_scheme_that_it_does_not_support_and_leaves_nothing(words, nowhere):
    result = CliRunner().invoke(app, ["pipeline", *words])
    assert isinstance(result.exception, ConfigurationError)
    assert "'ftp'" in str(result.exception)
    assert sorted(child.name for child in nowhere.iterdir()) == ["one.db", "payloads"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (run_job, ("--source", "one.db", "--out", ELSEWHERE)),
        (stream_job, ("--source", "one.db", "--out", ELSEWHERE)),
        (send_job, ("--payloads", ELSEWHERE, "--out", "sent", *SENDING)),
        (report_job, ("--out", ELSEWHERE)),
    ],
    ids=["run", "stream", "send", "report"],
)
def test_a_job_refuses_it_too_with_exit_code_2_and_what_was_given(job, words, capsys, nowhere):
    assert job.main(words) == 2
    told = capsys.readouterr().err
    assert ELSEWHERE in told
    assert "'ftp' is not supported" in told
    assert sorted(child.name for child in nowhere.iterdir()) == ["one.db", "payloads"]


def test_a_program_that_gives_one_is_refused_before_anything_is_read():
    for refused in (
        lambda: write_html_report("run", ELSEWHERE),
        lambda: export(None, ELSEWHERE),
        lambda: restore(None, ELSEWHERE, channel_id="team", sender_id="alice"),
        lambda: read_receipts(None, ELSEWHERE),
        lambda: scan_of(f"sqlite:{ELSEWHERE}", Selection()),
        lambda: scan_of(f"lip76:{ELSEWHERE}?cluster=1", Selection()),
        lambda: RunSource.parse(f"a=lip76:{ELSEWHERE}"),
    ):
        with pytest.raises(ConfigurationError, match="scheme 'ftp' is not supported"):
            refused()


def test_a_uri_that_pathlib_has_shortened_is_still_known_as_one():
    with pytest.raises(ConfigurationError, match="'s3a'"):
        local_path(Path("s3a://bucket/run"), "--out")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("run", "run"),
        ("/shared/run", "/shared/run"),
        ("run-2026-11-23T10:00", "run-2026-11-23T10:00"),
        ("C:/run", "C:/run"),
        ("file:///shared/my%20run", "/shared/my run"),
        ("file://localhost/shared", "/shared"),
        ("file:/shared", "/shared"),
    ],
)
def test_paths_and_file_uris_are_on_this_machine(given, path):
    assert local_path(given, "--out") == Path(path)


def test_a_file_of_another_machine_is_refused():
    with pytest.raises(ConfigurationError, match="file of the machine 'backup'"):
        local_path("file://backup/run", "--out")


def test_an_archive_may_be_given_as_a_file_uri(nowhere):
    (nowhere / "one.db").write_bytes(b"1234")
    assert RunSource.parse(f"sqlite:file://{nowhere}/one.db").size_bytes() == 4
    assert RunSource.parse("sqlite://one.db").size_bytes() == 4
