"""A copy of a store or an archive is its state at one moment, although writes continue."""

from __future__ import annotations

import stat

import pytest

from fairway.errors import ConfigurationError, StorageError, StoreCorruptError
from fairway.rln.message_ids import MessageIds
from fairway.storage.backup import back_up
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.sqlite_store import SqliteStore
from fairway.wire.waku_message import WakuMessage


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy.db"


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_a_store_in_use_is_copied_and_the_copy_is_a_store_of_its_own(path, copy, make, keeper):
    kept = keeper(SqliteStore(path))
    kept.keep(requests=(make.request(1),), delivered=((1, make.received(1)),))
    back_up(path, copy)
    kept.keep(requests=(make.request(2),))
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert names(copy.parent) == ["alice.db", "alice.db-shm", "alice.db-wal", "alice.db.lock", "copy.db"]
    copied = keeper(SqliteStore(copy))
    assert copied.stored.inbox[0][1].payload == b"payload 1"
    assert copied.store.request("request-1") is not None
    assert copied.store.request("request-2") is None
    assert kept.store.request("request-2") is not None


def test_an_archive_is_copied(path, copy):
    with NwakuArchive(path) as archive:
        archive.append("/waku/2/rs/1/0", WakuMessage(payload=b"a", content_topic="/a/1/b/proto", timestamp_ns=1))
        archive.flush()
        back_up(path, copy)
    with NwakuArchive(copy, read_only=True) as copied:
        assert copied.count() == 1


@pytest.mark.parametrize("name", ["copy.db", "copy.db-wal"])
def test_no_file_is_overwritten_and_no_old_log_gets_a_new_file(path, copy, make, keeper, name):
    keeper(SqliteStore(path))
    there = copy.with_name(name)
    there.write_bytes(b"precious")
    with pytest.raises(ConfigurationError, match=f"{name} exists"):
        back_up(path, copy)
    assert there.read_bytes() == b"precious"


def test_message_ids_are_not_copied(path, copy):
    MessageIds.create(path, first_epoch=0).close()
    with pytest.raises(ConfigurationError, match="gives away the secret"):
        back_up(path, copy)
    assert names(path.parent) == ["alice.db"]


def test_a_missing_file_is_named(path, copy):
    with pytest.raises(StorageError, match=r"there is no file .*alice\.db"):
        back_up(path, copy)


@pytest.mark.parametrize("damage", ["all", "page"])
def test_a_damaged_file_gives_no_copy(path, copy, make, keeper, damage):
    kept = keeper(SqliteStore(path))
    kept.keep(changes=tuple(make.put(f"{n}", b"x" * 1_000) for n in range(100)))
    kept.store.close()
    content = bytearray(path.read_bytes())
    start = 0 if damage == "all" else len(content) // 2 // 4_096 * 4_096
    content[start : start + 4_096] = b"y" * 4_096
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError):
        back_up(path, copy)
    assert not copy.exists()
