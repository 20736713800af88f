"""A run folder is whole, or says what is missing: without a JVM, tables are files that are copied in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.exchange import notes_of
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.outgoing.tables import OUTGOING_TABLES
from fairway.pipeline.run.folder import RunFolder, TableResult, read_run
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import RunSource, parse_sources
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import TABLES, table_named
from fairway.pipeline.tables.delta import TableFile
from fairway.pipeline.tables.files import TableFiles, told_file
from patience import PATIENCE_S

SOURCES = [{"label": "a", "uri": "sqlite:a.db", "fingerprint": [["a.db", 1, 2]]}]
OPTIONS = {"profile": None}
KEYS = ChannelKeys.from_mapping({"team": {"cipher": "aes-256-gcm", "key": "ab" * 32}})


def opened(path: Path, sources=SOURCES, options=OPTIONS, keys=None) -> RunFolder:
    return RunFolder.open_for(path, sources, options, keys, tables=(*TABLES, *OUTGOING_TABLES))


def write(folder: RunFolder, name: str, rows: int, *, work: bool = False) -> None:
    """Write a table as a job of a run does, or the tables of a batch one by one."""
    table = arrow_schema(table_named(name).schema).empty_table() if not work else pa.table({"number": []})
    files = TableFiles(root=str(folder.path))
    place = folder.place_of(name, work=work).local
    place.mkdir(parents=True, exist_ok=True)
    if work:
        pq.write_table(pa.table({"number": range(rows)}), place / "part-0.parquet")
        part = TableFile("part-0.parquet", rows, (place / "part-0.parquet").stat().st_size)
    else:
        grown = pa.table([pa.nulls(rows, field.type) for field in table.schema], schema=table.schema)
        (told,) = notes_of([files.write(name, 0, grown)["blob"][0].as_py()])
        part = told_file(told)
    folder.finish_job(name, [TableResult.of(name, [part], 0.0, work=work)], {})


def written(folder: RunFolder, name: str, rows: int) -> None:
    """Write a table of a batch as Spark does."""

    def rows_into(place: Path) -> None:
        assert not place.exists()
        place.mkdir(parents=True)
        schema = arrow_schema(next(table.schema for table in OUTGOING_TABLES if table.name == name))
        pq.write_table(pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema), place / "p.parquet")

    folder.write_table(name, rows_into)


def test_a_table_of_a_finished_job_is_found_by_the_next_attempt(tmp_path):
    folder = opened(tmp_path / "run")
    write(folder, "quarantine", 3)
    result = folder.results["quarantine"]
    assert (result.rows, result.files, result.work) == (3, 1, False)
    folder.close()

    again = opened(tmp_path / "run")
    assert again.results == {"quarantine": result}
    again.finish({"balance": {}})
    again.close()
    assert read_run(tmp_path / "run")["attempts"] == 2


def test_the_run_before_is_read_until_the_next_one_ends_and_by_who_opened_it_after_that(tmp_path):
    with closing(opened(tmp_path / "run")) as first:
        write(first, "quarantine", 3)
        first.finish({"balance": {}})
    reader = RunTables(tmp_path / "run")
    with closing(opened(tmp_path / "run", options=OPTIONS | {"profile": "logos"})) as second:
        assert second.whole_because == "the tables in the folder had other options (profile)"
        write(second, "quarantine", 5)
        assert len(RunTables(tmp_path / "run").all("quarantine")) == 3
        second.finish({"balance": {}})
        assert RunTables(tmp_path / "run").rows("quarantine") == len(RunTables(tmp_path / "run").all("quarantine")) == 5
        assert len(reader.all("quarantine")) == 3


KILLED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path

place, point, number, *folders = sys.argv[1:]
sys.path[:0] = folders
from fairway.pipeline.location import Location
from fairway.pipeline.run import folder as module
from test_run_folder import OPTIONS, TABLES, opened, write


def deadly(owner, name):
    real, left = getattr(owner, name), [int(number)]

    def called(first, *arguments):
        left[0] -= name != "put" or first.name == "run.json"
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(first, *arguments)

    setattr(owner, name, called)


with closing(opened(Path(place), options=OPTIONS | {"profile": "logos"})) as folder:
    for table in TABLES:
        if not folder.is_whole(table.name):
            write(folder, table.name, 5)
    deadly(Location if point == "put" else module, point)
    folder.finish({"balance": {}})
"""


