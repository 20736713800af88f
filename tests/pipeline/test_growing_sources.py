"""Runs that grow over every kind of source that can: their tables are those of a run from nothing, row by row.

Of an archive that is no set of files all rows are read, and those are new that the tables do not have from it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run import RunOptions, RunTables, run, run_with
from fairway.pipeline.run.growth import WholeRunNeeded, new_rows
from fairway.pipeline.run.growth import growing as growing_run
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.options import selection_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.protocol.encryption import AesGcm
from fairway.storage.archive import ArchivedMessage
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from grown_runs import OPTIONS, PLAN, assert_same, decoded, empty_run, generated, grown, write
from lip76_writing import write_lip76
from postgres_server import postgres_archive
from rest_store import rest_store

STEPS = 3
KEY = bytes(range(32))


def archived(row: dict[str, Any]) -> ArchivedMessage:
    return ArchivedMessage(**{name: row[name] for name in ArchivedMessage.__dataclass_fields__})


@pytest.fixture(scope="module")
def rows():
    """An archive in the order in which its messages come: many of them late. No hash comes twice, no proof is kept."""
    made = generated(replace(PLAN, messages=300, seed=21, duplication=0.0, stores=1, store_loss=0.0)).to_pylist()
    once = list({row["message_hash"]: row | {"rate_limit_proof": None} for row in made}.values())
    random.Random(4).shuffle(once)
    return once


def steps(rows):
    return [rows[len(rows) * step // STEPS : len(rows) * (step + 1) // STEPS] for step in range(STEPS)]


@dataclass
class Growing:
    """An archive that more is put into."""

    uri: str
    put: Any


class SqliteGrowing:
    def __init__(self, path):
        self.uri = f"sqlite:{path}"
        self.path = path
        NwakuArchive(path).close()

    def put(self, rows) -> None:
        with NwakuArchive(self.path) as archive:
            for kept in map(archived, rows):
                message = WakuMessage(
                    payload=kept.payload,
                    content_topic=kept.content_topic,
                    version=kept.version,
                    timestamp_ns=kept.timestamp_ns,
                    meta=kept.meta,
                )
                archive.append(kept.pubsub_topic, message, kept.message_hash)


@pytest.fixture(params=["sqlite", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("postgresql", "node"))])
def growing(request, tmp_path):
    if request.param == "sqlite":
        yield SqliteGrowing(tmp_path / "store.db")
    elif request.param == "postgresql":
        with postgres_archive() as (uri, put):
            yield Growing(uri, lambda rows: put(map(archived, rows)))
    else:
        with rest_store(page=100) as store:
            yield Growing(store.uri, lambda rows: store.add(map(archived, rows)))


def table_of(rows, source="store"):
    """Return rows as a Parquet source has them, under another name."""
    return pa.Table.from_pylist([row | {"source": source} for row in rows], ARROW_SCHEMA)


def test_an_archive_without_files_grows_by_what_the_tables_lack(growing, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(growing_run, "GROUP_ROWS", 50)  # several groups of channels
    source = f"store={growing.uri}"
    empty_run(tmp_path / "steps", source)
    for part in steps(rows):
        growing.put(part)
        summary = grown(tmp_path / "steps", [source])
        assert (summary.mode, summary.new_rows) == ("grown", len(part))
    # Nothing came: the archive is read all the same, and nothing changes.
    assert grown(tmp_path / "steps", [source]).new_rows == 0
    write(tmp_path / "all", "part-0.parquet", table_of(rows))
    empty_run(tmp_path / "once", tmp_path / "none")
    grown(tmp_path / "once", [f"parquet:{tmp_path / 'none'}", f"store=parquet:{tmp_path / 'all'}"])
    assert_same(tmp_path / "steps", tmp_path / "once")
    assert RunTables(tmp_path / "steps").balance.rows_in == len(rows)


def test_two_archives_grow_side_by_side_and_each_message_remembers_both(rows, tmp_path):
    early, late = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    one = SqliteGrowing(tmp_path / "one.db")
    with rest_store(page=100) as node:
        sources = [f"one={one.uri}", f"node={node.uri}"]
        empty_run(tmp_path / "steps", sources[0])
        one.put(early)
        grown(tmp_path / "steps", sources[:1])
        node.add(map(archived, early[:40] + late[:40]))
        grown(tmp_path / "steps", sources)
        one.put(late)
        node.add(map(archived, late[40:60]))
        assert grown(tmp_path / "steps", sources).mode == "grown"
    write(tmp_path / "all", "part-0.parquet", table_of(rows, "one"))
    write(tmp_path / "all", "part-1.parquet", table_of(early[:40] + late[:60], "node"))
    empty_run(tmp_path / "once", tmp_path / "none")
    grown(tmp_path / "once", [f"parquet:{tmp_path / 'none'}", f"parquet:{tmp_path / 'all'}"])
    assert_same(tmp_path / "steps", tmp_path / "once")


def test_a_message_that_an_archive_lost_needs_a_whole_run(rows, tmp_path):
    with rest_store(page=100) as node:
        empty_run(tmp_path / "run", f"store={node.uri}")
        node.add(map(archived, rows))
        grown(tmp_path / "run", [f"store={node.uri}"])
        before = (tmp_path / "run" / "run.json").read_bytes()
        del node.entries[17]
        with pytest.raises(WholeRunNeeded, match="messages were removed"):
            grown(tmp_path / "run", [f"store={node.uri}"])
        assert (tmp_path / "run" / "run.json").read_bytes() == before


@pytest.mark.parametrize("bound", [(growing_run, "MOST_TOUCHED_ROWS"), (new_rows, "MOST_KNOWN_ROWS")])
def test_more_messages_than_fit_in_memory_need_a_whole_run(rows, tmp_path, monkeypatch, bound):
    store = SqliteGrowing(tmp_path / "store.db")
    empty_run(tmp_path / "run", f"store={store.uri}")
    first, second, _ = steps(rows)
    store.put(first)
    grown(tmp_path / "run", [f"store={store.uri}"])
    store.put(second)
    monkeypatch.setattr(*bound, 50)
    with pytest.raises(WholeRunNeeded, match="so many messages that a whole run is cheaper"):
        grown(tmp_path / "run", [f"store={store.uri}"])
    monkeypatch.undo()
    assert grown(tmp_path / "run", [f"store={store.uri}"]).new_rows == len(second)


def test_a_source_that_is_given_no_more_needs_a_whole_run_and_is_named_before_any_is_read(tmp_path):
    empty_run(tmp_path / "run", tmp_path / "one")
    (tmp_path / "two.db").write_text("no archive, so that reading it would be another error")
    with pytest.raises(WholeRunNeeded, match=r"parquet:.*/one, which was read, is not given any more"):
        grown(tmp_path / "run", [f"sqlite:{tmp_path / 'two.db'}"])


def test_a_message_that_comes_again_in_an_archive_needs_a_whole_run(rows, tmp_path):
    source = f"store=lip76:{tmp_path / 'folder'}?pubsubTopic=/waku/2/rs/1/0"
    told = list({(row["payload"], row["timestamp_ns"]): row for row in rows}.values())

    def put(more) -> None:
        write_lip76(tmp_path / "folder", sorted(map(archived, more), key=lambda message: message.timestamp_ns))

    put(told[:1])
    empty_run(tmp_path / "run", source)
    put(told[1:100])
    assert grown(tmp_path / "run", [source]).new_rows == 100
    put([told[100], told[100], told[101]])  # twice from the beginning: this is counted
    assert grown(tmp_path / "run", [source]).new_rows == 3
    put(told[102:110])
    assert grown(tmp_path / "run", [source]).new_rows == 8
    assert RunTables(tmp_path / "run").balance.duplicates == 1
    put(told[105:106])
    with pytest.raises(WholeRunNeeded, match=r"a message is in .* more than once"):
        grown(tmp_path / "run", [source])


def test_a_folder_of_lip76_on_other_shards_is_another_source(tmp_path):
    write_lip76(tmp_path / "folder", [])
    one, other = (RunSource.parse(f"lip76:{tmp_path / 'folder'}?shards={shards}") for shards in (1, 2))
    assert one.described() != other.described()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_a_run_of_some_channels_grows_by_what_is_of_them(rows, tmp_path, kind):
    found = {message.channel_id for row in rows if (message := decoded(row)) is not None}
    options = replace(OPTIONS, selection=selection_of(channels=sorted(found)[:2]))
    store = SqliteGrowing(tmp_path / "store.db")
    source = f"store={store.uri}" if kind == "sqlite" else f"store=parquet:{tmp_path / 'rows'}"
    write(tmp_path / "rows", "part-none.parquet", table_of(rows).slice(0, 0))
    write(tmp_path / "all", "part-none.parquet", table_of(rows).slice(0, 0))
    empty_run(tmp_path / "steps", source, options)
    for number, part in enumerate(steps(rows)):
        store.put(part)
        write(tmp_path / "rows", f"part-{number}.parquet", table_of(part))
        assert 0 < grown(tmp_path / "steps", [source], options).new_rows < len(part)
    once = f"store=parquet:{tmp_path / 'all'}"
    empty_run(tmp_path / "once", once, options)
    write(tmp_path / "all", "part-0.parquet", table_of(rows))
    grown(tmp_path / "once", [once], options)
    assert_same(tmp_path / "steps", tmp_path / "once")
    stats = RunTables(tmp_path / "steps").all("channel_stats")
    assert {row["channel_id"] for row in stats} == set(sorted(found)[:2])


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_a_run_of_some_topics_grows_by_what_is_on_them(rows, tmp_path, kind):
    topics = sorted({row["content_topic"] for row in rows})[:2]
    options = replace(OPTIONS, selection=selection_of(topics=topics))
    store = SqliteGrowing(tmp_path / "store.db")
    source = f"store={store.uri}" if kind == "sqlite" else f"store=parquet:{tmp_path / 'rows'}"
    write(tmp_path / "rows", "part-none.parquet", table_of(rows).slice(0, 0))
    empty_run(tmp_path / "steps", source, options)
    for number, part in enumerate(steps(rows)):
        store.put(part)
        write(tmp_path / "rows", f"part-{number}.parquet", table_of(part))
        wanted = sum(row["content_topic"] in topics for row in part)
        assert 0 < wanted < len(part)
        assert grown(tmp_path / "steps", [source], options).new_rows == wanted
    # What a run of everything makes of an archive with nothing else.
    alone = f"store=parquet:{tmp_path / 'alone'}"
    write(tmp_path / "alone", "part-none.parquet", table_of(rows).slice(0, 0))
    empty_run(tmp_path / "once", alone)
    write(tmp_path / "alone", "part-0.parquet", table_of([row for row in rows if row["content_topic"] in topics]))
    grown(tmp_path / "once", [alone])
    assert_same(tmp_path / "steps", tmp_path / "once")


def test_a_table_of_a_run_is_a_source_in_each_of_its_versions(rows, tmp_path):
    part = tmp_path / "run" / "tables" / "waku_messages"
    write(tmp_path / "one", "part-none.parquet", table_of(rows).slice(0, 0))
    source = f"a=parquet:{tmp_path / 'one'}"
    empty_run(tmp_path / "run", source)
    write(tmp_path / "one", "part-0.parquet", table_of(rows))
    grown(tmp_path / "run", [source])
    before = RunTables(tmp_path / "run").manifest["tables"]["waku_messages"]["version"]
    # The same messages come again, from another store: rows of the table are replaced.
    write(tmp_path / "two", "part-0.parquet", table_of(rows[:10], "two"))
    grown(tmp_path / "run", [source, f"b=parquet:{tmp_path / 'two'}"])
    counts = {}
    for name, given in (("last", part), ("before", f"{part}@v{before}")):
        empty_run(tmp_path / name, tmp_path / "none")
        counts[name] = grown(tmp_path / name, [f"parquet:{tmp_path / 'none'}", f"parquet:{given}"]).new_rows
    once = RunTables(tmp_path / "run").rows("waku_messages")
    again = len({row["message_hash"] for row in rows[:10]})
    assert counts == {"before": once, "last": once + again}
    with pytest.raises(ConfigurationError, match=r"is no Delta table, and has no versions; leave @v3 out"):
        grown(tmp_path / "run", [f"parquet:{tmp_path / 'one'}@v3"])
    with pytest.raises(StorageError, match="waku_messages cannot be read"):
        grown(tmp_path / "run", [f"parquet:{part}@v999"])


@pytest.mark.spark
@pytest.mark.full
def test_an_encrypted_channel_alone_grows_as_spark_makes_it(spark, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(grow.__kwdefaults__, "most_grown", inf)
    found = sorted({message.channel_id for row in rows if (message := decoded(row)) is not None})
    keys = ChannelKeys.from_mapping({found[0]: {"cipher": "aes-256-gcm", "key": KEY.hex()}})
    sealed = []
    for row in rows:
        message = decoded(row)
        is_sealed = message is not None and message.channel_id == found[0]
        sealed.append(row | {"payload": AesGcm(KEY).encrypt(row["payload"])} if is_sealed else row)
    options = RunOptions(selection=selection_of(channels=[found[0]]))
    one = SqliteGrowing(tmp_path / "one.db")
    modes, started = [], []
    for part in steps(sealed):
        one.put(part)
        summary = run_with(
            options,
            [f"one={one.uri}"],
            tmp_path / "steps",
            keys=keys,
            spark=spark,
            before_spark=lambda: started.append("Spark"),
        )
        modes.append(summary.mode)
    assert (modes, started) == (["whole", "grown", "grown"], ["Spark"])
    run_with(options, [f"one={one.uri}"], tmp_path / "whole", keys=keys, spark=spark)
    assert_same(tmp_path / "steps", tmp_path / "whole")
    assert json.loads(json.dumps(summary.as_json()))["selection"]["channels"] == [found[0]]


@pytest.mark.spark
def test_a_file_that_arrives_while_a_run_works_belongs_to_the_next_run(rows, tmp_path, spark):
    early, late = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    write(tmp_path / "one", "part-0.parquet", table_of(early))
    source = f"a=parquet:{tmp_path / 'one'}"
    arrive = partial(write, tmp_path / "one", "part-1.parquet", table_of(late))
    first = run_with(RunOptions(), [source], tmp_path / "run", spark=spark, before_spark=arrive)
    assert (first.balance.rows_in, first.balance.adds_up) == (len(early), True)
    second = run([source], tmp_path / "run", spark=spark)
    assert (second.balance.rows_in, second.balance.adds_up) == (len(rows), True)
