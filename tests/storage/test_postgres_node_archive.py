"""A service node's archive in PostgreSQL: nwaku's layout, written, read, looked after, against a real server."""

from __future__ import annotations

import asyncio
import time

import pytest

from fairway.errors import SnapshotError, StorageError
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service.open_archive import open_archive
from fairway.storage import postgres_layout as layout
from fairway.storage.postgres_archive import PostgresArchive
from fairway.storage.postgres_writer import PostgresUpkeep, PostgresWriter
from fairway.wire.waku_message import WakuMessage
from patience import until

psycopg = pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")

SHARD = "/waku/2/rs/16/0"
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def database(postgres):
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS messages, messages_lookup, version")
        yield connection


def routed(number, topic="/a/1/b/proto", timestamp_ns=None, shard=SHARD, **fields):
    message = WakuMessage(
        payload=number.to_bytes(4, "big") * 10,
        content_topic=topic,
        timestamp_ns=time.time_ns() if timestamp_ns is None else timestamp_ns,
        **fields,
    )
    return RoutedMessage.of(shard, message)


def with_archive(server, work, retention=None):
    async def run():
        archive = await open_archive(server.uri, retention)
        try:
            return await work(archive)
        finally:
            await archive.close()

    return asyncio.run(run())


async def all_pages(archive, query):
    # A query waits two seconds for what is being written, and no longer.
    while (await archive.statistics()).waiting:  # noqa: ASYNC110 - an archive tells nobody when it has written all
        await asyncio.sleep(0.005)
    found, cursor = [], None
    for _ in range(1_000):
        page = await archive.page(query, cursor)
        assert len(page.messages) <= query.page_size
        found = [*page.messages, *found] if query.newest_first else [*found, *page.messages]
        cursor = page.cursor
        if cursor is None:
            return [message.message_hash for message in found]
    raise AssertionError("the pages do not end")


def test_written_messages_are_found_and_read_by_the_archive_of_the_pipeline(postgres, database):
    sent = [routed(1, meta=b"m", version=1), routed(2), routed(2, ephemeral=True)]

    async def work(archive):
        for message in (*sent, sent[0]):
            archive.put(message, time.time_ns())
        page = await archive.page(StoreQuery(pubsub_topic=SHARD))
        return page.messages, await archive.statistics()

    found, statistics = with_archive(postgres, work)
    assert [message.message for message in found] == [sent[0].message, sent[1].message]
    assert [message.message_hash for message in found] == [message.message_hash for message in sent[:2]]
    assert (statistics.dropped, statistics.waiting, statistics.queries) == (0, 0, 1)
    with PostgresArchive(postgres.uri) as archive:
        ((first, second),) = archive.pages()
    assert (first.payload, first.meta, second.meta) == (sent[0].message.payload, b"m", None)
    assert database.execute("SELECT version FROM version").fetchall() == [(7,)]
    assert database.execute("SELECT count(*) FROM messages_lookup").fetchone() == (2,)


