"""A LIP-76 folder: written, added to, read, damaged."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError, DecodeError
from fairway.storage.archive import ArchivedMessage
from fairway.storage.lip76 import Lip76Archive
from fairway.wire.archive import (
    ArchiveMetadata,
    IndexEntry,
    decode_index,
)
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, encode_waku_message, message_hash
from lip76_writing import (
    PERIOD_NS,
    encode_archive_message,
    encode_archive_metadata,
    encode_index,
    write_lip76,
)

TOPIC = "/app/1/team/proto"
WEEK = 2_900 * PERIOD_NS


def message(number: int, *, timestamp_ns: int | None = None, topic: str = TOPIC) -> ArchivedMessage:
    waku = WakuMessage(
        payload=b"%d" % number * 50,
        content_topic=topic,
        timestamp_ns=WEEK + number * PERIOD_NS // 10 if timestamp_ns is None else timestamp_ns,
        meta=b"m" if number % 2 else None,
    )
    shard = autoshard(topic, 1, 8) if topic.startswith("/") else ""
    return ArchivedMessage(
        message_hash=message_hash(shard, waku),
        pubsub_topic=shard,
        content_topic=topic,
        payload=waku.payload,
        version=0,
        timestamp_ns=waku.timestamp_ns,
        meta=waku.meta,
    )


def read(folder, **options) -> list[ArchivedMessage]:
    archive = pickle.loads(pickle.dumps(Lip76Archive(folder, **options)))
    return [found for part in archive.archives() for found in archive.messages(part)]


def test_written_messages_are_read_in_the_order_of_their_hashes(tmp_path):
    messages = [message(number) for number in range(35)]
    assert write_lip76(tmp_path, messages) == 4
    assert read(tmp_path) == messages


def test_each_archive_holds_a_week_of_whole_pieces(tmp_path):
    write_lip76(tmp_path, [message(number) for number in range(35)], piece_bytes=1_000)
    entries = decode_index((tmp_path / "index").read_bytes())
    assert [entry.metadata for entry in entries] == [
        ArchiveMetadata(
            from_time=WEEK + week * PERIOD_NS, to_time=WEEK + (week + 1) * PERIOD_NS - 1, content_topics=(TOPIC,)
        )
        for week in range(4)
    ]
    ends = [entry.offset + entry.pieces * 1_000 for entry in entries]
    assert [0, *ends] == [*(entry.offset for entry in entries), (tmp_path / "data").stat().st_size]
    assert read(tmp_path) == [message(number) for number in range(35)]


def test_bytes_behind_the_last_archive_are_neither_read_nor_kept(tmp_path):
    write_lip76(tmp_path, [message(1)])
    with (tmp_path / "data").open("ab") as data:
        data.write(encode_archive_message(encode_waku_message(WakuMessage(payload=b"x", content_topic=TOPIC))))
    assert read(tmp_path) == [message(1)]
    write_lip76(tmp_path, [message(25)])
    assert read(tmp_path) == [message(1), message(25)]


def foreign(folder, archive: bytes, *, offset: int = 0, pieces: int = 1, from_time: int = 5, to_time: int = 9) -> None:
    """A folder of another writer."""
    metadata = ArchiveMetadata(from_time=from_time, to_time=to_time)
    (folder / "data").write_bytes(archive)
    (folder / "index").write_bytes(encode_index([IndexEntry(metadata=metadata, offset=offset, pieces=pieces)]))


def test_lengths_in_bytes_and_padding_outside_of_the_archive_are_read(tmp_path):
    encoded = encode_waku_message(WakuMessage(payload=b"x", content_topic=TOPIC, timestamp_ns=5_500_000_000))
    archive = encode_archive_metadata(ArchiveMetadata(from_time=5, to_time=9)) + encode_archive_message(encoded)
    padded = archive + bytes(300 - len(archive))
    metadata = ArchiveMetadata(from_time=5, to_time=9)
    (tmp_path / "data").write_bytes(padded * 2)
    (tmp_path / "index").write_bytes(
        encode_index([IndexEntry(metadata=metadata, offset=offset, pieces=300) for offset in (0, 300)])
    )
    assert [found.payload for found in read(tmp_path)] == [b"x", b"x"]


@pytest.mark.parametrize("bad", [b"\xff\xff", b"\x0a\x01x"])
def test_bytes_that_are_no_message_become_a_message_of_these_bytes(tmp_path, bad):
    good = encode_waku_message(WakuMessage(payload=b"x", content_topic=TOPIC, timestamp_ns=7))
    foreign(tmp_path, encode_archive_message(bad) + encode_archive_message(good))
    shown, found = read(tmp_path)
    assert (shown.payload, shown.content_topic, shown.timestamp_ns) == (bad, "", 5_000_000_000)
    assert found.payload == b"x"


def test_a_truncated_file_gives_its_whole_messages_and_an_error(tmp_path):
    write_lip76(tmp_path, [message(number) for number in range(9)])
    size = (tmp_path / "data").stat().st_size
    with (tmp_path / "data").open("r+b") as data:
        data.truncate(len(encode_archive_message(encode_waku_message(WakuMessage(payload=bytes(100))))) + 200)
    archive = Lip76Archive(tmp_path)
    (part,) = archive.archives()
    found = []
    with pytest.raises(DecodeError, match="cut off"):
        found.extend(archive.messages(part))
    assert 0 < len(found) < 9
    assert found == [message(number) for number in range(len(found))]
    with pytest.raises(DecodeError, match="said to end"):
        list(archive.messages(replace(part, end=size)))


def test_a_folder_without_the_two_files_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="has no file 'index'"):
        Lip76Archive(tmp_path)
    (tmp_path / "index").write_bytes(b"\xff")
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DecodeError, match="WakuMessageArchiveIndex"):
        Lip76Archive(tmp_path).archives()
