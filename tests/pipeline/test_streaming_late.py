"""Messages that reach an archive after a stream has read past their time are found, each once."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.sources.options import offset_of, selection_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.streaming import StreamOptions, late
from fairway.pipeline.streaming.folder import RECORD, StreamFolder
from fairway.storage.archive import ArchiveCursor
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.units import NS_PER_MS
from fairway.wire.waku_message import WakuMessage, message_hash
from rest_store import archived, rest_store

SHARD = "/waku/2/rs/1/0"
HOUR_MS = 3_600_000
EVERYTHING = StreamOptions()
BY_TOPIC = StreamOptions(tables=RunOptions(selection=selection_of(topics_pattern="/late/1/.*")))


def sent(time_ms: int, topic: str = "/late/1/a/proto") -> WakuMessage:
    return WakuMessage(payload=b"%d" % time_ms, content_topic=topic, timestamp_ns=time_ms * NS_PER_MS)


def hash_of(time_ms: int) -> bytes:
    return message_hash(SHARD, sent(time_ms))


class Followed:
    """A stream of one archive, with the micro-batches of Spark made by hand."""

    def __init__(self, folder: StreamFolder, archive: NwakuArchive, options: StreamOptions) -> None:
        self.folder, self.archive, self.options = folder, archive, options

    def store(self, *times_ms: int) -> None:
        for time_ms in times_ms:
            self.archive.append(SHARD, sent(time_ms))
        self.archive.flush()

    def record(self, times_ms, *, reached_ms: int, **more: object) -> None:
        """Record the messages of some times, as a micro-batch that reached a message."""
        number = self.folder.recorded.last() + 1
        rows = [
            {"message_hash": hash_of(time_ms), "timestamp_ns": time_ms * NS_PER_MS, "source": "a"} | more
            for time_ms in times_ms
        ]
        self.folder.recorded.append_rows(pa.Table.from_pylist(rows, ARROW_SCHEMA))
        place = ArchiveCursor(reached_ms * NS_PER_MS, hash_of(reached_ms))
        log = self.folder.checkpoint(RECORD) / "offsets" / str(number)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("\n".join(["v1", "{}", json.dumps(offset_of(place))]))

    def found(self, uri: str | None = None) -> list[int]:
        """Look back, and return the times of the messages that were found."""
        before = self.folder.late.count()
        sources = parse_sources([f"a={uri or f'sqlite:{self.archive.path}'}"])
        count = late.look_back(self.folder, sources, self.options, None)
        rows = self.folder.late.rows(-1, self.folder.late.last()).to_pylist()
        assert len(rows) == before + count
        return sorted(int(row["payload"]) for row in rows[before:])


@contextmanager
def following(tmp_path, options: StreamOptions):
    with NwakuArchive(tmp_path / "a.db") as archive:
        sources = parse_sources([f"a=sqlite:{tmp_path / 'a.db'}"])
        folder = StreamFolder.open_for(tmp_path / "live", sources, options, None)
        try:
            yield Followed(folder, archive, options)
        finally:
            folder.close()


@pytest.mark.parametrize("options", [EVERYTHING, BY_TOPIC], ids=["counted", "by topic"])
def test_late_messages_are_found_once_and_those_that_the_stream_will_read_are_not(tmp_path, monkeypatch, options):
    monkeypatch.setattr(late, "PART_MESSAGES", 3)
    with following(tmp_path, options) as stream:
        stream.store(*range(100, 200, 10))
        assert stream.found() == []
        # Before the stream began the archive had older messages, which it has removed since.
        stream.record(range(50, 200, 10), reached_ms=190)
        assert stream.found() == []
        stream.store(105, 155, 190, 205)
        assert stream.found() == [105, 155]
        assert stream.found() == []
        stream.store(106)
        assert stream.found() == [106]
        stream.record([105, 106, 155, 205], reached_ms=205)
        assert stream.found() == []
        stream.store(204, 206)
        assert stream.found() == [204]


def test_a_quiet_selection_finds_late_messages_behind_the_last_one_that_it_chose(tmp_path):
    with following(tmp_path, BY_TOPIC) as stream:
        stream.store(100)
        stream.archive.append(SHARD, sent(300, "/other/1/a/proto"))
        stream.record([100], reached_ms=300)
        stream.store(200)
        assert stream.found() == [200]


@pytest.mark.parametrize(
    ("options", "late_ms", "found"),
    [
        (EVERYTHING, None, [100, 10 * HOUR_MS - 100]),
        (EVERYTHING, HOUR_MS, [10 * HOUR_MS - 100]),
        (EVERYTHING, 0, []),
        (BY_TOPIC, None, [10 * HOUR_MS - 100]),
        (BY_TOPIC, 20 * HOUR_MS, [100, 10 * HOUR_MS - 100]),
    ],
)
def test_messages_of_a_certain_age_are_looked_for(tmp_path, options, late_ms, found):
    with following(tmp_path, replace(options, late_ms=late_ms)) as stream:
        stream.store(50, 10 * HOUR_MS)
        stream.record([50, 10 * HOUR_MS], reached_ms=10 * HOUR_MS)
        stream.store(100, 10 * HOUR_MS - 100)
        assert stream.found() == found


def test_a_row_without_a_time_of_its_own_is_recognised_by_its_hash(tmp_path):
    with following(tmp_path, BY_TOPIC) as stream:
        stream.store(100, 300)
        stream.record([100, 300], reached_ms=300)
        stream.archive.append("", sent(250), hash_of(250))
        stream.record([250], reached_ms=300, timestamp_ns=120 * NS_PER_MS)
        assert stream.found() == []


def test_a_node_returns_the_messages_of_the_last_hour_again(tmp_path):
    times = [HOUR_MS // 10 * number for number in range(40)]
    messages = [archived(sent(time), SHARD) for time in times]
    with following(tmp_path, EVERYTHING) as stream, rest_store(messages) as store:
        address = store.uri
        stream.record([time for time in times if time not in times[3::32]], reached_ms=times[-1])
        assert stream.found(address) == [times[35]]
        assert stream.found(address) == []
        stream.options = replace(EVERYTHING, late_ms=4 * HOUR_MS)
        assert stream.found(address) == [times[3]]