def test_the_ids_of_the_newest_messages_are_in_order_and_have_their_topics(postgres, database):
    now_ns = time.time_ns()
    sent = [routed(number, f"/a/1/{number}/proto", now_ns - number * HOUR_NS // 2) for number in range(9)]

    async def work(archive):
        for message in sent:
            archive.put(message, now_ns)
        return await archive.newest_ids(now_ns - 2 * HOUR_NS, 100), await archive.newest_ids(0, 3)

    since, newest = with_archive(postgres, work)
    assert [tuple(one) for one in since] == [
        (one.message.timestamp_ns, one.message_hash, SHARD, one.message.content_topic) for one in reversed(sent[:5])
    ]
    assert newest == since[-3:]


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_are_what_a_naive_reading_gives(postgres, database, newest_first, rng):
    now_ns = time.time_ns()
    topics = [f"/a/1/{number}/proto" for number in range(4)]
    sent = [
        routed(
            number,
            rng.choice(topics),
            now_ns - rng.choice([1, 1, 200]) * rng.randrange(30) * HOUR_NS // 10,  # hours, and weeks
            rng.choice([SHARD, SHARD + "1"]),
        )
        for number in range(150)
    ]
    queries = [
        StoreQuery(
            pubsub_topic=rng.choice(["", SHARD]),
            content_topics=tuple(rng.sample(topics, rng.randrange(4))),
            start_ns=rng.choice([None, now_ns - 2 * HOUR_NS]),
            end_ns=rng.choice([None, now_ns - HOUR_NS]),
            newest_first=newest_first,
            page_size=rng.choice([1, 7, 100]),
        )
        for _ in range(12)
    ] + [StoreQuery(message_hashes=tuple(m.message_hash for m in sent[:9]), page_size=4, newest_first=newest_first)]

    def naive(query):
        chosen = [
            (message.message.timestamp_ns, message.message_hash)
            for message in sent
            if message.message_hash in query.message_hashes
            or (
                not query.message_hashes
                and query.pubsub_topic in {"", message.pubsub_topic}
                and (not query.content_topics or message.message.content_topic in query.content_topics)
                and (query.start_ns is None or message.message.timestamp_ns >= query.start_ns)
                and (query.end_ns is None or message.message.timestamp_ns < query.end_ns)
            )
        ]
        return [message_hash for _, message_hash in sorted(chosen)]

    async def work(archive):
        for message in sent:
            archive.put(message, now_ns)
        return [await all_pages(archive, query) for query in queries]

    assert with_archive(postgres, work) == [naive(query) for query in queries]


def test_timestamps_that_senders_choose_create_few_partitions(postgres, database):
    now_ns = time.time_ns()
    far = [1, 2**62, -5, now_ns + 2 * HOUR_NS, now_ns - 32 * 24 * HOUR_NS, 2**63 - 1]
    near = [now_ns - 30 * 24 * HOUR_NS, now_ns - HOUR_NS, now_ns]
    writer = PostgresWriter(postgres.uri)
    writer.prepare()
    entries = [
        (SHARD, message.message, message.message_hash, now_ns)
        for message in (routed(number, timestamp_ns=stamp) for number, stamp in enumerate([*far, *near]))
    ]
    assert writer.write(entries) == len(far)
    assert writer.write(entries) == len(far)
    writer.close()
    kept = layout.partitions(database)
    assert len(kept) <= len(near) + 1
    assert all(partition.end_ns - partition.start_ns <= HOUR_NS for partition in kept)
    assert all(
        partition.name == f"messages_{partition.start_ns // 10**9}_{partition.end_ns // 10**9}" for partition in kept
    )
    assert writer.added == len(near)


def test_messages_that_the_tables_cannot_hold_are_dropped_alone(postgres, database):
    async def work(archive):
        wrong = [routed(1, topic="/a\0/1/b/proto"), routed(2, topic="/" + "x" * 3_000), routed(3, version=2**32 - 1)]
        for message in (*wrong, routed(4)):
            archive.put(message, time.time_ns())
        found = await archive.page(StoreQuery())
        none = await archive.page(StoreQuery(content_topics=("/a\0/1/b/proto",)))
        return len(found.messages), len(none.messages), (await archive.statistics()).dropped

    assert with_archive(postgres, work) == (1, 0, 3)


def test_old_partitions_are_dropped_whole_and_the_present_one_is_kept(postgres, database):
    now_ns = time.time_ns()
    writer = PostgresWriter(postgres.uri)
    writer.prepare()
    stamps = [now_ns - hours * HOUR_NS for hours in (0, 3, 8, 20)]
    messages = [routed(number, timestamp_ns=stamp) for number, stamp in enumerate(stamps)]
    writer.write([(SHARD, message.message, message.message_hash, now_ns) for message in messages])
    by_age = PostgresUpkeep(postgres.uri, max_age_s=6 * 3_600, max_bytes=None)
    assert (by_age.size()[0], by_age.enforce(now_ns), by_age.enforce(now_ns), by_age.size()[0]) == (4, 2, 0, 2)
    assert database.execute("SELECT count(*) FROM messages_lookup").fetchone() == (2,)
    by_size = PostgresUpkeep(postgres.uri, max_age_s=None, max_bytes=1)
    assert by_size.enforce(now_ns) == 1
    assert by_size.size()[0] == 1
    # The writer knows the partition that went, and makes it again.
    with pytest.raises(StorageError):
        writer.write([(SHARD, messages[1].message, messages[1].message_hash, now_ns)])
    assert writer.write([(SHARD, messages[1].message, messages[1].message_hash, now_ns)]) == 0
    assert by_size.size()[0] == 2
    for one in (writer, by_age, by_size):
        one.close()


def test_tables_that_nwaku_made_get_the_index_by_topics_and_keep_their_messages(postgres, database):
    async def put(archive):
        archive.put(routed(1), time.time_ns())
        await archive.page(StoreQuery())

    async def indexed(archive):
        await until(lambda: not layout.unindexed(database))
        return len((await archive.page(StoreQuery(content_topics=("/a/1/b/proto",)))).messages)

    with_archive(postgres, put)
    database.execute("DROP INDEX i_fairway_topics")
    assert layout.unindexed(database)
    assert with_archive(postgres, indexed) == 1


@pytest.mark.full
def test_messages_wait_while_the_server_is_away(postgres, database):
    async def work(archive):
        archive.put(routed(1), time.time_ns())
        await archive.page(StoreQuery())
        await asyncio.to_thread(postgres.stop)
        try:
            archive.put(routed(2), time.time_ns())
            with pytest.raises(StorageError):
                await archive.page(StoreQuery())
            assert (await archive.statistics()).waiting == 1
        finally:
            await asyncio.to_thread(postgres.start)
        archive.put(routed(3), time.time_ns())
        return len((await archive.page(StoreQuery())).messages), (await archive.statistics()).dropped

    assert with_archive(postgres, work) == (3, 0)


def test_a_query_that_takes_too_long_is_broken_off_and_the_next_one_answered(postgres, database, monkeypatch):
    monkeypatch.setattr("fairway.service.open_archive.QUERY_LIMIT_S", 1.5)

    async def work(archive):
        archive.put(routed(1), time.time_ns())
        await archive.page(StoreQuery())
        database.execute("BEGIN")
        database.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        try:
            with pytest.raises(StorageError, match="statement timeout"):
                await archive.page(StoreQuery())
        finally:
            database.execute("ROLLBACK")
        return len((await archive.page(StoreQuery())).messages)

    assert with_archive(postgres, work) == 1


def test_tables_of_another_version_are_refused(postgres, database):
    database.execute("CREATE TABLE messages (id VARCHAR)")
    with pytest.raises(SnapshotError, match="schema version"):
        asyncio.run(open_archive(postgres.uri))
