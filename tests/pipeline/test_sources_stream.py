"""The stream reader, driven as Spark drives it, without a JVM."""

from __future__ import annotations

import json
import logging
import pickle

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from examples import examples
from fairway.errors import StoreQueryError
from fairway.pipeline.sources.options import SourceOptions
from fairway.pipeline.sources.stream import WakuStreamReader
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from iso_times import iso

SHARD = "/waku/2/rs/1/0"
NOW_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000


def fill(path, numbers, *, timestamp=lambda number: NOW_NS - 100 * SECOND + number) -> None:
    with NwakuArchive(path) as archive:
        for number in numbers:
            archive.append(
                SHARD,
                WakuMessage(payload=b"%d" % number, content_topic="/app/1/team/proto", timestamp_ns=timestamp(number)),
            )


def drop(path, numbers) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as database, database:
        database.executemany("DELETE FROM Message WHERE payload = ?", [(b"%d" % number,) for number in numbers])


def reader(path, *, now_ns=NOW_NS, **options) -> WakuStreamReader:
    return WakuStreamReader(SourceOptions.parse({"path": str(path), **options}), now_ns=lambda: now_ns)


def rows(stream: WakuStreamReader, start: dict, end: dict) -> list[int]:
    """Read one micro-batch as tasks would: each with a copy of reader and partition."""
    parts = stream.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    copies = pickle.loads(pickle.dumps(parts))
    return [int(row["payload"]) for part in copies for batch in stream.read(part) for row in batch.to_pylist()]


def batches(
    stream: WakuStreamReader, start: dict | None = None, *, at_most: int = 1_000
) -> tuple[list[list[int]], dict]:
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


def test_micro_batches_have_at_most_so_many_messages(tmp_path):
    fill(tmp_path / "a.db", range(25))
    found, _ = batches(reader(tmp_path / "a.db", maxOffsetsPerTrigger="10", partitions="3"))
    assert found == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


def test_a_micro_batch_waits_for_its_least_messages_until_the_longest_delay(tmp_path):
    now = [NOW_NS]
    given = {"minOffsetsPerTrigger": "4", "maxTriggerDelay": "1m", "settleMs": "0"}
    options = SourceOptions.parse({"path": str(tmp_path / "a.db"), **given})
    stream = WakuStreamReader(options, now_ns=lambda: now[0])
    fill(tmp_path / "a.db", range(1))
    found, offset = batches(stream)
    assert found == [[0]]  # the first one of a start, as in Kafka's source
    fill(tmp_path / "a.db", range(1, 4))
    assert batches(stream, offset)[0] == []
    now[0] += 59 * SECOND
    assert batches(stream, offset)[0] == []
    now[0] += SECOND
    found, offset = batches(stream, offset)
    assert found == [[1, 2, 3]]
    fill(tmp_path / "a.db", range(4, 8))
    assert batches(stream, offset)[0] == [[4, 5, 6, 7]]


def test_the_least_messages_of_a_micro_batch_go_with_the_most(tmp_path):
    now = [NOW_NS]
    given = {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "3"}
    stream = WakuStreamReader(SourceOptions.parse({"path": str(tmp_path / "a.db"), **given}), now_ns=lambda: now[0])
    fill(tmp_path / "a.db", range(7))
    found, offset = batches(stream)
    assert found == [[0, 1, 2], [3, 4, 5]]
    # A trigger of what is there, and one of all that is available now, do not wait.
    assert stream.latestOffset(offset, ReadAllAvailable()) != offset
    stream.prepareForTriggerAvailableNow()
    assert batches(stream, offset)[0] == [[6]]


def test_one_message_is_enough_for_a_least_of_one(tmp_path):
    fill(tmp_path / "a.db", range(3))
    stream = reader(tmp_path / "a.db", minOffsetsPerTrigger="1", maxOffsetsPerTrigger="1")
    assert batches(stream)[0] == [[0], [1], [2]]


def test_without_a_limit_everything_is_one_micro_batch(tmp_path):
    fill(tmp_path / "a.db", range(25))
    stream = reader(tmp_path / "a.db")
    assert isinstance(stream.getDefaultReadLimit(), ReadAllAvailable)
    assert batches(stream)[0] == [list(range(25))]


def test_a_micro_batch_that_is_replayed_has_the_same_messages_though_others_came(tmp_path):
    fill(tmp_path / "a.db", range(10))
    stream = reader(tmp_path / "a.db")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(6))
    before = rows(stream, start, end)
    fill(tmp_path / "a.db", range(10, 20))
    assert rows(reader(tmp_path / "a.db"), start, end) == before == list(range(6))


def test_what_is_younger_than_it_takes_to_settle_waits(tmp_path):
    fill(tmp_path / "a.db", [1], timestamp=lambda _: NOW_NS - 31 * SECOND)
    fill(tmp_path / "a.db", [2], timestamp=lambda _: NOW_NS - 29 * SECOND)
    found, offset = batches(reader(tmp_path / "a.db"))
    fill(tmp_path / "a.db", [3], timestamp=lambda _: NOW_NS - 29 * SECOND - 1)  # arrives later than it was made
    assert found == [[1]]
    assert batches(reader(tmp_path / "a.db", now_ns=NOW_NS + SECOND), offset)[0] == [[3, 2]]


