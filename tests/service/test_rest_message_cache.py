"""What waits to be fetched, against a plain list of what should be there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.nodes.node import RoutedMessage
from fairway.service.rest.caches import RestMessageCache
from fairway.wire.waku_message import WakuMessage

SHARDS = ("/waku/2/rs/1/0", "/waku/2/rs/1/1")
TOPICS = ("/a/1/a/proto", "/a/1/b/proto", "/a/1/c/proto")


def message(time_ns, topic=TOPICS[0], shard=SHARDS[0]):
    return RoutedMessage.of(shard, WakuMessage(payload=b"x", content_topic=topic, timestamp_ns=time_ns))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30), st.sampled_from(TOPICS), st.sampled_from(SHARDS)),
        st.tuples(st.sampled_from(["take", "subscribe", "unsubscribe"]), st.sampled_from(TOPICS + SHARDS)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_cache_behaves_like_a_list(steps):
    cache = RestMessageCache(max_messages=5, max_topics=100)
    shards, topics, kept = set(), {}, []
    for what, *given_ in steps:
        if what == "add":
            one = message(*given_)
            wanted = one.pubsub_topic in shards or topics.get(one.message.content_topic) == one.pubsub_topic
            cache.add(one)
            if wanted and one.message_hash not in {old.message_hash for old in kept}:
                if len(kept) == 5:
                    kept.remove(min(kept, key=lambda old: old.message.timestamp_ns))
                kept.append(one)
            continue
        (name,) = given_
        if what == "take":
            taken = cache.take_pubsub(name) if name in SHARDS else cache.take_content(name)
            known = name in shards or name in topics
            mine = [one for one in kept if name in {one.pubsub_topic, one.message.content_topic}]
            assert taken == (mine if known else None)
            kept = [one for one in kept if one not in mine] if known else kept
        elif what == "subscribe" and name in SHARDS:
            assert cache.subscribe_pubsub([name])
            shards.add(name)
        elif what == "subscribe":
            assert cache.subscribe_content({name: SHARDS[0]})
            topics[name] = SHARDS[0]
        elif name in SHARDS:
            cache.unsubscribe_pubsub([name])
            shards.discard(name)
        else:
            assert cache.unsubscribe_content([name]) == (name in topics)
            topics.pop(name, None)
        if what == "unsubscribe":
            kept = [
                one
                for one in kept
                if one.pubsub_topic in shards or topics.get(one.message.content_topic) == one.pubsub_topic
            ]
        assert len(cache) == len(kept) <= 5
