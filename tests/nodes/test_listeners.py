"""The subscriptions of one node: who gets which message, and what is no subscription at all."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ConfigurationError
from fairway.nodes.listeners import NodeSubscriptions, criteria_of

OTHER = "/fairway/1/other/proto"


@pytest.mark.parametrize("topics", ["", "/a/1/b/proto", (), [""], ["\ud800"], [7], [None]])
def test_what_is_no_collection_of_topics_is_refused(say, topics):
    with pytest.raises(ConfigurationError, match="a subscription"):
        criteria_of(say.shard, topics)


@pytest.mark.parametrize("shard", ["", "\udc00", None])
def test_a_pubsub_topic_that_cannot_be_sent_is_refused(say, shard):
    with pytest.raises(ConfigurationError, match="no topic"):
        criteria_of(shard, [say.topic])


def test_a_message_goes_into_each_subscription_that_asks_for_it_and_into_no_other(say):
    async def story():
        listeners = NodeSubscriptions(gone=lambda _: None)
        both = listeners.add(criteria_of(say.shard, [say.topic, OTHER]))
        one = listeners.add(criteria_of(say.shard, [say.topic]))
        elsewhere = listeners.add(criteria_of("/waku/2/rs/1/1", [say.topic]))
        first, second = say.message(1), say.message(2, topic=OTHER)
        listeners.deliver(first)
        listeners.deliver(second)
        assert (both.take(), one.take(), elsewhere.take()) == ([first, second], [first], [])
        assert listeners.wanted() == {(say.shard, say.topic), (say.shard, OTHER), ("/waku/2/rs/1/1", say.topic)}

    asyncio.run(story())


def test_a_subscription_whose_event_loop_has_ended_is_forgotten_and_woken_no_more(say):
    listeners = NodeSubscriptions()

    async def listen():
        return listeners.add(criteria_of(say.shard, [say.topic]))

    ended = asyncio.run(listen())

    async def go_on():
        kept = await listen()
        assert listeners.deliver(say.message())
        return kept.take()

    assert asyncio.run(go_on()) == [say.message()]
    assert (len(ended), len(listeners)) == (0, 1)
