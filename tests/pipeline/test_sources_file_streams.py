"""Streams of sources that grow by files: Parquet and LIP-76, driven as Spark drives them, without a JVM."""

from __future__ import annotations

import json
import logging
import os
import pickle

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError, StoreQueryError
from fairway.pipeline.sources.options import SourceOptions
from fairway.pipeline.sources.stream import WakuStreamReader
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.storage.archive import ArchivedMessage
from iso_times import iso
from lip76_writing import PERIOD_NS, write_lip76

TOPIC = "/app/1/team/proto"
START_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000


def message(number: int) -> ArchivedMessage:
    return ArchivedMessage(
        message_hash=b"%032d" % number,
        pubsub_topic="/waku/2/rs/1/0",
        content_topic=TOPIC,
        payload=b"%d" % number,
        version=0,
        timestamp_ns=START_NS + number,
        meta=None,
    )


def table(numbers, source="a") -> pa.Table:
    rows = [message(number) for number in numbers]
    columns = {name: [getattr(row, name) for row in rows] for name in ("message_hash", "pubsub_topic", "content_topic")}
    columns |= {name: [getattr(row, name) for row in rows] for name in ("payload", "version", "meta")}
    columns |= {"timestamp_ns": [row.timestamp_ns for row in rows], "source": [source] * len(rows)}
    columns |= {"rate_limit_proof": [None] * len(rows)}
    return pa.table({name: columns[name] for name in ARROW_SCHEMA.names}, schema=ARROW_SCHEMA)


class Parquet:
    """A folder of files, each of a few messages in row groups of three."""

    scheme = "parquet"

    def __init__(self, folder) -> None:
        self.folder = folder
        folder.mkdir()
        self.files = 0

    def add(self, numbers, name=None, *, age_s=0.0) -> None:
        """Add a file under a name that says nothing of when it came, as old as it claims to be."""
        self.files += 1
        path = self.folder / (name or f"part-{-self.files % 7}-{self.files}.parquet")
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table(numbers), path, row_group_size=3)
        now_s = path.stat().st_mtime - age_s
        os.utime(path, (now_s, now_s))


class Lip76:
    """A LIP-76 folder, to which archives are added, several at a time if the numbers are far from each other."""

    scheme = "lip76"

    def __init__(self, folder) -> None:
        self.folder = folder
        write_lip76(folder, [])

    def add(self, numbers) -> None:
        write_lip76(self.folder, sorted(map(message, numbers), key=lambda one: one.timestamp_ns), piece_bytes=64)


KINDS = [Parquet, Lip76]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.scheme)
def growing(request, tmp_path):
    return request.param(tmp_path / "growing")


@pytest.fixture
def files(tmp_path):
    return Parquet(tmp_path / "files")


def reader(source, **options) -> WakuStreamReader:
    """Return the reader that a process has that was started anew."""
    place = f"{source.scheme}:{source.folder}"
    return WakuStreamReader(SourceOptions.parse({"path": place, **{k: str(v) for k, v in options.items()}}))


def rows(stream, start, end) -> list[int]:
    """Read one micro-batch as tasks would: each with a copy of reader and partition."""
    parts = stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    copies = pickle.loads(pickle.dumps(parts))
    return [int(row["payload"]) for part in copies for batch in stream.read(part) for row in batch.to_pylist()]


def batches(stream, start=None, *, at_most=1_000):
    """Run micro-batches until there is nothing more, and return them and the last offset."""
    offset = stream.initialOffset() if start is None else start
    found = []
    for _ in range(at_most):
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if end == offset:
            break
        found.append(rows(stream, offset, end))
        offset = end
    return found, offset


def test_micro_batches_have_as_many_messages_as_allowed_within_a_file_and_beyond_it(growing):
    growing.add(range(8))
    growing.add(range(8, 10))
    growing.add(range(10, 25))
    found, _ = batches(reader(growing, maxOffsetsPerTrigger=4, partitions=3))
    assert [sorted(batch) for batch in found] == [sorted(batch) for batch in found if len(batch) <= 4]
    assert sorted(number for batch in found for number in batch) == list(range(25))
    assert len(found) == 7


