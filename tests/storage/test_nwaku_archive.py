from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import DecodeError, SnapshotError
from fairway.storage.archive import time_slice
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage, message_hash

SHARD = "/waku/2/rs/1/0"
TOPIC = "/fairway/1/tests/proto"


def message(number: int, *, topic: str = TOPIC, timestamp_ns: int | None = None) -> WakuMessage:
    return WakuMessage(
        payload=b"payload %d" % number,
        content_topic=topic,
        timestamp_ns=1_760_000_000_000_000_000 + number if timestamp_ns is None else timestamp_ns,
    )


def raw(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


def test_a_message_is_read_as_it_was_written(path: Path):
    sent = WakuMessage(
        payload=b"\x00\x01", content_topic=TOPIC, version=1, timestamp_ns=1_760_000_049_999_000_000, meta=b"m"
    )
    with NwakuArchive(path) as archive:
        assert archive.append(SHARD, sent)
    with NwakuArchive(path, read_only=True) as archive:
        (row,) = archive.read()
    assert row.message_hash == message_hash(SHARD, sent)
    assert (row.pubsub_topic, row.content_topic) == (SHARD, TOPIC)
    assert (row.payload, row.version, row.meta) == (b"\x00\x01", 1, b"m")
    assert row.timestamp_ns == 1_760_000_049_999_000_000


def test_the_archive_of_a_live_nwaku_is_read_and_written_on(path: Path):
    """Its table has another order of columns than a new one of ours, and one more; its name is in lower case."""
    recorded = json.loads((Path(__file__).parents[1] / "vectors/nwaku/archive.json").read_bytes())
    row = [bytes.fromhex(value) if isinstance(value, str) else value for value in recorded["row"]]
    with closing(sqlite3.connect(path)) as database:
        for _, _, statement in recorded["schema"]:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {recorded['user_version'][0]}")
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()
    with NwakuArchive(path) as archive:
        (read,) = archive.read()
        assert archive.append(SHARD, message(1))
    sent = WakuMessage(payload=row[2], content_topic=row[1].decode(), version=row[3], timestamp_ns=row[6], meta=row[7])
    assert read.message_hash == row[5] == message_hash(row[0].decode(), sent)
    assert (read.payload, read.timestamp_ns) == (row[2], row[6])
    with NwakuArchive(path, read_only=True) as archive:
        assert {one.message_hash for one in archive.read()} == {row[5], message_hash(SHARD, message(1))}


def test_a_new_file_has_the_schema_of_a_nwaku_store(path: Path):
    NwakuArchive(path).close()
    assert raw(path, "PRAGMA user_version") == [(10,)]
    assert raw(path, "PRAGMA journal_mode") == [("wal",)]
    columns = raw(path, "SELECT name, type, \"notnull\", pk FROM pragma_table_info('Message')")
    assert columns == [
        ("messageHash", "BLOB", 1, 1),
        ("pubsubTopic", "BLOB", 1, 0),
        ("contentTopic", "BLOB", 1, 0),
        ("payload", "BLOB", 0, 0),
        ("version", "INTEGER", 1, 0),
        ("timestamp", "INTEGER", 1, 0),
        ("meta", "BLOB", 0, 0),
    ]
    assert raw(path, "SELECT wr FROM pragma_table_list('Message')") == [(1,)]
    indices = raw(path, "SELECT i.name, c.name FROM pragma_index_list('Message') i, pragma_index_info(i.name) c")
    assert ("i_ts", "timestamp") in indices


def test_values_are_stored_in_the_types_that_nwaku_binds(path: Path):
    with NwakuArchive(path) as archive:
        archive.append(SHARD, WakuMessage(content_topic=TOPIC, timestamp_ns=1))
    types = raw(
        path,
        "SELECT typeof(messageHash), typeof(pubsubTopic), typeof(contentTopic), typeof(payload),"
        " typeof(version), typeof(timestamp), typeof(meta) FROM Message",
    )
    assert types == [("blob", "blob", "blob", "null", "integer", "integer", "null")]
    with NwakuArchive(path, read_only=True) as archive:
        assert next(archive.read()).payload == b""


def test_a_hash_is_kept_once_within_a_batch_and_across_openings(path: Path):
    for _ in range(2):
        with NwakuArchive(path) as archive:
            archive.append(SHARD, message(1))
            archive.append(SHARD, message(1))
            archive.flush()
            archive.append(SHARD, message(1))
    with NwakuArchive(path) as archive:
        assert archive.count() == 1


def test_ephemeral_messages_are_not_archived(path: Path):
    with NwakuArchive(path) as archive:
        assert not archive.append(SHARD, WakuMessage(payload=b"typing", content_topic=TOPIC, ephemeral=True))
        assert archive.count() == 0


def test_a_message_without_a_timestamp_is_dated_when_it_was_received(path: Path):
    with NwakuArchive(path) as archive:
        archive.append(SHARD, WakuMessage(payload=b"x", content_topic=TOPIC), received_ns=42)
        archive.append(SHARD, message(0, timestamp_ns=7), received_ns=42)
        assert sorted(row.timestamp_ns for row in archive.read()) == [7, 42]


def test_two_writers_can_share_a_file(path: Path):
    with NwakuArchive(path) as one, NwakuArchive(path) as other:
        one.append(SHARD, message(1))
        other.append(SHARD, message(2))
        other.flush()
        one.flush()
        assert one.count() == other.count() == 2


def test_time_ranges_include_both_ends_and_pages_follow_each_other(path: Path):
    with NwakuArchive(path) as archive:
        for number in range(10):
            archive.append(SHARD, message(number, timestamp_ns=100 + number // 2))
        pages = list(archive.pages(time_slice(101, 103), page_rows=4))
    assert [len(page) for page in pages] == [4, 2]
    rows = [row for page in pages for row in page]
    assert [row.timestamp_ns for row in rows] == [101, 101, 102, 102, 103, 103]
    assert rows == sorted(rows, key=lambda row: row.cursor)


@examples(0.4)
@given(
    timestamps=st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 2**63 - 1]), max_size=40),
    count=st.integers(1, 9),
)
def test_slices_cover_every_message_exactly_once(tmp_path_factory, timestamps, count):
    with NwakuArchive(tmp_path_factory.mktemp("slices") / "store.sqlite3") as archive:
        for number, timestamp_ns in enumerate(timestamps):
            archive.append(SHARD, message(number, timestamp_ns=timestamp_ns))
        slices = archive.slices(count)
        rows = [row for part in slices for row in archive.read(part)]
        sizes = [archive.count(part) for part in slices]
    assert len(slices) <= count
    assert rows == sorted(rows, key=lambda row: row.cursor)
    assert {row.payload for row in rows} == {b"payload %d" % number for number in range(len(timestamps))}
    assert len(rows) == len(timestamps)
    assert all(size <= -(-len(timestamps) // count) for size in sizes)


def test_a_file_that_nwaku_migrated_from_an_older_schema_is_read_and_extended(path: Path):
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE message (pubsubTopic BLOB NOT NULL, contentTopic BLOB NOT NULL, payload BLOB,"
            " version INTEGER NOT NULL, id BLOB, messageHash BLOB, timestamp INTEGER NOT NULL, meta BLOB,"
            " CONSTRAINT messageIndex PRIMARY KEY (messageHash)) WITHOUT ROWID"
        )
        database.execute(
            "INSERT INTO message VALUES (?, ?, ?, 0, NULL, ?, 5, NULL)",
            (SHARD, TOPIC, b"text topics", b"k" * 32),
        )
        database.execute("PRAGMA user_version = 10")
        database.commit()
    with NwakuArchive(path) as archive:
        archive.append(SHARD, message(1))
        assert [row.payload for row in archive.read(content_topics=[TOPIC])] == [b"text topics", b"payload 1"]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(path: Path, read_only):
    path.write_bytes(b"not a database, but long enough to be looked at " * 40)
    before = path.read_bytes()
    with pytest.raises(DecodeError, match="not an archive"):
        NwakuArchive(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [True, False])
def test_another_programs_database_is_refused_and_left_alone(path: Path, read_only):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(DecodeError, match="no table 'Message'"):
        NwakuArchive(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("version", "columns"),
    [
        (8, "messageHash BLOB, timestamp INTEGER, storedAt INTEGER"),
        (11, "messageHash BLOB, timestamp INTEGER"),
    ],
)
def test_another_schema_version_is_named_in_the_error(path: Path, version, columns):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE Message ({columns})")
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SnapshotError, match=f"schema version {version}"):
        NwakuArchive(path, read_only=True)


def test_damage_inside_the_file_is_a_decode_error(path: Path):
    with NwakuArchive(path) as archive:
        for number in range(400):
            archive.append(SHARD, message(number))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xee" * (len(content) - 8192)
    path.write_bytes(content)
    with NwakuArchive(path, read_only=True) as archive, pytest.raises(DecodeError, match="damaged"):
        list(archive.read())
