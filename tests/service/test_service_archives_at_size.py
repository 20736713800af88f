"""A service node's archive under load: bounded queues, slow queries apart, crashes, large files from elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairway.errors import StorageError
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service import archive_writer
from fairway.service.archive_writer import ArchiveWriter
from fairway.service.archives import Retention
from fairway.service.open_archive import open_sqlite
from fairway.service.reader_pool import ReaderPool
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, until

SHARD = "/waku/2/rs/16/0"
KEEP_ALL = Retention(max_age_s=None)


def routed(number, topic="/a/1/b/proto", size=40):
    payload = number.to_bytes(4, "big") * (size // 4)
    message = WakuMessage(payload=payload, content_topic=topic, timestamp_ns=1_760_000_000_000_000_000 + number)
    return RoutedMessage.of(SHARD, message)


class Reader:
    """Stands for an open archive."""

    def __init__(self):
        self.open = True

    def close(self):
        self.open = False


# --- readers


@pytest.fixture
def one_reader(monkeypatch):
    """One reader for slow queries and one for the others."""
    monkeypatch.setattr("fairway.service.reader_pool.SLOW_READERS", 1)
    monkeypatch.setattr("fairway.service.reader_pool.FAST_READERS", 1)


def test_a_slow_query_stands_in_the_way_of_slow_ones_only(one_reader):
    go_on = threading.Event()

    async def run():
        pool = await ReaderPool.open(Reader)
        slow = [asyncio.create_task(pool.run(lambda _: go_on.wait(PATIENCE_S), slow=True)) for _ in range(3)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answers = [await pool.run(lambda reader: isinstance(reader, Reader) and reader.open) for _ in range(5)]
            assert not any(task.done() for task in slow)
        finally:
            go_on.set()
            waited = await asyncio.gather(*slow)
            await pool.close()
        return answers, waited

    assert asyncio.run(run()) == ([True] * 5, [True] * 3)


def test_queries_beyond_the_queue_are_refused_at_once(one_reader, monkeypatch):
    monkeypatch.setattr("fairway.service.reader_pool.MAX_QUEUED", 2)
    go_on = threading.Event()

    async def run():
        pool = await ReaderPool.open(Reader)
        tasks = [asyncio.create_task(pool.run(lambda _: go_on.wait(PATIENCE_S))) for _ in range(3)]
        await asyncio.sleep(0)  # each of them has its place
        try:
            with pytest.raises(StorageError, match="2 queries are waiting"):
                await pool.run(lambda _: None)
        finally:
            go_on.set()
            await asyncio.gather(*tasks)
            await pool.close()
        with pytest.raises(StorageError, match="closed"):
            await pool.run(lambda _: None)

    asyncio.run(run())


def test_a_reader_is_free_when_its_thread_is_not_when_the_asker_left(one_reader):
    begun, go_on = threading.Event(), threading.Event()

    def work(_):
        begun.set()
        return go_on.wait(PATIENCE_S)

    async def run():
        pool = await ReaderPool.open(Reader)
        task = asyncio.create_task(pool.run(work))
        await until(begun.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        other = asyncio.create_task(pool.run(lambda _: go_on.is_set()))
        for _ in range(100):  # turns in which it would be given the reader
            await asyncio.sleep(0)
        assert not other.done()
        go_on.set()
        try:
            return await other
        finally:
            await pool.close()

    assert asyncio.run(run())


# --- writer


def with_writer(write, work):
    async def run():
        with ThreadPoolExecutor(1) as thread:
            writer = ArchiveWriter(write, thread)
            try:
                return await work(writer)
            finally:
                await writer.close(1.0)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [OSError("the disk is full"), LookupError("unforeseen"), asyncio.CancelledError(), StopIteration()],
    ids=repr,
)
def test_a_failed_batch_is_written_before_newer_messages(error, caplog):
    written, failing = [], [True]

    def write(batch):
        if failing[0]:
            raise error
        written.extend(batch)
        return 0

    async def work(writer):
        for number in range(3):
            writer.put(routed(number), number)
        await writer.flush(PATIENCE_S)
        assert len(writer) == 3
        failing[0] = False
        writer.put(routed(3), 3)
        await writer.flush(PATIENCE_S)
        return len(writer), writer.dropped

    assert with_writer(write, work) == (0, 0)
    assert [number for _, number in written] == [0, 1, 2, 3]
    assert f"messages cannot be written and wait in memory: the archive failed: {error!s}" in caplog.text


def test_waiting_messages_are_bounded_and_dropped_ones_counted(monkeypatch):
    monkeypatch.setattr(archive_writer, "MAX_WAITING_BYTES", 5 * (archive_writer.OVERHEAD_BYTES + 20))
    stuck = threading.Event()

    def write(_):
        stuck.wait(PATIENCE_S)
        return 0

    async def work(writer):
        for number in range(100):
            writer.put(routed(number), number)
        counts = len(writer), writer.dropped
        stuck.set()
        await writer.flush(PATIENCE_S)
        return counts, len(writer)

    (waiting, dropped), left = with_writer(write, work)
    assert (waiting + dropped, left) == (100, 0)
    assert waiting <= 5


# --- the whole


def test_a_large_file_without_the_index_gets_it_while_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr("fairway.service.open_archive.INDEX_AT_ONCE_BYTES", 0)
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number in range(500):
            message = routed(number, f"/a/1/{number % 7}/proto")
            archive.append(SHARD, message.message, message.message_hash)

    async def run():
        archive = await open_sqlite(tmp_path / "a.db", KEEP_ALL)
        try:
            query = StoreQuery(content_topics=("/a/1/3/proto",))
            before = await archive.page(query)
            async with asyncio.timeout(PATIENCE_S):
                while (await archive.statistics()).messages < 500:  # noqa: ASYNC110 - a figure has no event
                    await asyncio.sleep(0)
            archive.put(routed(500, "/a/1/3/proto"), 0)
            after = await archive.page(query)
            return len(before.messages), len(after.messages), await archive.statistics()
        finally:
            await archive.close()

    before, after, statistics = asyncio.run(run())
    assert (before, after, statistics.messages) == (71, 72, 501)
    assert statistics.size_bytes > 0


@pytest.mark.full
def test_a_query_for_many_large_messages_returns_pages(tmp_path):
    large = [routed(number, size=300_000) for number in range(10)]

    async def run():
        archive = await open_sqlite(tmp_path / "a.db", KEEP_ALL)
        try:
            for message in large:
                archive.put(message, 0)
            pages = {}
            for newest_first in (False, True):
                query = StoreQuery(message_hashes=tuple(one.message_hash for one in large), newest_first=newest_first)
                found, cursor, sizes = [], None, []
                for _ in range(10):
                    page = await archive.page(query, cursor)
                    sizes.append(len(page.messages))
                    found = [*page.messages, *found] if newest_first else [*found, *page.messages]
                    cursor = page.cursor
                    if cursor is None:
                        break
                pages[newest_first] = sizes, [one.message_hash for one in found]
            return pages
        finally:
            await archive.close()

    expected = [message.message_hash for message in large]
    assert asyncio.run(run()) == {False: ([4, 4, 2], expected), True: ([4, 4, 2], expected)}


CHILD = """
import asyncio, sys
from fairway.service.archives import Retention
from fairway.service.open_archive import open_archive
from fairway.nodes.node import RoutedMessage
from fairway.wire.waku_message import WakuMessage