@pytest.mark.full
def test_readers_see_one_whole_run_if_its_driver_is_killed_between_two_commits(tmp_path):
    def rows_seen():
        tables = RunTables(tmp_path / "run")
        for table in TABLES:
            version = tables.manifest["tables"][table.name]["version"]
            there = DeltaTable(tmp_path / "run" / "tables" / table.name, version=version).to_pandas()
            yield from (tables.rows(table.name), len(tables.all(table.name)), len(there))

    with closing(opened(tmp_path / "run")) as first:
        for table in TABLES:
            write(first, table.name, 3)
        first.finish({"balance": {}})
    here = Path(__file__).parent
    for point, number in [("commit", 1), ("commit", 2), ("commit", len(TABLES)), ("put", 1), ("vacuum", 3), ("put", 0)]:
        words = [
            sys.executable,
            "-c",
            KILLED,
            str(tmp_path / "run"),
            point,
            str(number),
            str(here),
            str(here.parent / "support"),
        ]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == (-signal.SIGKILL if number else 0), ended.stderr
        assert set(rows_seen()) == {5 if (point, number) in {("vacuum", 3), ("put", 0)} else 3}, (point, number)


def test_a_run_tells_in_which_folder_its_sources_were_given(tmp_path, monkeypatch):
    def given_in(name):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with closing(opened(tmp_path / "run")) as folder:
            if folder.held is None:
                folder.finish_job("read", [], {})
                folder.finish({"balance": {}})
            else:
                folder.end_grown([], {}, {"balance": {}})
        return read_run(tmp_path / "run")["given_in"]

    assert given_in("begun") == str(tmp_path / "begun")
    assert given_in("grown") == str(tmp_path / "grown")


def test_what_was_left_half_written_is_thrown_away(tmp_path):
    folder = opened(tmp_path / "run")
    write(folder, "quarantine", 3)
    write(folder, "decoded", 3, work=True)
    # Written by tasks of a job that did not end.
    (folder.place_of("half", work=True).local).mkdir()
    stray = folder.place_of("quarantine").local / "part-00009-000-stray.parquet"
    stray.write_bytes(b"half a file")
    folder.close()

    again = opened(tmp_path / "run")
    assert not again.place_of("half", work=True).is_dir()
    assert again.is_whole("quarantine")
    assert again.is_whole("decoded")
    again.drop_work("decoded")
    assert not again.place_of("decoded", work=True).is_dir()
    assert set(again.results) == {"quarantine"}
    again.finish({"balance": {}})
    again.close()
    assert not stray.exists()
    assert {child.name for child in (tmp_path / "run").iterdir()} == {"run.json", "run.json.lock", "tables"}


@pytest.mark.parametrize(
    "change",
    [
        {"sources": [SOURCES[0] | {"fingerprint": [["a.db", 1, 3]]}]},
        {"sources": SOURCES * 2},
        {"options": OPTIONS | {"profile": "logos"}},
        {"keys": ChannelKeys.from_mapping({"team": {"cipher": "aes-256-gcm", "key": "cd" * 32}})},
        {"keys": None},
    ],
)
def test_other_sources_options_or_keys_begin_anew(tmp_path, change):
    folder = opened(tmp_path / "run", keys=KEYS)
    write(folder, "quarantine", 3)
    folder.close()
    again = opened(tmp_path / "run", **({"keys": KEYS} | change))
    assert again.results == {}
    again.close()


def test_the_same_keys_go_on_and_are_not_in_the_folder(tmp_path):
    folder = opened(tmp_path / "run", keys=KEYS)
    write(folder, "quarantine", 3)
    folder.close()
    again = opened(tmp_path / "run", keys=KEYS)
    assert again.is_whole("quarantine")
    again.close()
    assert "ab" * 32 not in (tmp_path / "run" / "work" / "attempt.json").read_text()


@pytest.mark.skipif(os.name != "posix", reason="files have other rights there")
def test_a_new_folder_for_what_keys_open_is_its_owners_alone(tmp_path):
    before = os.umask(0o022)
    try:
        for name, keys, others_may in (("sealed", KEYS, False), ("open", None, True)):
            opened(tmp_path / name, keys=keys).close()
            assert bool((tmp_path / name).stat().st_mode & 0o077) is others_may
    finally:
        os.umask(before)


