"""Where tables and files lie: a path, or a URI, which is never taken for a path."""

from __future__ import annotations

import errno
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from typer.testing import CliRunner

from fairway.archives.export import export
from fairway.cli import app
from fairway.errors import ConfigurationError, FairwayError, StorageError, StoreFullError
from fairway.pipeline.location import Location, local_path, uri_of, without_secrets
from fairway.pipeline.report.html import write_html_report
from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import Selection
from grown_runs import empty_run
from patience import PATIENCE_S

ELSEWHERE = "ftp://host/folder"
FORKS_AFTER_HDFS = """
import subprocess, sys
from fairway.pipeline.location import Location
Location.of("hdfs://127.0.0.1:1/run", "--out")
subprocess.run([sys.executable, "-c", "print('forked')"], preexec_fn=lambda: None, check=True)
"""
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
    "words",
    [
        ("run", "--source", "one.db", "--out", ""),
        ("generate", ""),
        ("report", ""),
        ("stream", "--source", "one.db", "--out", ""),
    ],
    ids=lambda words: words[0],
)
def test_an_empty_path_is_not_the_current_folder(words, nowhere):
    result = CliRunner().invoke(app, ["pipeline", *words])
    assert isinstance(result.exception, ConfigurationError)
    assert "is empty: give a path" in str(result.exception)
    assert sorted(child.name for child in nowhere.iterdir()) == ["one.db", "payloads"]


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


def test_a_location_of_this_machine_is_a_path(nowhere):
    place = Location.of("run", "--out")
    assert (place.is_local, place.local, str(place)) == (True, nowhere / "run", "run")
    assert str(place / "tables/delivered") == "run/tables/delivered"
    assert Location.of(f"file://{nowhere}/run", "--out").local == nowhere / "run"


@pytest.fixture(
    params=["here", "s3", "s3a", *(pytest.param(name, marks=pytest.mark.full) for name in ("hdfs", "gcs", "azure"))]
)
def folder(request, nowhere):
    """An empty folder on each kind of storage."""
    if request.param in {"gcs", "azure"}:
        return Location.of(request.getfixturevalue(request.param).format(f"{request.node.originalname}/run"), "--out")
    if request.param in {"here", "hdfs"}:
        above = "" if request.param == "here" else f"{request.getfixturevalue('hdfs')}/{request.node.name}/"
        place = Location.of(f"{above}run", "--out")
        place.make_folder()
        return place
    bucket = request.getfixturevalue("bucket")
    return Location.of(bucket.uri("run", request.param), "--out")


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (OSError(errno.ENOSPC, "No space left"), StoreFullError, "no room is left for run: make some; again"),
        (OSError(errno.EROFS, "Read-only"), StorageError, "run cannot be written .*Read-only.*; again"),
    ],
)
def test_what_keeps_from_writing_is_told_with_what_to_do(error, kind, why):
    with pytest.raises(StorageError, match=why) as told, Location.of("run", "--out").being_written("again"):
        raise error
    assert type(told.value) is kind


@pytest.mark.parametrize(
    "words", ["export run --to one.db/x", "backfill --from parquet:none --to parquet:one.db/x", "generate one.db/x"]
)
def test_a_folder_that_cannot_be_made_is_told_in_a_sentence_and_at_once(nowhere, words):
    empty_run("run", nowhere / "none")
    told = CliRunner().invoke(app, ["pipeline", *words.split()])
    assert isinstance(told.exception, FairwayError)
    assert re.search(r"one.db.*(cannot be written|there is no folder)", str(told.exception))


def test_a_file_is_put_read_replaced_listed_and_removed(folder):
    file = folder / "run.json"
    assert not file.is_file()
    with pytest.raises(FileNotFoundError):
        file.read()
    file.put(b"old")
    file.put(b"new" * 1000)
    assert file.read() == b"new" * 1000
    assert (file.is_file(), folder.is_dir(), file.is_dir(), file.name) == (True, True, False, "run.json")
    assert [(folder.beneath(found), found.size) for found in folder.files()] == [("run.json", 3000)]
    file.remove()
    file.remove()
    assert folder.files() == []


def test_a_folder_is_removed_with_all_that_is_in_it(folder):
    (folder / "tables").make_folder()
    for name in ("b", "a"):
        (folder / f"tables/{name}.parquet").put(name.encode())
    assert [folder.beneath(found) for found in folder.files(recursive=True)] == ["tables/a.parquet", "tables/b.parquet"]
    assert [folder.beneath(found) for found in folder.children()] == ["tables"]
    (folder / "tables").remove()
    assert folder.files(recursive=True) == []
    assert (folder / "tables").children() == []