def test_a_message_that_claims_to_be_from_the_future_does_not_carry_the_stream_past_the_others(tmp_path):
    fill(tmp_path / "a.db", [1, 2])
    fill(tmp_path / "a.db", [9], timestamp=lambda _: 2**63 - 1)
    stream = reader(tmp_path / "a.db", settleMs="0")
    found, offset = batches(stream)
    fill(tmp_path / "a.db", [3], timestamp=lambda _: NOW_NS)
    assert found == [[1, 2]]
    assert batches(stream, offset)[0] == [[3]]
    latest = stream.reportLatestOffset()
    assert latest is not None
    assert latest["timestamp"] == NOW_NS


def test_available_now_ends_at_what_was_there_when_it_began(tmp_path):
    fill(tmp_path / "a.db", range(5))
    now = [NOW_NS]
    options = SourceOptions.parse({"path": str(tmp_path / "a.db"), "settleMs": "0", "maxOffsetsPerTrigger": "4"})
    stream = WakuStreamReader(options, now_ns=lambda: now[0])
    stream.prepareForTriggerAvailableNow()
    now[0] += 60 * SECOND
    fill(tmp_path / "a.db", [7], timestamp=lambda _: NOW_NS + SECOND)
    assert batches(stream)[0] == [[0, 1, 2, 3], [4]]


def test_a_stream_begins_and_ends_where_it_is_told(tmp_path):
    fill(tmp_path / "a.db", range(10))
    first = NOW_NS - 100 * SECOND
    times = {"since": iso(first + 3), "until": iso(first + 6)}
    assert batches(reader(tmp_path / "a.db", **times))[0] == [[3, 4, 5, 6]]
    middle = reader(tmp_path / "a.db").latestOffset(reader(tmp_path / "a.db").initialOffset(), ReadMaxRows(4))
    assert batches(reader(tmp_path / "a.db", startingOffsets=json.dumps(middle)))[0] == [[4, 5, 6, 7, 8, 9]]
    assert batches(reader(tmp_path / "a.db", endingOffsets=json.dumps(middle)))[0] == [[0, 1, 2, 3]]


def test_latest_begins_with_what_comes_after(tmp_path):
    fill(tmp_path / "a.db", range(10))
    stream = reader(tmp_path / "a.db", startingOffsets="latest")
    found, offset = batches(stream)
    assert found == []
    fill(tmp_path / "a.db", [11], timestamp=lambda _: NOW_NS)
    assert batches(reader(tmp_path / "a.db", now_ns=NOW_NS + 31 * SECOND), offset)[0] == [[11]]


def test_messages_that_may_have_been_dropped_unread_stop_the_stream(tmp_path):
    fill(tmp_path / "a.db", range(10))
    _, offset = batches(reader(tmp_path / "a.db", maxOffsetsPerTrigger="4"), at_most=1)
    drop(tmp_path / "a.db", range(3))
    assert batches(reader(tmp_path / "a.db"), offset)[0] == [[4, 5, 6, 7, 8, 9]]
    drop(tmp_path / "a.db", range(6))
    with pytest.raises(StoreQueryError, match="failOnDataLoss=false"):
        batches(reader(tmp_path / "a.db"), offset)


def test_or_warn_if_that_is_asked_for(tmp_path, caplog):
    fill(tmp_path / "a.db", range(10))
    _, offset = batches(reader(tmp_path / "a.db", maxOffsetsPerTrigger="4"), at_most=1)
    drop(tmp_path / "a.db", range(6))
    with caplog.at_level(logging.WARNING):
        assert batches(reader(tmp_path / "a.db", failOnDataLoss="false"), offset)[0] == [[6, 7, 8, 9]]
    assert "may have been dropped unread" in caplog.text


@examples(0.3)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), max_size=8), st.integers(1, 5), st.booleans()), min_size=1, max_size=6
    )
)
def test_nothing_is_skipped_or_doubled_however_messages_come_and_runs_end(tmp_path_factory, steps):
    """Messages of few timestamps come in any number between runs, which end after a while or in mid-batch."""
    path = tmp_path_factory.mktemp("stream") / "a.db"
    fill(path, [])
    offset, seen, sent = None, [], 0
    for minute, (stamps, limit, crash) in enumerate(steps):
        base = NOW_NS + minute * 60 * SECOND
        fill(
            path,
            range(sent, sent + len(stamps)),
            timestamp=lambda number, base=base, sent=sent, stamps=stamps: base + stamps[number - sent],
        )
        sent += len(stamps)
        stream = reader(path, now_ns=base + 40 * SECOND, maxOffsetsPerTrigger=str(limit))
        offset = stream.initialOffset() if offset is None else offset
        if crash:  # planned and read, but its results were lost with the process
            rows(stream, offset, stream.latestOffset(offset, stream.getDefaultReadLimit()))
            continue
        found, offset = batches(stream, offset)
        seen += [number for batch in found for number in batch]
    found, _ = batches(reader(path, now_ns=NOW_NS + 10**6 * SECOND), offset)
    seen += [number for batch in found for number in batch]
    assert sorted(seen) == list(range(sent))