def test_an_interrupted_run_that_lost_a_table_begins_again(tmp_path):
    folder = opened(tmp_path / "run")
    for name in ("quarantine", "channel_stats"):
        write(folder, name, 3)
    folder.place_of("quarantine").remove()
    folder.close()
    again = opened(tmp_path / "run")
    assert again.results == {}
    again.close()


def test_a_table_whose_file_was_cut_off_is_named_when_read_and_written_again(tmp_path):
    with closing(opened(tmp_path / "run")) as folder:
        write(folder, "quarantine", 3)
        write(folder, "channel_stats", 3)
        folder.finish({"balance": {}})
    (file,) = RunTables(tmp_path / "run").files("channel_stats")
    os.truncate(file.path, file.info().size - 10)
    tables = RunTables(tmp_path / "run")
    for read in (tables.all, lambda name: tables.range_of(name, "content")):
        with pytest.raises(StorageError, match=r"channel_stats/.*cannot be read.*makes it anew"):
            read("channel_stats")
    with closing(opened(tmp_path / "run")) as again:
        assert (again.held, again.results) == (None, {})


def test_two_runs_do_not_share_a_folder(tmp_path):
    folder = opened(tmp_path / "run")
    with pytest.raises(ConfigurationError, match="another run works on"):
        opened(tmp_path / "run")
    folder.close()
    opened(tmp_path / "run").close()


