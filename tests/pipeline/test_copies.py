"""Runs that find out first which messages a table has more than once: their tables are those of any other run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.pipeline import exchange
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import gathered, notes_of
from fairway.pipeline.run import RunTables, copies, jobs, run
from fairway.pipeline.run.copies import Repeated, RepeatedInPart, disagree, repeated_in
from fairway.pipeline.run.ingesting import WRITTEN, Ingesting
from fairway.pipeline.sources import parquet_scan
from fairway.pipeline.sources.open_source import map_scan
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, Selection
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables.files import TableFiles
from fairway.testing.archives import GeneratorPlan, rows_mapper
from fairway.wire.waku_message import WakuMessage, message_hash
from grown_runs import content

PLAN = GeneratorPlan(messages=1_500, channels=5, largest_share=0.6, long_share=0.05, loss=0.05, duplication=0.02)
KEYS = BucketKeys(bytes(32))
BUCKETS = 2
DECODER = BatchDecoder(None, None, None)


def differing_rows(spark, run, other):
    """Return the tables of a run that do not have the rows of another run, each with rows too many and lacking."""
    tables, others = RunTables(run), RunTables(other)
    found = {}
    for table in TABLES:
        ours, theirs = (each.dataframe(spark, table.name).select(F.xxhash64("*")) for each in (tables, others))
        counts = ours.exceptAll(theirs).count(), theirs.exceptAll(ours).count()
        if any(counts):
            found[table.name] = counts
    return found


@pytest.fixture(scope="module")
def messages():
    batches = list(rows_mapper(PLAN, 1)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    return pa.Table.from_batches(batches).select(ARROW_SCHEMA.names)


@pytest.fixture
def archive(messages, tmp_path):
    """Two files, in several row groups."""
    return written(with_retransmissions(messages), tmp_path / "archive")


def with_retransmissions(messages):
    """Return messages, and some of them again at later times, and so with other hashes."""
    rows = messages.filter(pa.array(np.arange(messages.num_rows) % 31 == 5)).to_pylist()
    for row in rows:
        row["timestamp_ns"] += 10**9
        fields = {name: row[name] for name in ("payload", "content_topic", "timestamp_ns", "meta")}
        row["message_hash"] = message_hash(row["pubsub_topic"], WakuMessage(**fields))
    return pa.concat_tables([messages, pa.Table.from_pylist(rows, messages.schema)])


def written(messages, folder):
    """Write two files, in several row groups."""
    folder.mkdir()
    half = messages.num_rows // 2
    pq.write_table(messages.slice(0, half), folder / "part-0.parquet", row_group_size=200)
    pq.write_table(messages.slice(half), folder / "part-1.parquet", row_group_size=200)
    return f"parquet:{folder}"


def scanned(archive):
    scan = scan_of(archive, Selection(), "store")
    return scan, scan.plan(4)


def rows_of(frame, files):
    """Return the rows of each table that a job wrote, in no order, and what else its notes tell."""
    notes = notes_of(row.blob for row in frame.select("blob").collect())
    names = {name: [told["file"] for told in notes if told.get("table") == name] for name in WRITTEN}
    tables = {
        name: Counter(repr(row) for table in files.read(name, own) for row in table.to_pylist())
        for name, own in names.items()
    }
    return tables, [told for told in notes if "table" not in told]


def ingesting(folder):
    files = TableFiles(root=str(folder))
    return Ingesting(files=files, keys=KEYS, buckets=BUCKETS, profile=None, channel_keys=None), files


@pytest.mark.full
@pytest.mark.spark
def test_only_messages_that_come_again_are_brought_together(spark, messages, archive, tmp_path):
    scan, parts = scanned(archive)
    repeated = repeated_in(spark, scan, parts, KEYS, DECODER)
    counts = Counter(messages["message_hash"].to_pylist())
    assert repeated is not None
    several = pa.array([each for each, count in counts.items() if count > 1], pa.binary())
    assert len(several) > 10
    assert sorted(KEYS.heads(several).tolist()) == repeated.heads.tolist()
    assert set(repeated.parts.tolist()) <= set(range(len(parts)))
    job, files = ingesting(tmp_path / "first")
    found, told = rows_of(job.frame_with_copies(spark, scan, parts, repeated), files)
    job, files = ingesting(tmp_path / "by-hash")
    expected, _ = rows_of(
        job.frame([partial(map_scan, spark, scan_of(archive, Selection(), "store"))], unique=False), files
    )
    assert found == expected
    assert not any("disagree" in each for each in told)

    # Of the SDS messages only those go on to the next tasks that are in several WakuMessages.
    (part,) = scan.plan(1)
    in_one_part = replace(repeated, parts=np.zeros_like(repeated.parts))
    job, _ = ingesting(tmp_path / "one-part")
    moved = gathered(job.decode_first(in_one_part, scan.read(part)))
    ids = Counter(
        tuple(row.values())
        for kind in moved.tables.keys() & {"whole", "segments"}
        for row in moved.tables[kind].select(["channel_id", "message_id"]).to_pylist()
    )
    assert len(ids) > 10
    assert min(ids.values()) > 1
    assert sum(ids.values()) < messages.num_rows / 5


@pytest.mark.spark
def test_nothing_is_told_of_a_source_where_too_many_come_again_or_one_has_no_hash(spark, messages, tmp_path):
    place = messages.column_names.index("message_hash")
    one = pa.array([bytes(32)] * (messages.num_rows // 5), pa.binary())
    many = pa.concat_arrays([one, *messages["message_hash"].slice(len(one)).chunks])
    short = pa.concat_arrays([pa.array([b""], pa.binary()), *messages["message_hash"].slice(1).chunks])
    for name, hashes in (("many", many), ("short", short)):
        scan, parts = scanned(written(messages.set_column(place, "message_hash", hashes), tmp_path / name))
        assert repeated_in(spark, scan, parts, KEYS, DECODER) is None, name


@pytest.mark.spark
def test_without_a_decoder_the_same_hashes_come_again_and_no_keys_are_known(spark, archive):
    scan, parts = scanned(archive)
    by_hash = repeated_in(spark, scan, parts, KEYS, None)
    both = repeated_in(spark, scan, parts, KEYS, DECODER)
    assert by_hash is not None
    assert both is not None
    assert by_hash.keys is None
    assert both.keys is not None
    assert len(by_hash.heads) > 10
    assert by_hash.heads.tolist() == both.heads.tolist()
    assert by_hash.parts.tolist() == both.parts.tolist()


@pytest.mark.spark
def test_all_sds_messages_are_brought_together_where_too_many_come_again(spark, messages, tmp_path, monkeypatch):
    first = {own: place for place, own in reversed(list(enumerate(messages["message_hash"].to_pylist())))}
    each_once = messages.take(sorted(first.values()))
    scan, parts = scanned(written(with_retransmissions(each_once), tmp_path / "archive"))
    monkeypatch.setattr(copies, "MOST_REPEATED", 10)
    repeated = repeated_in(spark, scan, parts, KEYS, DECODER)
    assert repeated is not None
    assert repeated.keys is None
    assert not len(repeated.heads)
    job, _ = ingesting(tmp_path / "first")
    moved = gathered(row for part in parts for row in job.decode_first(repeated, scan.read(part)))
    assert moved.tables["whole"].num_rows > each_once.num_rows / 2


@pytest.mark.full
@pytest.mark.spark
def test_a_run_over_copies_that_differ_has_the_tables_of_any_other(spark, messages, tmp_path, monkeypatch):
    """A table may say that other bytes have the hash of a message: then all rows are brought together by hash."""
    forged = messages.slice(7, 1)
    forged = forged.set_column(messages.column_names.index("payload"), "payload", pa.array([b"forged"], pa.binary()))
    for name, rows in (("honest", messages), ("forged", pa.concat_tables([messages, forged]))):
        source = [f"store={written(rows, tmp_path / name)}"]
        usual, early = tmp_path / f"{name}-usual", tmp_path / f"{name}-early"
        run(source, usual, spark=spark)
        with monkeypatch.context() as patched:
            patched.setattr(jobs, "LEAST_BYTES", 0)
            run(source, early, spark=spark)
        assert differing_rows(spark, early, usual) == {}
    # The copy counts, and is the one that is kept if its payload comes first.
    assert differing_rows(spark, usual, tmp_path / "honest-usual")["waku_messages"] == (1, 1)


@pytest.mark.spark
def test_tasks_check_the_files_whose_footers_the_driver_does_not_read(spark, messages, tmp_path, monkeypatch):
    source, out = f"store={written(messages, tmp_path / 'archive')}", tmp_path / "run"
    run([source], tmp_path / "usual", spark=spark)
    monkeypatch.setattr(parquet_scan, "MOST_FOOTERS", 1)
    monkeypatch.setattr(jobs, "LEAST_BYTES", 0)
    monkeypatch.setattr(exchange, "PLAN_BYTES", 0)
    run([source], out, spark=spark)
    expected = {table.name: content(RunTables(tmp_path / "usual"), table.name) for table in TABLES}
    assert {name: content(RunTables(out), name) for name in expected} == expected
    described = (out / "run.json").read_bytes()
    pq.write_table(pa.table({"name": ["alice"]}), tmp_path / "archive" / "part-2.parquet")
    with pytest.raises(ConfigurationError, match=r"part-2\.parquet: is no table of Waku messages; it has no column"):
        run([source], out, spark=spark, epoch_ms=1_000)
    assert (out / "run.json").read_bytes() == described
    assert {name: content(RunTables(out), name) for name in expected} == expected


@pytest.mark.parametrize("column", ["payload", "content_topic", "meta", "timestamp_ns", "rate_limit_proof"])
def test_copies_disagree_where_one_is_decoded_otherwise(messages, column):
    some = messages.slice(0, 3)
    kind = some.schema.field(column).type
    other = pa.array([1], kind) if pa.types.is_integer(kind) else pa.array([b"other"], pa.binary()).cast(kind)
    changed = some.slice(1, 1).set_column(some.column_names.index(column), column, other)
    assert not disagree(pa.concat_tables([some, some.slice(1, 1)]))
    assert disagree(pa.concat_tables([some, changed]))


def test_messages_that_share_a_head_disagree(messages):
    some = messages.slice(0, 1)
    (known,) = some["message_hash"].to_pylist()
    other = pa.array([known[:8] + bytes(24)], pa.binary())
    alike = some.set_column(some.column_names.index("message_hash"), "message_hash", other)
    assert disagree(pa.concat_tables([some, alike]))


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), min_size=1, max_size=4), st.data())
def test_of_every_message_one_row_in_all_parts_is_the_first(parts, data):
    heads = [head for part in parts for head in part]
    several = sorted(head for head, count in Counter(heads).items() if count > 1)
    first = [next(number for number, part in enumerate(parts) if head in part) for head in several]
    repeated = Repeated(np.array(several, np.uint64), np.array(first, np.int32), np.array([], np.uint64))
    kept = []
    for number, part in enumerate(parts):
        teller = RepeatedInPart(repeated, number)
        cut = data.draw(st.integers(0, len(part)))
        for rows in (part[:cut], part[cut:]):
            is_repeated, is_first = teller.split(np.array(rows, np.uint64))
            assert is_repeated.tolist() == [head in several for head in rows]
            kept += [head for head, first in zip(rows, is_first, strict=True) if first]
    assert sorted(kept) == sorted(set(heads))
