"""Pages by topic are the same with the index by topics, without it, and by a naive reading."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StorageError
from fairway.storage.archive import PageQuery
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.storage.nwaku_pages import has_topic_index
from fairway.storage.nwaku_upkeep import NwakuUpkeep
from fairway.storage.sqlite_connection import GuardedConnection

CONTENT = [f"/a/1/{number}/proto" for number in range(5)]
PUBSUB = [f"/waku/2/rs/1/{number}" for number in range(3)]
INSERT = "INSERT INTO Message VALUES (?, ?, ?, x'00', 0, ?, NULL)"


def fill(path, messages):
    """Make a file; a message is (hash byte, timestamp, pubsub topic, content topic, whether topics are text)."""
    NwakuArchive(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            INSERT,
            [
                (bytes([byte]) * 32, *((pubsub, content) if text else (pubsub.encode(), content.encode())), stamp)
                for byte, stamp, pubsub, content, text in messages
            ],
        )


def make_index(path):
    upkeep = NwakuUpkeep(path, max_age_s=None, max_bytes=None)
    for part in upkeep.unindexed():
        upkeep.index_topics(part)
    assert upkeep.unindexed() == []
    upkeep.close()


def keys_of(rows):
    return [(row.timestamp_ns, row.message_hash[0]) for row in rows]


@examples(0.6)
@given(
    messages=st.lists(
        st.tuples(
            st.integers(0, 255),
            st.integers(1, 4),
            st.sampled_from(PUBSUB),
            st.sampled_from(CONTENT),
            st.booleans(),
        ),
        unique_by=lambda message: message[0],
        max_size=25,
    ),
    pubsub=st.none() | st.sampled_from(PUBSUB),
    wanted=st.sets(st.sampled_from([*CONTENT, "/nobody/1/has/proto"])),
    times=st.tuples(st.none() | st.integers(0, 5), st.none() | st.integers(0, 5)),
    rows=st.integers(1, 5),
    newest_first=st.booleans(),
)
def test_all_pages_are_what_a_naive_reading_gives(
    tmp_path_factory, messages, pubsub, wanted, times, rows, newest_first
):
    start, end = times
    expected = sorted(
        (stamp, byte)
        for byte, stamp, its_pubsub, content, _ in messages
        if (start is None or stamp >= start)
        and (end is None or stamp < end)
        and (pubsub is None or pubsub == its_pubsub)
        and (not wanted or content in wanted)
    )
    path = tmp_path_factory.mktemp("topics") / "archive.db"
    fill(path, messages)
    for indexed in (False, True):
        if indexed:
            make_index(path)
        found, beyond = [], None
        with NwakuArchive(path, read_only=True) as archive:
            with closing(sqlite3.connect(path)) as database:
                assert has_topic_index(database) == indexed
            for _ in range(len(messages) + 1):
                page = archive.page(
                    PageQuery(
                        start_ns=start,
                        end_ns=end,
                        beyond=beyond,
                        newest_first=newest_first,
                        pubsub_topic=pubsub,
                        content_topics=wanted,
                        rows=rows,
                    )
                )
                if not page:
                    break
                found = keys_of(page) + found if newest_first else found + keys_of(page)
                beyond = page[0 if newest_first else -1].cursor
        assert found == expected


def test_pages_by_topic_use_the_index(tmp_path, monkeypatch):
    """A page takes a few hundred steps however many messages of others there are."""
    path = tmp_path / "a.db"
    NwakuArchive(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            INSERT,
            [
                (number.to_bytes(32, "big"), PUBSUB[0].encode(), CONTENT[number == 4_000].encode(), number)
                for number in range(5_000)
            ],
        )

    def steps():
        count = 0

        def step():
            nonlocal count
            count += 1

        def watched(*where, **how):
            database = GuardedConnection(*where, **how)
            database.set_progress_handler(step, 100)
            return database

        with monkeypatch.context() as patch:
            patch.setattr("fairway.storage.nwaku_schema.GuardedConnection", watched)
            archive = NwakuArchive(path, read_only=True)
        with archive:
            count = 0
            assert keys_of(archive.page(PageQuery(content_topics=CONTENT[1:2], newest_first=True))) == [(4_000, 0)]
        return 100 * count

    without = steps()
    make_index(path)
    assert steps() * 20 < without


def test_a_page_that_takes_too_long_is_broken_off(tmp_path):
    path = tmp_path / "a.db"
    fill(path, [])
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(INSERT, [(number.to_bytes(32, "big"), b"p", b"c", number) for number in range(20_000)])
    with NwakuArchive(path, read_only=True, read_limit_s=1e-9) as archive:
        with pytest.raises(StorageError, match="broken off"):
            archive.page(PageQuery(content_topics=("/nobody/1/has/proto",)))
        assert len(archive.find([bytes(32)])) == 1, "what takes few steps is answered"