def test_a_micro_batch_waits_for_its_least_messages(growing):
    growing.add(range(4))
    stream = reader(growing, minOffsetsPerTrigger="4")
    found, offset = batches(stream)
    growing.add(range(4, 7))
    assert batches(stream, offset)[0] == []
    growing.add(range(7, 8))
    assert (found, batches(stream, offset)[0]) == ([[0, 1, 2, 3]], [[4, 5, 6, 7]])


def test_without_a_limit_everything_is_one_micro_batch_and_then_there_is_none(growing):
    growing.add(range(8))
    growing.add(range(8, 12))
    found, offset = batches(reader(growing))
    assert [sorted(batch) for batch in found] == [list(range(12))]
    assert batches(reader(growing), offset)[0] == []


def test_what_is_added_comes_next_whatever_its_timestamps(growing):
    growing.add(range(100, 105))
    _, offset = batches(reader(growing))
    growing.add(range(3))
    assert batches(reader(growing), offset)[0] == [[0, 1, 2]]


def test_a_micro_batch_that_is_replayed_has_the_same_messages_though_others_came(growing):
    growing.add(range(10))
    stream = reader(growing, maxOffsetsPerTrigger=6)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    before = rows(stream, start, end)
    growing.add(range(10, 20))
    assert rows(reader(growing), start, end) == before
    assert len(before) == 6


def test_latest_begins_with_what_comes_after(growing):
    growing.add(range(10))
    stream = reader(growing, startingOffsets="latest")
    found, offset = batches(stream)
    growing.add([11, 12])
    assert (found, batches(reader(growing), offset)[0]) == ([], [[11, 12]])


def test_available_now_ends_at_what_was_there_when_it_began(growing):
    growing.add(range(5))
    stream = reader(growing, maxOffsetsPerTrigger=4)
    stream.prepareForTriggerAvailableNow()
    growing.add([7])
    assert [len(batch) for batch in batches(stream)[0]] == [4, 1]


def test_only_wanted_messages_come_and_all_are_counted(growing):
    growing.add(range(10))
    found, _ = batches(reader(growing, maxOffsetsPerTrigger=4, since=iso(START_NS + 6)))
    assert [len(batch) for batch in found] == [0, 2, 2]
    assert sorted(number for batch in found for number in batch) == [6, 7, 8, 9]


def test_an_offset_of_a_checkpoint_may_be_given(growing):
    growing.add(range(10))
    _, offset = batches(reader(growing, maxOffsetsPerTrigger=4), at_most=1)
    found, _ = batches(reader(growing, startingOffsets=json.dumps(offset)))
    assert [sorted(batch) for batch in found] == [[4, 5, 6, 7, 8, 9]]


def test_an_offset_of_another_kind_of_source_is_refused(growing):
    growing.add([1])
    for wrong in ({"timestamp": START_NS, "hash": ""}, {"files": "?", "position": 1}, {"files": 3}, {"position": "1"}):
        with pytest.raises(ConfigurationError, match=r"offset|since"):
            reader(growing, startingOffsets=json.dumps(wrong)).initialOffset()


@examples(0.3)
@given(
    kind=st.sampled_from(KINDS),
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(1, 5), st.booleans()), min_size=1, max_size=6
    ),
)
def test_nothing_is_skipped_or_doubled_however_files_come_and_runs_end(tmp_path_factory, kind, steps):
    """Files of few or no messages come between runs, which end after a while or in mid-batch."""
    source = kind(tmp_path_factory.mktemp("stream") / "growing")
    offset, seen, sent = None, [], 0
    for sizes, limit, crash in steps:
        for size in sizes:
            source.add(range(sent, sent + size))
            sent += size
        stream = reader(source, maxOffsetsPerTrigger=limit)
        offset = stream.initialOffset() if offset is None else offset
        if crash:  # planned and read, but its results were lost with the process
            rows(stream, offset, stream.latestOffset(offset, stream.getDefaultReadLimit()))
            continue
        found, offset = batches(stream, offset, at_most=limit)
        assert all(len(batch) <= limit for batch in found)
        seen += [number for batch in found for number in batch]
    found, _ = batches(reader(source), offset)
    seen += [number for batch in found for number in batch]
    assert sorted(seen) == list(range(sent))