async def main():
    archive = await open_archive(sys.argv[1], Retention(max_age_s=None))
    number = int(sys.argv[2])
    while True:
        for _ in range(20):
            message = WakuMessage(payload=b"%d" % number * 100, content_topic="/a/1/b/proto", timestamp_ns=number + 1)
            archive.put(RoutedMessage.of("/waku/2/rs/16/0", message), 0)
            number += 1
        print(number, flush=True)
        await asyncio.sleep(0.005)


asyncio.run(main())
"""


def times_in(path):
    with NwakuArchive(path, read_only=True) as archive:
        return {message.timestamp_ns - 1 for message in archive.read()}


@pytest.mark.full
def test_messages_written_before_a_kill_are_in_a_whole_file(tmp_path):
    path = tmp_path / "archive.db"
    first = 0
    for _ in range(2):
        command = [sys.executable, "-c", CHILD, str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                promised = [int(child.stdout.readline()) for _ in range(60)][-1]
                # It goes on writing: another process sees what is in the file.
                while promised - 1 not in times_in(path):
                    child.stdout.readline()
            finally:
                os.kill(child.pid, signal.SIGKILL)
            last = int((child.stdout.read().rpartition("\n")[0].splitlines() or [promised])[-1])
        with contextlib.closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert times_in(path) >= set(range(first, promised))
        first = last + 1_000
