"""The data source without a JVM: readers are plain objects."""

from __future__ import annotations

import pickle
import traceback
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from fairway.errors import ConfigurationError
from fairway.pipeline.sources import WakuDataSource
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage, message_hash
from iso_times import iso

SHARD = "/waku/2/rs/1/0"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.sqlite3"
    with NwakuArchive(path) as archive:
        for number in range(100):
            topic = f"/app/1/{number % 2}/proto"
            archive.append(
                f"/waku/2/rs/1/{number % 4}",
                WakuMessage(payload=b"%d" % number, content_topic=topic, timestamp_ns=1_000 + number),
            )
    return str(path)


def read(**options: str) -> list[dict]:
    reader = WakuDataSource(options).reader(None)
    rows = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            rows.extend(batch.to_pylist())
    return rows


def test_every_message_is_read_once_whatever_the_partitions(path):
    for count in ("1", "3", "7", "1000"):
        rows = read(path=path, partitions=count)
        assert sorted(int(row["payload"]) for row in rows) == list(range(100))


def test_a_row_holds_the_message_and_where_it_came_from(path):
    row = next(row for row in read(path=path) if row["payload"] == b"5")
    message = WakuMessage(payload=b"5", content_topic="/app/1/1/proto", timestamp_ns=1_005)
    assert row == {
        "message_hash": message_hash("/waku/2/rs/1/1", message),
        "pubsub_topic": "/waku/2/rs/1/1",
        "content_topic": "/app/1/1/proto",
        "payload": b"5",
        "version": 0,
        "timestamp": datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
        "timestamp_ns": 1_005,
        "meta": None,
        "rate_limit_proof": None,
        "source": path,
    }


def test_options_select_in_any_case(path):
    rows = read(
        path=path,
        SINCE=iso(1_010),
        Until=iso(1_019),
        topics="/app/1/0/proto,/app/1/9/proto",
    )
    assert sorted(int(row["payload"]) for row in rows) == [10, 12, 14, 16, 18]
    assert {row["pubsub_topic"] for row in read(path=path, pubsubTopic=SHARD)} == {SHARD}


def test_an_empty_archive_gives_no_rows(tmp_path):
    NwakuArchive(tmp_path / "empty.db").close()
    assert read(path=str(tmp_path / "empty.db")) == []


def test_a_version_beyond_a_signed_column_does_not_end_the_read(tmp_path):
    with NwakuArchive(tmp_path / "odd.db") as archive:
        archive.append(SHARD, WakuMessage(payload=b"x", content_topic="/a/1/b/proto", version=2**32 - 1))
    assert [row["version"] for row in read(path=str(tmp_path / "odd.db"))] == [2**31 - 1]


def test_wrong_options_are_named(path):
    with pytest.raises(ConfigurationError, match="path"):
        read()
    with pytest.raises(ConfigurationError, match="since is a time such as"):
        read(path=path, since="yesterday")


def test_what_spark_shows_of_an_error_is_its_sentence_and_not_how_it_came_to_that(tmp_path):
    asked = [
        ({"path": "a.db", "since": "yesterday"}, "since is a time such as"),
        ({"path": "nope:x"}, "the scheme 'nope' names no archive"),
        ({"path": str(tmp_path / "a.db")}, "there is no such file"),
    ]
    for options, sentence in asked:
        with pytest.raises(ConfigurationError, match=sentence) as caught:
            WakuDataSource(options).reader(StructType()).partitions()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert [frame.name for frame in frames[1:]] == ["wrapper"]
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
