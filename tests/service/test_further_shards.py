"""Shards that a node serves because a REST client subscribed to them while it runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest

from fairway.errors import NodeUnavailableError
from fairway.service.node import parts_of
from fairway.service.parts import MAX_PUBSUB_TOPICS
from fairway.wire.filter import FilterSubscribeRequest, FilterSubscribeType
from patience import until

SHARD, FURTHER, FOREIGN = "/waku/2/rs/16/0", "/waku/2/rs/16/1000", "/waku/2/rs/2/2"
SUBSCRIPTIONS, AUTO, FILTER = "/relay/v1/subscriptions", "/relay/v1/auto/subscriptions", "/filter/v2/subscriptions"


def messages_at(shard):
    return f"/relay/v1/messages/{quote(shard, safe='')}"


@asynccontextmanager
async def connected(rest, **changes):
    """Two nodes that serve shard 0 and are connected."""
    async with rest.serving(**changes) as (left, at_left), rest.serving(**changes) as (right, at_right):
        await parts_of(left).host.connect(right.addresses[0])
        yield (left, at_left), (right, at_right)


async def ask(rest, server, verb, path, body=None, status=200):
    answer = await rest.call(server, verb, path, body)
    assert answer.status == status, answer.text
    return answer


@pytest.mark.parametrize("shard", [FURTHER, FOREIGN])
async def test_nodes_whose_clients_subscribe_to_a_further_shard_relay_it_to_each_other(rest, shard):
    async with connected(rest) as ((left, at_left), (right, at_right)):
        for server in (at_left, at_right):
            await ask(rest, server, "POST", SUBSCRIPTIONS, [shard])
        await until(lambda: parts_of(left).relay.peers_of(shard) and parts_of(right).relay.peers_of(shard))
        message = {"payload": "aGFsbG8=", "contentTopic": rest.topic}
        await ask(rest, at_left, "POST", messages_at(shard), message)
        await until(lambda: parts_of(right).distribution.statistics().messages)
        (received,) = (await ask(rest, at_right, "GET", messages_at(shard))).json
        assert received["payload"] == message["payload"]
        stored = (await ask(rest, at_right, "GET", f"/store/v3/messages?pubsubTopic={quote(shard)}")).json
        assert len(stored["messages"]) == 1
        # Each leaves when nobody is subscribed any more.
        await ask(rest, at_left, "DELETE", SUBSCRIPTIONS, [shard])
        await until(lambda: not parts_of(right).relay.peers_of(shard))
        assert set(left.pubsub_topics) == {SHARD}
        assert set(right.pubsub_topics) == {SHARD, shard}
        await ask(rest, at_left, "POST", messages_at(shard), message, status=400)


async def test_a_further_shard_stays_while_one_of_its_subscriptions_does(rest):
    first, second = "/toychat/2/a/proto", "/toychat/2/b/proto"  # of one application and version, so on one shard
    async with rest.serving(shards=(0,), shard_count=8) as (node, server):
        shard = node.options.pubsub_topic_of(first)
        assert shard != SHARD
        subscribed = {"requestId": "1", "contentFilters": [second]}
        await ask(rest, server, "POST", AUTO, [first])
        await ask(rest, server, "POST", SUBSCRIPTIONS, [shard])
        await ask(rest, server, "POST", FILTER, subscribed)
        for verb, path, body in (
            ("DELETE", SUBSCRIPTIONS, [shard]),
            ("DELETE", AUTO, [first]),
            ("DELETE", FILTER, subscribed),
        ):
            assert shard in node.pubsub_topics
            await ask(rest, server, verb, path, body)
        assert set(node.pubsub_topics) == {SHARD}


async def test_a_filter_subscription_on_a_further_shard_gets_the_messages_of_another_node(rest):
    async with connected(rest) as ((left, at_left), (right, at_right)):
        await ask(rest, at_left, "POST", SUBSCRIPTIONS, [FURTHER])
        asked = {"requestId": "1", "contentFilters": [rest.topic], "pubsubTopic": FURTHER}
        await ask(rest, at_right, "POST", FILTER, asked)
        await until(lambda: parts_of(left).relay.peers_of(FURTHER))
        message = {"payload": "aGFsbG8=", "contentTopic": rest.topic}
        await ask(rest, at_left, "POST", messages_at(FURTHER), message)
        await until(lambda: parts_of(right).distribution.statistics().messages)
        (received,) = (await ask(rest, at_right, "GET", f"/filter/v2/messages/{quote(rest.topic, safe='')}")).json
        assert received["payload"] == message["payload"]


async def test_record_and_metadata_name_the_shards_of_the_own_cluster_that_are_served_now(rest):
    async with rest.serving() as (node, server), rest.serving() as (other, _):
        before = node.record
        await ask(rest, server, "POST", SUBSCRIPTIONS, [FURTHER, FOREIGN])
        assert node.record.relay_shards.shards == {0, 1000}
        assert node.record.sequence > before.sequence
        info = (await ask(rest, server, "GET", "/info")).json
        assert info["enrUri"] == str(node.record)
        # A peer that connects now is told so, too, and stays.
        await parts_of(other).host.connect(node.addresses[0])
        await until(lambda: parts_of(other).relay.peers_of(SHARD))
        await ask(rest, server, "DELETE", SUBSCRIPTIONS, [FURTHER, FOREIGN])
        assert node.record.relay_shards.shards == {0}


async def test_filter_peers_are_served_on_a_further_shard(rest):
    asked = FilterSubscribeRequest(
        request_id="1",
        filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
        pubsub_topic=FURTHER,
        content_topics=(rest.topic,),
    )
    async with rest.serving() as (node, _):
        assert parts_of(node).filters.handle("a", asked, 0.0).status_code == 400
        node.join({FURTHER})
        assert parts_of(node).filters.handle("a", asked, 0.0).status_code == 200
        node.leave({FURTHER})
        assert parts_of(node).filters.handle("b", asked, 0.0).status_code == 400


async def test_a_closing_server_leaves_its_further_shards_and_a_closed_node_joins_no_shard(rest):
    async with rest.serving() as (node, server):
        await ask(rest, server, "POST", SUBSCRIPTIONS, [FURTHER])
        assert FURTHER in node.pubsub_topics
        await server.close()
        assert FURTHER not in node.pubsub_topics
        await node.close()
        with pytest.raises(NodeUnavailableError, match="the node is closed"):
            node.join({FURTHER})


async def test_the_pubsub_topics_of_a_node_are_bounded(rest):
    many = [f"/waku/2/rs/17/{shard}" for shard in range(MAX_PUBSUB_TOPICS)]
    async with rest.serving() as (node, server):
        refused = await ask(rest, server, "POST", SUBSCRIPTIONS, many, status=400)
        assert refused.text == "a node serves at most 1024 pubsub topics; unsubscribe from others first"
        assert set(node.pubsub_topics) == {SHARD}
        await ask(rest, server, "POST", SUBSCRIPTIONS, many[1:])
        assert len(node.pubsub_topics) == MAX_PUBSUB_TOPICS
        await ask(rest, server, "DELETE", SUBSCRIPTIONS, many)
        assert set(node.pubsub_topics) == {SHARD}
