"""The archive of a service node: what is put is found, in pages, also after a crash, within its bounds."""

import asyncio
import sqlite3
import time
from contextlib import closing

import pytest

from fairway.errors import ConfigurationError, StorageError, StoreQueryError
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service.archives import MAX_AHEAD_NS, Retention
from fairway.service.open_archive import open_archive
from fairway.service.options import ServiceOptions
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, until

SHARD = "/waku/2/rs/16/0"
NOW_NS = 1_760_000_000_000_000_000


def routed(number, topic="/a/1/b/proto", size=50, **fields):
    message = WakuMessage(
        payload=number.to_bytes(8, "big") * (size // 8), content_topic=topic, timestamp_ns=NOW_NS + number, **fields
    )
    return RoutedMessage.of(SHARD, message)


@pytest.fixture(params=["memory:", "sqlite:", "path"])
def address(request, tmp_path):
    path = tmp_path / "archive.db"
    return {"memory:": "memory:", "sqlite:": f"sqlite:{path}", "path": str(path)}[request.param]


KEEP_ALL = Retention(max_age_s=None)


def with_archive(address, work, retention=KEEP_ALL):
    async def run():
        archive = await open_archive(address, retention)
        try:
            return await work(archive)
        finally:
            await archive.close()

    return asyncio.run(run())


def test_stored_messages_are_found_at_once_and_page_by_page(address):
    async def work(archive):
        for number in range(250):
            archive.put(routed(number), NOW_NS)
        found, cursor = [], None
        for _ in range(10):
            page = await archive.page(StoreQuery(pubsub_topic=SHARD, page_size=100), cursor)
            found += page.messages
            cursor = page.cursor
            if cursor is None:
                break
        return found

    assert [message.message_hash for message in with_archive(address, work)] == [
        routed(number).message_hash for number in range(250)
    ]


def test_messages_are_found_by_hash_topic_and_time(address):
    async def work(archive):
        for number in range(20):
            archive.put(routed(number, topic=f"/a/1/{number % 2}/proto"), NOW_NS)
        by_hash = await archive.page(StoreQuery(message_hashes=(routed(3, topic="/a/1/1/proto").message_hash,)))
        by_topic = await archive.page(StoreQuery(content_topics=("/a/1/0/proto",), pubsub_topic=SHARD))
        by_time = await archive.page(StoreQuery(start_ns=NOW_NS + 5, end_ns=NOW_NS + 8))
        return [len(page.messages) for page in (by_hash, by_topic, by_time)]

    assert with_archive(address, work) == [1, 10, 3]


def test_the_ids_of_the_newest_messages_are_in_order_and_have_their_topics(address):
    async def work(archive):
        for number in reversed(range(20)):
            archive.put(routed(number, topic=f"/a/1/{number % 2}/proto"), NOW_NS)
        return await archive.newest_ids(NOW_NS + 5, 100), await archive.newest_ids(NOW_NS, 3)

    since, newest = with_archive(address, work)
    expected = [routed(number, topic=f"/a/1/{number % 2}/proto") for number in range(5, 20)]
    assert [tuple(one) for one in since] == [
        (one.message.timestamp_ns, one.message_hash, SHARD, one.message.content_topic) for one in expected
    ]
    assert newest == since[-3:]


def test_an_unknown_cursor_raises_an_error(address):
    async def work(archive):
        with pytest.raises(StoreQueryError, match="no message"):
            await archive.page(StoreQuery(), b"c" * 32)

    with_archive(address, work)


def test_an_archive_that_is_closed_answers_nothing_and_closes_twice(tmp_path):
    async def work(archive):
        archive.put(routed(1), NOW_NS)
        await archive.close()
        with pytest.raises(StoreQueryError, match="closed"):
            await archive.page(StoreQuery())

    with_archive(str(tmp_path / "archive.db"), work)
    with NwakuArchive(tmp_path / "archive.db", read_only=True) as archive:
        assert archive.count() == 1


def test_nwaku_and_the_pipeline_read_the_file(tmp_path):
    async def work(archive):
        archive.put(routed(1, meta=b"m"), NOW_NS)
        archive.put(routed(2), NOW_NS)
        archive.put(routed(2), NOW_NS)
        return await archive.statistics()

    statistics = with_archive(str(tmp_path / "archive.db"), work)
    assert statistics.dropped == 0
    with NwakuArchive(tmp_path / "archive.db", read_only=True) as archive:
        assert [message.message_hash for message in archive.read()] == [
            routed(1, meta=b"m").message_hash,
            routed(2).message_hash,
        ]


def test_messages_that_cannot_be_written_are_written_later(tmp_path):
    path = tmp_path / "archive.db"

    async def work(archive):
        archive.put(routed(1), NOW_NS)
        await archive.page(StoreQuery())
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE Message RENAME TO Hidden")
            archive.put(routed(2), NOW_NS)
            with pytest.raises(StorageError, match="no such table"):
                await archive.page(StoreQuery())
            other.execute("ALTER TABLE Hidden RENAME TO Message")
        return len((await archive.page(StoreQuery())).messages)

    assert with_archive(str(path), work) == 2


@pytest.mark.parametrize("address", ["", "memory:x", "mysql://host/db", "sqlite:", "nowhere:thing"])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ConfigurationError, match="no archive"):
        asyncio.run(open_archive(address))


