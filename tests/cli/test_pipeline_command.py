"""``fairway pipeline``: its words, its exit codes, and what a person reads when something is wrong."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from fairway.cli import app
from fairway.errors import ConfigurationError, FairwayError
from fairway.pipeline import run
from fairway.pipeline.run.folder import TableResult
from fairway.pipeline.run.progress import RunProgress
from fairway.pipeline.run.summary import Balance, RunSummary


def balance(rows_in: int) -> Balance:
    classes = {"duplicates": 1, "quarantined": 2, "retransmissions": 3, "other_shards": 0, "sync": 4}
    return Balance(rows_in=rows_in, **classes, delivered=5, incomplete=6)


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """Let a run end at once, with as many rows in as are asked for, and remember how it was called."""
    called = []

    def pretend(rows_in: int) -> list:
        def run_with(options, sources, out, *, keys, progress, before_spark):
            before_spark()
            result = TableResult(name="quarantine", rows=2, files=1, bytes=100, seconds=0.5)
            for told in (None, (result,)):
                progress(RunProgress(step="quarantine", number=1, total=1, results=told))
            called.append((options, sources, out, keys))
            return RunSummary(folder=tmp_path, tables=(result,), balance=balance(rows_in), seconds=1.0, resumed=0)

        monkeypatch.setattr(run, "run_with", run_with)
        return called

    return pretend


def invoke(*words: str, catch: bool = True):
    return CliRunner().invoke(app, ["pipeline", *words], catch_exceptions=catch)


def test_a_run_prints_its_steps_its_tables_and_the_balance(pretended, tmp_path):
    called = pretended(21)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"team": {"cipher": "aes-256-gcm", "key": "ab" * 32}}))
    words = ["--source", "a=one.db", "--source", "b=two.db", "--out", "out", "--keys", str(keys), "--profile", "logos"]
    result = invoke("run", *words, "--blooms", "--rate-limit", "7", "--max-channel-bytes", "99")
    assert result.exit_code == 0, result.output
    assert "all are accounted for" in result.output
    assert "quarantine" in result.output
    assert "ab" * 32 not in result.output
    ((options, sources, out, channel_keys),) = called
    assert (sources, str(out), len(channel_keys)) == (["a=one.db", "b=two.db"], "out", 1)
    assert (options.profile.value, options.blooms, options.rate_limit) == ("logos", True, 7)
    assert options.max_channel_bytes == 99


def test_the_next_command_has_no_key_of_the_folder(pretended):
    pretended(21)
    result = invoke("run", "one.db", "--out", "s3://id:not-a-secret@bucket/run?region=eu-west-1")
    assert "next: fairway pipeline report s3://bucket/run --html report.html" in result.output
    assert "not-a-secret" not in result.output


@pytest.mark.parametrize("command", ["run", "stream"])
@pytest.mark.parametrize("option", ["--rate-limit", "--epoch-ms"])
def test_a_number_that_cannot_be_is_told_by_the_name_of_its_option(pretended, command, option):
    called = pretended(21)
    result = invoke(command, "one.db", "--out", "out", option, "0")
    assert result.exit_code == 2
    assert f"'{option}'" in result.output
    assert called == []


def test_several_sources_may_follow_one_word(pretended):
    called = pretended(21)
    result = invoke("run", "--source", "a=one.db", "b=two.db", "c=three.db", "--out", "out", "--source", "d=four.db")
    assert result.exit_code == 0, result.output
    assert sorted(called[0][1]) == ["a=one.db", "b=two.db", "c=three.db", "d=four.db"]


def test_sources_may_stand_without_the_word_and_one_is_needed(pretended):
    called = pretended(21)
    assert invoke("run", "a=one.db", "two.db", "--out", "out").exit_code == 0
    assert called[0][1] == ["a=one.db", "two.db"]


@pytest.mark.parametrize("command", ["stream", "run"])
def test_a_command_without_a_source_says_how_to_give_one(command, tmp_path):
    with pytest.raises(ConfigurationError, match="there is no source, and one is needed: --source sqlite:"):
        invoke(command, "--out", str(tmp_path / "out"), catch=False)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("sqlite:none.db", "No such file"),
        ("sqlite:junk", "not an archive of a nwaku store"),
        ("parquet:empty", "has no Parquet file"),
        ("parquet:folder", "cannot be read as Parquet"),
        ("lip76:empty", "has no file 'index'"),
        # Half a minute, in which the node may come back.
        pytest.param("http://127.0.0.1:1", "see that the node runs", marks=pytest.mark.full),
        ("postgresql://me@127.0.0.1:1/nodes", "no connection to PostgreSQL"),
    ],
)
def test_a_source_that_cannot_be_read_ends_a_run_before_there_is_a_folder(source, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("nothing that SQLite knows")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "rows.parquet").write_text("nothing that Arrow knows")
    with pytest.raises(FairwayError, match=why):
        invoke("run", "--source", source, "--out", "out", catch=False)
    assert not (tmp_path / "out").exists()


def test_a_stream_takes_the_length_of_an_epoch(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("fairway.pipeline.streaming.stream", lambda *_, options, **__: asked.append(options))
    invoke("stream", "one.db", "--out", str(tmp_path / "out"), "--epoch-ms", "60000", "--rate-limit", "5")
    (options,) = asked
    assert (options.tables.epoch_ms, options.tables.rate_limit) == (60_000, 5)


@pytest.mark.parametrize("command", [("stream",), ("run",)])
def test_a_source_that_is_none_is_named_wherever_it_stands(command, tmp_path):
    result = invoke(*command, "--source", "a=sqlite:one.db", "b=nope:two.db", "--out", str(tmp_path / "out"))
    assert isinstance(result.exception, ConfigurationError)
    assert "the scheme 'nope' names no archive" in str(result.exception)


def test_rows_that_are_not_accounted_for_end_in_exit_code_1(pretended):
    pretended(22)
    result = invoke("run", "--source", "one.db", "--out", "out")
    assert result.exit_code == 1
    assert "does not add up" in result.output


def test_a_run_without_options_has_those_of_the_function(pretended):
    called = pretended(21)
    invoke("run", "--source", "one.db", "--out", "out")
    ((options, *_),) = called
    assert options == run.RunOptions()


def test_programs_get_one_json_object(pretended):
    pretended(21)
    result = invoke("run", "--source", "one.db", "--out", "out", "--json")
    told = json.loads(result.stdout)
    assert told["balance"]["adds_up"] is True
    assert told["tables"]["quarantine"]["rows"] == 2


def test_a_folder_without_a_run_is_refused(tmp_path):
    for words in (["report", str(tmp_path)], ["export", str(tmp_path), "--to", str(tmp_path / "to")]):
        error = invoke(*words).exception
        assert isinstance(error, ConfigurationError)
        assert "no run folder" in str(error)