def test_a_file_that_appears_late_with_an_old_date_is_read(files):
    files.add(range(5))
    _, offset = batches(reader(files, maxOffsetsPerTrigger=3), at_most=1)
    files.add(range(5, 8), age_s=86_400)
    found, _ = batches(reader(files, maxOffsetsPerTrigger=3), offset)
    assert sorted(number for batch in found for number in batch) == [3, 4, 5, 6, 7]
    assert {3, 4} < set(found[0])


def test_the_value_of_a_folder_name_is_a_column_and_marked_files_are_passed_over(files):
    files.add([1], "source=north/a.parquet")
    files.add([2], "_temporary/b.parquet")
    files.add([3], ".c.parquet")
    stream = reader(files)
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    (batch,) = stream.read(part)
    assert batch["payload"].to_pylist() == [b"1"]


def test_a_file_that_is_being_written_waits_and_one_that_stays_so_is_an_error(files):
    files.add([1, 2], "a.parquet")
    whole = (files.folder / "a.parquet").read_bytes()
    (files.folder / "b.parquet").write_bytes(whole[:-20])
    found, offset = batches(reader(files))
    assert found == [[1, 2]]
    with pytest.raises(ConfigurationError, match=r"b\.parquet|cannot be read as Parquet"):
        batches(reader(files, settleMs=0), offset)
    files.add([3], "b.parquet")
    assert batches(reader(files, settleMs=0), offset)[0] == [[3]]


def test_files_may_go_when_they_were_read_and_not_before(files, caplog):
    files.add(range(4), "a.parquet", age_s=10)
    files.add(range(4, 9), "b.parquet")
    stream = reader(files, maxOffsetsPerTrigger=6)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert rows(stream, start, end) == [0, 1, 2, 3, 4, 5]
    (files.folder / "a.parquet").unlink()
    assert batches(reader(files), end)[0] == [[6, 7, 8]]
    with pytest.raises(StoreQueryError, match=r"1 of the files of a micro-batch were removed.*failOnDataLoss=false"):
        rows(reader(files), start, end)
    with caplog.at_level(logging.WARNING):
        assert rows(reader(files, failOnDataLoss="false"), start, end) == [4, 5]
    assert "removed before they were read" in caplog.text


def test_a_begun_file_that_goes_is_a_loss(files):
    files.add(range(9), "a.parquet")
    _, offset = batches(reader(files, maxOffsetsPerTrigger=6), at_most=1)
    (files.folder / "a.parquet").unlink()
    files.add([20], "b.parquet")
    with pytest.raises(StoreQueryError, match="removed before they were read"):
        batches(reader(files), offset)


def test_a_lip76_folder_that_is_another_one_is_noticed(tmp_path):
    source = Lip76(tmp_path / "a")
    source.add([number * PERIOD_NS for number in range(3)])
    _, offset = batches(reader(source, maxOffsetsPerTrigger=2), at_most=1)
    for name in ("data", "index"):
        (source.folder / name).unlink()
    source.add(range(400))
    source.add([PERIOD_NS])
    with pytest.raises(StoreQueryError, match="not the file it was"):
        batches(reader(source), offset)


def test_a_folder_in_an_object_store_is_followed_as_well(bucket, monkeypatch):
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)

    def add(name, numbers) -> None:
        with bucket.filesystem.open_output_stream(f"{bucket.name}/{name}") as file:
            pq.write_table(table(numbers), file)

    add("rows/source=a/1.parquet", range(5))
    source = type("Stored", (), {"scheme": "parquet", "folder": bucket.short("rows")})
    found, offset = batches(reader(source, maxOffsetsPerTrigger=3))
    add("rows/source=a/0.parquet", range(5, 7))
    assert (found, batches(reader(source), offset)[0]) == ([[0, 1, 2], [3, 4]], [[5, 6]])
