"""Pages of stored messages: from memory and from an archive file they are the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StoreQueryError
from fairway.nodes.message_store import MemoryMessageStore
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service.archive_pages import page_of
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage

SHARDS = ("/waku/2/rs/16/0", "/waku/2/rs/16/1")
TOPICS = ("/a/1/one/proto", "/a/1/two/proto", "")
messages = st.lists(st.tuples(st.sampled_from(SHARDS), st.sampled_from(TOPICS), st.integers(1, 8)), max_size=30)
queries = st.builds(
    StoreQuery,
    pubsub_topic=st.sampled_from(("", *SHARDS)),
    content_topics=st.lists(st.sampled_from(TOPICS), max_size=3).map(tuple),
    start_ns=st.none() | st.integers(1, 9),
    end_ns=st.none() | st.integers(1, 9),
    newest_first=st.booleans(),
    page_size=st.integers(1, 4),
)


def made(number, *, shard=SHARDS[0], topic=TOPICS[0], timestamp_ns=None, payload=None):
    return RoutedMessage.of(
        shard,
        WakuMessage(
            payload=payload or b"%d" % number, content_topic=topic, timestamp_ns=timestamp_ns or 1_000 + number
        ),
    )


def place(message):
    return message.message.timestamp_ns, message.message_hash


def pages(page, query):
    """Return all pages of an answer."""
    found, cursor = [], None
    for _ in range(100):
        here = page(query, cursor)
        found.append(here.messages)
        cursor = here.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


def in_memory(kept, *, room=1_000, max_bytes=1 << 30):
    store = MemoryMessageStore(max_messages=room, max_bytes=max_bytes)
    for one in kept:
        store.put(one, 0)
    return store


@pytest.fixture(params=["memory", "archive"])
def page_from(request, tmp_path):
    """Return the pages of a store of either kind with some messages."""

    def stored(kept):
        if request.param == "memory":
            return in_memory(kept).page
        archive = NwakuArchive(tmp_path / "messages.sqlite")
        for one in kept:
            archive.append(one.pubsub_topic, one.message, one.message_hash)
        request.addfinalizer(archive.close)
        return lambda query, cursor: page_of(archive, query, cursor)

    return stored


@pytest.mark.parametrize("cursor", [bytes(32), b"", b"not a hash"])
def test_an_unknown_cursor_is_an_error_that_says_what_to_do(page_from, cursor):
    with pytest.raises(StoreQueryError, match="ask again without a cursor"):
        page_from([made(1)])(StoreQuery(), cursor)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("by_hash", [False, True])
def test_a_page_ends_early_when_its_messages_are_large(page_from, newest_first, by_hash):
    kept = [made(number, payload=bytes([number]) * 600_000) for number in range(5)]
    hashes = tuple(one.message_hash for one in kept) if by_hash else ()
    found = pages(page_from(kept), StoreQuery(newest_first=newest_first, message_hashes=hashes))
    assert [len(page) for page in found if page] == [2, 2, 1]
    assert [one for page in (found[::-1] if newest_first else found) for one in page] == kept


def test_the_oldest_messages_are_dropped_by_count_and_by_bytes():
    kept = [made(number, payload=bytes([number]) * 100) for number in range(10)]
    size = len(kept[0].encoded)
    assert list(in_memory(kept, room=4)) == kept[6:]
    assert list(in_memory(kept, max_bytes=3 * size)) == kept[7:]
    assert list(in_memory(kept, max_bytes=size - 1)) == []


@examples(1)
@given(messages, queries, st.integers(1, 30))
def test_all_pages_together_are_what_a_query_asks_for_in_its_order(given_messages, query, room):
    kept = [
        made(number, shard=shard, topic=topic, timestamp_ns=timestamp_ns)
        for number, (shard, topic, timestamp_ns) in enumerate(given_messages)
    ]
    store = in_memory(kept, room=room)
    newest: list[RoutedMessage] = []
    for one in kept:
        newest = sorted([*newest, one], key=place)[-room:]
    asked = [
        one
        for one in newest
        if (not query.pubsub_topic or one.pubsub_topic == query.pubsub_topic)
        and (not query.content_topics or one.message.content_topic in query.content_topics)
        and (query.start_ns is None or one.message.timestamp_ns >= query.start_ns)
        and (query.end_ns is None or one.message.timestamp_ns < query.end_ns)
    ]
    found = pages(store.page, query)
    assert [one for page in (found[::-1] if query.newest_first else found) for one in page] == asked
    assert len(store) == len(newest)


@examples(0.25)
@given(messages, queries)
def test_an_archive_gives_the_same_pages_as_memory(given_messages, query):
    kept = [
        made(number, shard=shard, topic=topic, timestamp_ns=timestamp_ns)
        for number, (shard, topic, timestamp_ns) in enumerate(given_messages)
    ]
    with tempfile.TemporaryDirectory() as folder, NwakuArchive(Path(folder) / "messages.sqlite") as archive:
        for one in kept:
            archive.append(one.pubsub_topic, one.message, one.message_hash)
        of_archive = pages(lambda *asked: page_of(archive, *asked), query)
    assert [page for page in of_archive if page] == [page for page in pages(in_memory(kept).page, query) if page]