def test_nothing_of_others_is_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="holds something else"):
        opened(tmp_path)
    with pytest.raises(ConfigurationError, match="is a file"):
        opened(tmp_path / "thesis.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"name": "an app"}')
    with pytest.raises(ConfigurationError, match="does not describe a run"):
        opened(tmp_path / "other")
    (tmp_path / "other" / "run.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"is damaged.*remove the folder and run again"):
        opened(tmp_path / "other")


def test_nobody_is_told_to_remove_a_folder_that_cannot_be_reached(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be read.*give the same command again"):
        RunTables(tmp_path)


@pytest.mark.parametrize(("held", "wanted"), [("send", "run"), ("run", "send")])
def test_the_tables_of_one_command_are_not_replaced_by_those_of_another(tmp_path, held, wanted):
    options = {"run": OPTIONS, "send": OPTIONS | {"kind": "send"}}
    folder = opened(tmp_path / "there", options=options[held])
    (written if held == "send" else write)(folder, "payloads" if held == "send" else "quarantine", 3)
    folder.finish({})
    folder.close()
    before = (tmp_path / "there" / "run.json").read_bytes()
    with pytest.raises(ConfigurationError, match=f"holds the tables of 'fairway pipeline {held}'"):
        opened(tmp_path / "there", options=options[wanted])
    assert (tmp_path / "there" / "run.json").read_bytes() == before
    opened(tmp_path / "there", options=options[held]).close()


def test_the_tables_of_a_batch_are_read_by_their_names_also_while_it_is_not_sent_whole(tmp_path):
    folder = opened(tmp_path / "batch", options=OPTIONS | {"kind": "send"})
    written(folder, "receipts", 3)
    tables = RunTables(tmp_path / "batch")
    assert tables.rows("receipts") == len(tables.all("receipts")) == 3
    with pytest.raises(ConfigurationError, match="no table scheduled yet"):
        tables.files("scheduled")
    for of_a_run in (lambda: tables.rows("sds_messages"), lambda: tables.balance):
        with pytest.raises(ConfigurationError, match="give the folder of a run"):
            of_a_run()
    folder.close()


def test_only_a_finished_run_of_this_version_is_read(tmp_path):
    with pytest.raises(ConfigurationError, match="is no run folder"):
        RunTables(tmp_path)
    folder = opened(tmp_path / "run")
    with pytest.raises(ConfigurationError, match="did not end"):
        RunTables(tmp_path / "run")
    folder.finish({"balance": {}})
    folder.close()
    assert RunTables(tmp_path / "run").manifest["state"] == "complete"


def finished_by(path: Path, *, fairway: str, schema_version: int) -> bytes:
    """Make a folder with a table as another fairway would, and return what describes it."""
    folder = opened(path)
    write(folder, "quarantine", 3)
    folder.finish({"balance": {}})
    folder.close()
    described = path / "run.json"
    told = json.loads(described.read_text()) | {"fairway": fairway, "schema_version": schema_version}
    described.write_text(json.dumps(told))
    return described.read_bytes()


def test_the_tables_of_a_newer_fairway_are_neither_read_nor_replaced(tmp_path):
    before = finished_by(tmp_path / "run", fairway="9.9.1", schema_version=99)
    for use in (opened, RunTables):
        with pytest.raises(ConfigurationError, match=r"by fairway 9\.9\.1, .*: use fairway 9\.9\.1 or a newer one, or"):
            use(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert any((tmp_path / "run" / "tables" / "quarantine").iterdir())


def test_the_tables_of_an_older_fairway_are_made_anew(tmp_path):
    finished_by(tmp_path / "run", fairway="0.0.1", schema_version=1)
    with pytest.raises(ConfigurationError, match=r"by fairway 0\.0\.1, .*give the command that made the folder again"):
        RunTables(tmp_path / "run")
    with closing(opened(tmp_path / "run")) as folder:
        assert folder.results == {}
        assert folder.whole_because is not None
        assert "version 1 of the tables" in folder.whole_because


@pytest.mark.parametrize(
    ("text", "label", "scheme", "rest"),
    [
        ("sqlite:store.db", "sqlite:store.db", "sqlite", "store.db"),
        ("store.db", "sqlite:store.db", "sqlite", "store.db"),
        ("a=sqlite:dir=1/store.db", "a", "sqlite", "dir=1/store.db"),
        ("a=store.db", "a", "sqlite", "store.db"),
        ("parquet:tables/waku_messages", None, "parquet", "tables/waku_messages"),
        (
            "http://127.0.0.1:8645/?peerAddr=/ip4/1",
            "http://127.0.0.1:8645/",
            "http",
            "//127.0.0.1:8645/?peerAddr=/ip4/1",
        ),
        (
            "postgresql://me:secret@db:5432/postgres",
            "postgresql://db:5432/postgres",
            "postgresql",
            "//me:secret@db:5432/postgres",
        ),
    ],
)
def test_a_source_is_a_label_a_scheme_and_a_place(text, label, scheme, rest):
    source = RunSource.parse(text)
    assert (source.label, source.scheme, source.rest) == (label, scheme, rest)
    assert "secret" not in json.dumps([source.label, source.shown])


@pytest.mark.parametrize("text", ["foo:bar", "a=foo:bar", "sqllite:store.db"])
def test_a_scheme_that_no_archive_has_is_refused_before_spark_starts(text):
    with pytest.raises(ConfigurationError, match=r"the scheme '(foo|sqllite)' names no archive; known are sqlite:"):
        RunSource.parse(text)


def test_sources_have_names_of_their_own_and_there_is_one():
    with pytest.raises(ConfigurationError, match="two sources have the name 'a'"):
        parse_sources(["a=one.db", "a=two.db"])
    with pytest.raises(ConfigurationError, match="there is no source"):
        parse_sources([])


def test_what_is_no_row_of_a_parquet_table_changes_nothing(tmp_path):
    table = tmp_path / "table"
    (table / "source=a").mkdir(parents=True)
    pq.write_table(pa.table({"number": [1]}), table / "source=a" / "part-0.parquet")
    source = RunSource.parse(f"parquet:{table}")
    first = source.fingerprint()
    assert [name for name, _, _ in first] == ["source=a/part-0.parquet"]
    for name in ("_SUCCESS", "source=a/.part-0.parquet.crc", "_spark_metadata"):
        (table / name).write_bytes(b"1")
    assert source.fingerprint() == first


def test_the_fingerprint_of_a_source_changes_with_its_files(tmp_path):
    store = tmp_path / "store.db"
    store.write_bytes(b"1")
    source = RunSource.parse(f"sqlite:{store}")
    first = source.fingerprint()
    (tmp_path / "store.db-wal").write_bytes(b"")
    assert source.fingerprint() == first
    (tmp_path / "store.db-wal").write_bytes(b"2")
    assert source.fingerprint() != first
    assert source.size_bytes() == 2
    for name in ("data", "index"):
        (tmp_path / name).write_bytes(b"")
    folder = RunSource.parse(f"lip76:{tmp_path}").fingerprint()
    assert {name for name, _, _ in folder} >= {"data", "index"}
    assert RunSource.parse("http://127.0.0.1:1").fingerprint() == []
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RunSource.parse("none.db").fingerprint()