def test_the_address_of_an_archive_keeps_its_password_to_itself():
    with pytest.raises(ConfigurationError, match="no archive") as refused:
        asyncio.run(open_archive("mysql://alice:s3cr3t@host/db"))
    assert "s3cr3t" not in str(refused.value)
    assert "s3cr3t" not in repr(ServiceOptions(archive="postgresql://alice:s3cr3t@host/db"))


def test_a_file_that_is_no_archive_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look at" * 10)
    with pytest.raises(Exception, match=r"notes\.txt"):
        asyncio.run(open_archive(str(path)))
    assert path.read_text().startswith("not a database")


@pytest.mark.parametrize("kind", ["memory:", "sqlite:"])
def test_messages_dated_more_than_an_hour_ahead_are_dropped(kind, tmp_path):
    async def work(archive):
        now_ns = time.time_ns()
        good = [now_ns - 5, now_ns, now_ns + MAX_AHEAD_NS]
        for timestamp_ns in [now_ns + MAX_AHEAD_NS + 60_000_000_000, 2**63 - 1, *good]:
            archive.put(routed(timestamp_ns - NOW_NS, size=0), now_ns)
        page = await archive.page(StoreQuery(pubsub_topic=SHARD))
        assert [one.message.timestamp_ns for one in page.messages] == good
        assert (await archive.statistics()).dropped == 2

    with_archive("memory:" if kind == "memory:" else str(tmp_path / "archive.db"), work)


# --- retention


def fill(path, count, size=1_000):
    with NwakuArchive(path) as archive:
        for number in range(count):
            archive.append(SHARD, routed(number, size=size).message)


def test_only_messages_beyond_the_age_are_removed(tmp_path):
    fill(tmp_path / "archive.db", 100)
    upkeep = NwakuUpkeep(tmp_path / "archive.db", max_age_s=1e-9 * 60, max_bytes=None)
    assert upkeep.enforce(NOW_NS + 100) == 40
    assert upkeep.enforce(NOW_NS + 100) == 0
    assert upkeep.size()[0] == 60
    upkeep.close()
    with NwakuArchive(tmp_path / "archive.db", read_only=True) as archive:
        assert min(message.timestamp_ns for message in archive.read()) == NOW_NS + 40


@pytest.mark.parametrize(("count", "size"), [(12_000, 200), (3_000, 3_000), (300, 30_000), (60, 149_000)])
def test_of_a_file_that_is_too_large_the_newest_four_fifths_are_kept(tmp_path, count, size):
    fill(tmp_path / "archive.db", count, size=size)
    upkeep = NwakuUpkeep(tmp_path / "archive.db", max_age_s=None, max_bytes=None)
    upkeep.index_topics()
    _, full = upkeep.size()
    upkeep.close()
    upkeep = NwakuUpkeep(tmp_path / "archive.db", max_age_s=None, max_bytes=full - 1)
    removed = upkeep.enforce(NOW_NS)
    messages, after = upkeep.size()
    assert messages == count - removed
    assert 0.75 * count <= messages <= 0.86 * count
    assert after < full
    assert upkeep.enforce(NOW_NS) == 0
    upkeep.close()
    with NwakuArchive(tmp_path / "archive.db", read_only=True) as archive:
        kept = [message.timestamp_ns - NOW_NS for message in archive.read()]
    assert kept == list(range(removed, count))


def test_a_node_removes_what_is_too_old_when_it_starts(tmp_path):
    fill(tmp_path / "archive.db", 10)

    async def work(archive):
        async with asyncio.timeout(PATIENCE_S):
            while (await archive.statistics()).messages:  # noqa: ASYNC110 - a figure has no event
                await asyncio.sleep(0)

    with_archive(str(tmp_path / "archive.db"), work, Retention(max_age_s=60, notice_s=0))


def test_without_a_word_of_the_operator_old_messages_are_announced_and_kept(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("fairway.service.upkeep.EVERY_S", 0.01)
    fill(tmp_path / "archive.db", 10)

    async def work(archive):
        await until(lambda: "older than" in caplog.text)
        await asyncio.sleep(0.1)
        page = await archive.page(StoreQuery(page_size=100))
        assert len(page.messages) == 10

    with_archive(str(tmp_path / "archive.db"), work, Retention())
    assert "archive.db has 10 messages older than 30 days, the oldest of 2025-10-09 08:53 UTC." in caplog.text
    assert "--keep" in caplog.text


def test_an_archive_that_cannot_be_written_shows_its_problem(tmp_path):
    path = tmp_path / "archive.db"

    async def work(archive):
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TRIGGER full BEFORE INSERT ON Message BEGIN SELECT RAISE(FAIL, 'disk full'); END")
            archive.put(routed(1), NOW_NS)
            await until(lambda: archive.problem)
            assert archive.problem == "the archive failed: disk full"
            assert (await archive.statistics()).failing == 1
            other.execute("DROP TRIGGER full")
            await until(lambda: archive.problem is None)
            assert (await archive.statistics()).failing == 0

    with_archive(str(path), work, KEEP_ALL)


@pytest.mark.parametrize("wrong", [{"max_age_s": 0}, {"max_bytes": 10}])
def test_a_retention_that_keeps_nothing_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Retention(**wrong)
