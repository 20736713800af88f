"""The store in memory answers from orders by topic what reading all messages would answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.nodes.message_store import MemoryMessageStore
from fairway.nodes.node import RoutedMessage, StoreQuery
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


def answers(kept, query):
    """Return what a query asks for, in its order, by reading everything."""
    found = [
        one
        for one in kept
        if (not query.pubsub_topic or one.pubsub_topic == query.pubsub_topic)
        and (not query.content_topics or one.message.content_topic in query.content_topics)
        and (query.start_ns is None or one.message.timestamp_ns >= query.start_ns)
        and (query.end_ns is None or one.message.timestamp_ns < query.end_ns)
    ]
    found.sort(key=lambda one: (one.message.timestamp_ns, one.message_hash), reverse=query.newest_first)
    return found


@given(messages, queries, st.integers(1, 30))
def test_pages_by_topic_are_those_of_a_store_that_reads_everything(given_messages, query, room):
    store = MemoryMessageStore(max_messages=room, max_bytes=1 << 20)
    kept = []
    for number, (shard, topic, timestamp_ns) in enumerate(given_messages):
        one = RoutedMessage.of(
            shard, WakuMessage(payload=b"%d" % number, content_topic=topic, timestamp_ns=timestamp_ns)
        )
        store.put(one, 0)
        kept.append(one)
        kept = sorted(kept, key=lambda one: (one.message.timestamp_ns, one.message_hash))[-room:]
    got, cursor = [], None
    for _ in range(40):
        page = store.page(query, cursor, lambda _: True)
        got += reversed(page.messages) if query.newest_first else page.messages
        cursor = page.cursor
        if cursor is None:
            break
    assert got == answers(kept, query)
    assert len(store) == len(kept)
