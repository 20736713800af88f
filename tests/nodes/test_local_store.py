"""The store of a local network: pages, cursors and bounds, the same in memory and in an archive file."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError, StorageError, StoreQueryError
from fairway.nodes.local import LocalNetwork
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.testing import run

KINDS = ("memory", "archive")


@pytest.fixture
def story_of(tmp_path):
    """Run a story in a network with a store of either kind."""

    def run_story(kind, story):
        async def within():
            archive = NwakuArchive(tmp_path / "messages.sqlite") if kind == "archive" else None
            with LocalNetwork(archive=archive) as network:
                return await story(network.node())

        return run(within())

    return run_story


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_of_time_begins_with_its_start_and_ends_before_its_end(say, story_of, kind):
    async def story(node):
        for number in range(6):
            await node.send(say.message(number))
        page = await node.query(say.query(start_ns=say.start_ns + 2, end_ns=say.start_ns + 4))
        assert say.payloads(page.messages) == [b"message 2", b"message 3"]
        empty = await node.query(say.query(start_ns=say.start_ns + 2, end_ns=say.start_ns + 2))
        assert empty.messages == ()

    story_of(kind, story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cursor", [bytes(32), b"", b"not a hash"])
def test_an_unknown_cursor_is_an_error_that_says_what_to_do(say, story_of, kind, cursor):
    async def story(node):
        await node.send(say.message(1))
        with pytest.raises(StoreQueryError, match="ask again without a cursor"):
            await node.query(say.query(), cursor)

    story_of(kind, story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("by_hash", [False, True])
def test_a_page_ends_early_when_its_messages_are_large(say, story_of, kind, newest_first, by_hash):
    async def story(node):
        sent = [say.message(number, payload=bytes([number]) * 600_000) for number in range(5)]
        for message in sent:
            await node.send(message)
        fields = {"message_hashes": tuple(each.message_hash for each in sent)} if by_hash else {}
        pages = await say.all_pages(node, say.query(newest_first=newest_first, **fields))
        assert [len(page) for page in pages if page] == [2, 2, 1]
        assert sorted(payload for page in pages for payload in page) == [each.message.payload for each in sent]

    story_of(kind, story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_stored_once_and_comes_back_as_it_went_in(say, story_of, kind):
    async def story(node):
        sent = say.message(1, payload=bytes(range(256)))
        await node.send(sent)
        await node.send(sent)
        (found,) = (await node.query(say.query())).messages
        assert found == sent

    story_of(kind, story)


@examples(0.25)
@given(
    stamps=st.lists(st.integers(0, 6), max_size=25),
    page_size=st.integers(1, 7),
    newest_first=st.booleans(),
    bounds=st.tuples(st.none() | st.integers(0, 7), st.none() | st.integers(0, 7)),
)
def test_both_kinds_of_store_give_the_same_pages_which_together_are_the_answer(
    say, stamps, page_size, newest_first, bounds
):
    start_ns, end_ns = (None if bound is None else say.start_ns + bound for bound in bounds)
    query = say.query(page_size=page_size, newest_first=newest_first, start_ns=start_ns, end_ns=end_ns)
    messages = [
        say.message(payload=b"%d" % number, timestamp_ns=say.start_ns + stamp) for number, stamp in enumerate(stamps)
    ]

    async def pages_of(archive):
        with LocalNetwork(archive=archive) as network:
            node = network.node()
            for message in messages:
                await node.send(message)
            return await say.all_pages(node, query)

    with tempfile.TemporaryDirectory() as folder:
        in_memory = run(pages_of(None))
        assert run(pages_of(NwakuArchive(Path(folder) / "messages.sqlite"))) == in_memory
    ordered = sorted(messages, key=lambda each: (each.message.timestamp_ns, each.message_hash))
    asked = [
        each.message.payload
        for each in ordered
        if (start_ns is None or each.message.timestamp_ns >= start_ns)
        and (end_ns is None or each.message.timestamp_ns < end_ns)
    ]
    assert [payload for page in (in_memory[::-1] if newest_first else in_memory) for payload in page] == asked
    assert all(len(page) == page_size for page in in_memory[:-1])


def test_in_memory_the_oldest_messages_give_way_by_count_and_by_bytes(say):
    async def story(**bounds):
        with LocalNetwork(**bounds) as network:
            node = network.node()
            for number in range(10):
                await node.send(say.message(number, payload=bytes([number]) * 100))
            return [payload[0] for payload in say.payloads((await node.query(say.query())).messages)]

    assert run(story(max_stored=4)) == [6, 7, 8, 9]
    size = len(say.message(payload=bytes(100)).encoded)
    assert run(story(max_stored_bytes=3 * size)) == [7, 8, 9]
    assert run(story(max_stored_bytes=size - 1)) == []
    with pytest.raises(ConfigurationError, match="at least 1 message and 1 byte"):
        LocalNetwork(max_stored=0)


def test_an_archive_is_written_while_the_network_lives_and_survives_it(say, tmp_path):
    path = tmp_path / "messages.sqlite"

    def rows():
        with closing(sqlite3.connect(path)) as database:
            return database.execute("SELECT count(*) FROM Message").fetchone()[0]

    async def first_life():
        with LocalNetwork(archive=NwakuArchive(path)) as network:
            node = network.node()
            await node.send(say.message(1))
            await say.until(lambda: rows() == 1)
            await node.send(say.message(2))
            await say.until(lambda: rows() == 2)
            await node.send(say.message(3))

    async def second_life():
        with LocalNetwork(archive=NwakuArchive(path)) as network:
            return say.payloads((await network.node().query(say.query())).messages)

    run(first_life())
    assert rows() == 3
    assert run(second_life()) == [b"message 1", b"message 2", b"message 3"]


def test_an_archive_is_written_also_when_one_event_loop_follows_another(say, tmp_path):
    path = tmp_path / "messages.sqlite"
    network = LocalNetwork(archive=NwakuArchive(path))

    async def send(number, wait):
        await network.node().send(say.message(number))
        with NwakuArchive(path, read_only=True) as reader:
            await say.until(lambda: not wait or reader.count() == 2)

    run(send(1, wait=False))
    run(send(2, wait=True))
    network.close()


def test_an_archive_that_cannot_be_written_costs_messages_and_not_the_network(say, tmp_path):
    class FullDisk(NwakuArchive):
        full = True

        def flush(self):
            if self.full:
                raise sqlite3.OperationalError("database or disk is full")
            super().flush()
            self.flushed = True

    async def story():
        archive = FullDisk(tmp_path / "messages.sqlite", batch_rows=2)
        with LocalNetwork(archive=archive) as network:
            node, other = network.node(), network.node()
            heard = await say.listen(other)
            for number in range(5):
                assert (await node.send(say.message(number))).accepted
            assert len(heard) == 5
            assert network.statistics().stored == 1
            assert network.statistics().store_missed == 4
            with pytest.raises(StoreQueryError, match="disk is full"):
                await node.query(say.query())
            archive.full, archive.flushed = False, False
            await say.until(lambda: archive.flushed)
            await node.send(say.message(9))
            stored = say.payloads((await node.query(say.query())).messages)
            assert stored[-1] == b"message 9"

    run(story())


def test_closing_a_network_whose_archive_cannot_be_written_says_what_is_missing(say, tmp_path):
    class FullDisk(NwakuArchive):
        def flush(self):
            if self._pending:
                raise sqlite3.OperationalError("database or disk is full")

    async def story():
        network = LocalNetwork(archive=FullDisk(tmp_path / "messages.sqlite"))
        await network.node().send(say.message(1))
        with pytest.raises(StorageError, match=r"last messages could not be written.*disk is full"):
            network.close()

    run(story())