def test_a_key_of_an_azure_account_is_taken_from_the_uri_or_the_environment(monkeypatch):
    fs = pytest.importorskip("pyarrow.fs")
    key = "bm90LWEtc2VjcmV0"
    given = Location.of(f"abfss://tables:{key}@account.dfs.core.windows.net/run", "--out")
    assert (given.path, str(given)) == ("tables/run", "abfss://tables@account.dfs.core.windows.net/run")
    assert given.filesystem == fs.AzureFileSystem("account", account_key=key)
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    assert Location.of("abfss://tables@account.dfs.core.windows.net/run", "--out").filesystem == given.filesystem
    with pytest.raises(ConfigurationError, match="the only option is enable_tls") as refused:
        Location.of("abfss://tables@account.dfs.core.windows.net/run?client_id=1", "--out")
    assert key not in str(refused.value)


def test_a_task_gets_a_location_with_all_that_it_needs(bucket):
    place = Location.of(bucket.uri("run"), "--out") / "x"
    pickle.loads(pickle.dumps(place)).put(b"from a task")
    assert bucket.read("run/x") == b"from a task"


def test_a_name_in_a_bucket_is_written_as_it_is_or_escaped(bucket):
    (Location.of(bucket.uri("büro 1"), "--out") / "a").put(b"x")
    escaped = Location.of(bucket.uri("b%C3%BCro%201"), "--out")
    assert [escaped.beneath(found) for found in escaped.files()] == ["a"]
    assert escaped.name == "büro 1"


def test_the_environment_says_where_the_store_is_and_who_may_use_it(bucket, monkeypatch):
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    place = Location.of(bucket.short("run", "s3a"), "--out")
    place.put(b"1")
    assert bucket.read("run") == b"1"
    assert str(place) == bucket.short("run", "s3a")


def test_no_secret_is_shown(bucket):
    place = Location.of(bucket.uri("run"), "--out")
    assert "not-a-secret" not in str(place) + repr(place)
    assert without_secrets("abfss://key:secret@account.dfs.core.windows.net/run?x=y") == (
        "abfss://key@account.dfs.core.windows.net/run"
    )
    with pytest.raises(ConfigurationError) as refused:
        local_path(bucket.uri("run"), "--store")
    assert "not-a-secret" not in str(refused.value)


def test_a_uri_without_a_bucket_is_shown_as_it_was_given():
    with pytest.raises(ConfigurationError, match="--out is 's3:///run', which cannot be used"):
        Location.of("s3:///run", "--out")


def test_a_path_that_was_made_of_a_uri_is_that_uri(bucket):
    assert str(Location.of(Path(bucket.uri("run/one", "s3a")), "--out")) == bucket.short("run/one", "s3a")


def test_a_path_made_of_a_uri_without_a_host_has_none_either():
    assert uri_of(Path("hdfs:///shared/run")) == "hdfs:///shared/run"


def test_hdfs_takes_its_user_and_options_from_elsewhere():
    pytest.importorskip("hdfs_native")
    with pytest.raises(ConfigurationError, match=r"hdfs://node/run has a user or options: set HADOOP_USER_NAME"):
        Location.of("hdfs://secret@node/run", "--out")


def test_a_process_that_used_hdfs_may_fork():
    pytest.importorskip("hdfs_native")
    words = [sys.executable, "-W", "ignore", "-c", FORKS_AFTER_HDFS]
    assert subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True).stdout == b"forked\n"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("oss://bucket/run", "scheme 'oss' is not supported: give a path, or a URI of one of file, s3, s3a"),
        ("s3://bucket/run?colour=red", "Unexpected query parameter"),
    ],
)
def test_a_uri_that_cannot_be_used_says_why(given, told):
    with pytest.raises(ConfigurationError, match=told):
        Location.of(given, "--out")


def test_a_bucket_that_is_not_there_is_named_by_whatever_needs_it(s3, bucket):
    folder = bucket.uri("run").replace(bucket.name, "no-such-bucket")
    source = scan_of(f"parquet:{folder}", Selection())
    empty_run("run", Path("none"))
    for use in (
        lambda: Location.of(folder, "--out").put(b"x"),
        lambda: RunTables(folder),
        lambda: RunFolder.open_for(folder, [], RunOptions().as_json(), None),
        lambda: export(RunTables("run"), folder),
        lambda: write_html_report("run", folder),
        source.plan,
        parse_sources([f"parquet:{folder}"])[0].fingerprint,
    ):
        with pytest.raises(ConfigurationError, match=r"^s3://no-such-bucket: there is no bucket 'no-such-bucket'"):
            use()
    with pytest.raises(ConfigurationError, match="is no run folder"):
        RunTables(bucket.uri("run"))
