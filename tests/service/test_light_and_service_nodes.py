"""Light clients and service nodes on real sockets of this machine: what goes through, what fails, who is replaced."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import fairway
from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError
from fairway.libp2p.keys import IdentityKey
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import NodeHealth, RoutedMessage, StoreQuery
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, until

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"
FAST = LightOptions(request_timeout_s=60.0)


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr("fairway.nodes.light.filter_client.PING_INTERVAL_S", 0.2)
    monkeypatch.setattr("fairway.nodes.light.sent_confirmation.CONFIRM_AFTER_S", 0.1)


def options(*peers, **changes):
    return ServiceOptions(
        **{"cluster_id": 16, "shards": (0,), "shard_count": 1, "peers": tuple(map(str, peers)), **changes}
    )


def message(number=0, topic=TOPIC, shard=SHARD, **fields):
    return RoutedMessage.of(
        shard,
        WakuMessage(payload=b"message %d" % number, content_topic=topic, timestamp_ns=time.time_ns(), **fields),
    )


@asynccontextmanager
async def service(*peers, key=None, **changes):
    node = await ServiceNode.start(options(*peers, **changes), key=key)
    try:
        yield node
    finally:
        await node.close()


async def received(subscription, count, timeout_s=PATIENCE_S):
    got = []
    async with asyncio.timeout(timeout_s):
        while len(got) < count:
            got += await subscription.next_batch()
    return got


@pytest.mark.parametrize("transport", [0, 1], ids=["tcp", "ws"])
async def test_a_message_of_a_light_client_reaches_another_one_and_the_store(transport):
    async with (
        service() as node,
        await LightNode.start([node.addresses[transport]], FAST) as alice,
        await LightNode.start([node.addresses[1 - transport]], FAST) as bob,
    ):
        subscription = await bob.subscribe(SHARD, [TOPIC])
        sent = [message(number) for number in range(20)]
        for one in sent:
            assert (await alice.send(one)).accepted
        got = await received(subscription, 20)
        assert [one.encoded for one in got] == [one.encoded for one in sent]
        page = await bob.query(StoreQuery(pubsub_topic=SHARD, content_topics=(TOPIC,)))
        assert [one.message_hash for one in page.messages] == [one.message_hash for one in sent]
        found = await bob.query(StoreQuery(message_hashes=(sent[3].message_hash, b"n" * 32)))
        assert [one.message_hash for one in found.messages] == [sent[3].message_hash]


async def test_service_nodes_relay_to_each_other_and_messages_cross_to_clients_of_another_one():
    async with (
        service() as first,
        service(first.addresses[0]) as second,
        service(second.addresses[1]) as third,
        await LightNode.start([first.addresses[0]], FAST) as alice,
        await LightNode.start([third.addresses[0]], FAST) as bob,
    ):
        await until(lambda: parts_of(first).relay.mesh_of(SHARD) and parts_of(third).relay.mesh_of(SHARD))
        subscription = await bob.subscribe(SHARD, [TOPIC])
        own = await second.subscribe(SHARD, [TOPIC])
        for number in range(50):
            assert (await alice.send(message(number))).accepted
        assert len(await received(subscription, 50)) == 50
        assert len(await received(own, 50)) == 50
        for node in (first, second, third):
            assert len((await node.query(StoreQuery(page_size=100))).messages) == 50


async def test_a_reliable_channel_runs_over_light_clients_files_included():
    async with service(cluster_id=1, shards=tuple(range(8)), shard_count=8) as node, AsyncExitStack() as exits:
        channels = []
        for name in ("alice", "bob"):
            client = await exits.enter_async_context(await fairway.connect(str(node.addresses[0])))
            channel = await fairway.create_reliable_channel(client, "team", name, "/myapp/1/team/proto")
            channels.append(await exits.enter_async_context(channel))
        alice, bob = channels
        payload = bytes(range(256)) * 2_000
        receipt = await alice.send(payload)
        async for got in bob:
            assert bytes(got) == payload
            break
        await bob.send(b"thank you")
        async with asyncio.timeout(PATIENCE_S):
            assert (await receipt.delivered()).delivered_to == ("bob",)


async def test_a_message_that_breaks_the_rules_is_refused_for_good():
    async with service(max_message_bytes=1_000) as node, await LightNode.start([node.addresses[0]], FAST) as alice:
        large = RoutedMessage.of(SHARD, WakuMessage(payload=b"x" * 1_500, content_topic=TOPIC, timestamp_ns=1))
        result = await alice.send(large)
        assert (result.accepted, result.permanent) == (False, True)
        assert "413" in result.detail
        largest = RoutedMessage.of(SHARD, WakuMessage(payload=b"x" * 1_048_000, content_topic=TOPIC))
        assert "413" in (await alice.send(largest)).detail
        elsewhere = await alice.send(message(shard="/waku/2/rs/16/5"))
        assert (elsewhere.accepted, elsewhere.permanent) == (False, False)
        assert "421" in elsewhere.detail
        own = await node.send(large)
        assert own.permanent


async def test_a_client_beyond_its_request_rate_is_refused_and_others_are_served():
    rate = RequestRate(per_second=0.1, burst=3)
    async with (
        service(request_rate=rate) as node,
        await LightNode.start([node.addresses[0]], FAST) as greedy,
        await LightNode.start([node.addresses[0]], FAST) as modest,
    ):
        results = [await greedy.send(message(number)) for number in range(6)]
        assert [result.accepted for result in results] == [True] * 3 + [False] * 3
        assert "429" in results[-1].detail
        assert not results[-1].permanent
        assert (await modest.send(message(9))).accepted


async def test_a_node_that_should_relay_but_has_no_peers_is_passed_over_for_one_that_has():
    async with service() as good, service("/ip4/127.0.0.1/tcp/9") as lonely:
        async with await LightNode.start([lonely.addresses[0]], FAST) as alice:
            alone = await alice.send(message())
            assert not alone.accepted
            assert "505" in alone.detail
        addresses = [lonely.addresses[0], good.addresses[0]]
        async with await LightNode.start(addresses, FAST) as bob:
            await until(lambda: bob.status.health is NodeHealth.SUFFICIENTLY_HEALTHY)
            assert (await bob.send(message(1))).accepted


async def test_a_message_that_reached_no_relay_peer_is_relayed_when_it_is_pushed_again():
    async with (
        service() as far,
        service("/ip4/127.0.0.1/tcp/9") as near,
        await LightNode.start([near.addresses[0]], FAST) as alice,
    ):
        own = await far.subscribe(SHARD, [TOPIC])
        sent = message()
        assert "505" in (await alice.send(sent)).detail
        await parts_of(near).host.connect(far.addresses[0])
        await until(lambda: parts_of(near).relay.peers_of(SHARD))
        assert (await alice.send(sent)).accepted
        assert [one.encoded for one in await received(own, 1)] == [sent.encoded]


async def test_a_forgotten_subscription_is_renewed_and_the_status_shows_it():
    async with service() as node, await LightNode.start([node.addresses[0]], FAST) as client:
        subscription = await client.subscribe(SHARD, [TOPIC])
        changes = client.status_changes()
        parts_of(node).filters.forget(str(client.host.peer_id))
        async with asyncio.timeout(PATIENCE_S):
            async for status in changes:
                if not status.connected:
                    assert status.detail == "no node has the filter subscription"
                    break
            await changes.next_batch()
        assert client.status.connected
        await node.send(message())
        assert len(await received(subscription, 1)) == 1


async def test_a_client_survives_a_node_that_is_killed_and_started_again():
    key = IdentityKey.generate()
    async with service(key=key) as node:
        port = node.addresses[0].port
        client = await LightNode.start([node.addresses[0]], FAST)
    async with client:
        await until(lambda: client.status.health is NodeHealth.UNHEALTHY)
        assert not (await client.send(message())).accepted
        with pytest.raises(StoreQueryError, match="no store node"):
            await client.query(StoreQuery())
        subscription = await client.subscribe(SHARD, [TOPIC])
        async with service(key=key, tcp_port=port) as again:
            await until(lambda: client.status.connected)
            assert (await client.send(message(1))).accepted
            await until(lambda: parts_of(again).filters.subscribers_of(SHARD, TOPIC))
            await again.send(message(2))
            assert await received(subscription, 1)


async def test_with_two_nodes_a_client_continues_when_one_dies():
    async with service() as first:
        second = await ServiceNode.start(options(first.addresses[0]))
        async with await LightNode.start([first.addresses[0], second.addresses[0]], FAST) as client:
            subscription = await client.subscribe(SHARD, [TOPIC])
            await until(lambda: client.status.health is NodeHealth.SUFFICIENTLY_HEALTHY)
            await second.close()
            await until(lambda: client.status.health is NodeHealth.MINIMALLY_HEALTHY)
            assert (await client.send(message(1))).accepted
            await first.send(message(2))
            assert await received(subscription, 1)


async def test_a_message_that_reached_no_store_is_sent_again():
    async with service() as node, await LightNode.start([node.addresses[0]], FAST) as client:
        archive: Any = parts_of(node).archive
        kept = archive.put
        dropped = []
        archive.put = lambda routed, received_ns: dropped.append(routed)
        assert (await client.send(message())).accepted
        await until(lambda: client.statistics().resent)
        assert dropped
        kept(dropped[0], 0)
        await until(lambda: client.statistics().confirmed == 1)


async def test_answers_of_several_stores_are_united():
    async with service() as first, service() as second:
        shared, only_first, only_second = (message(number) for number in range(3))
        for node, ones in ((first, (shared, only_first)), (second, (shared, only_second))):
            for one in ones:
                parts_of(node).archive.put(one, 0)
        async with await LightNode.start([first.addresses[0], second.addresses[0]], FAST) as client:
            await until(lambda: client.status.health is NodeHealth.SUFFICIENTLY_HEALTHY)
            found, cursor = [], None
            for _ in range(10):
                page = await client.query(StoreQuery(pubsub_topic=SHARD, page_size=1), cursor)
                found += page.messages
                cursor = page.cursor
                if cursor is None:
                    break
            hashes = {one.message_hash for one in (shared, only_first, only_second)}
            assert {one.message_hash for one in found} == hashes
            looked_up = await client.query(StoreQuery(message_hashes=tuple(hashes)))
            assert {one.message_hash for one in looked_up.messages} == hashes
            with pytest.raises(StoreQueryError, match="cursor"):
                await client.query(StoreQuery(), b"not a cursor")


async def test_a_peer_of_another_cluster_is_parted_with():
    async with service() as node:
        light = await LightNode.start([node.addresses[0]], LightOptions(cluster_id=1), connect_timeout_s=None)
        async with light:
            await until(lambda: "the peer is of cluster 16, this node of cluster 1" in light.status.detail)


async def test_an_unreachable_and_an_invalid_address_raise_clear_errors():
    with pytest.raises(ConfigurationError, match="multiaddr"):
        await LightNode.start([])
    with pytest.raises(ConfigurationError):
        await fairway.connect("/ip4/not-an-address/tcp/1")
    with pytest.raises(NodeUnavailableError, match="or give the address of one that runs"):
        await fairway.connect("/ip4/127.0.0.1/tcp/9", connect_timeout_s=0.3)


async def test_messages_lost_on_purpose_are_in_the_store():
    async with (
        service(loss=0.5, seed=7) as node,
        await LightNode.start([node.addresses[0]], FAST) as client,
    ):
        subscription = await client.subscribe(SHARD, [TOPIC])
        for number in range(200):
            await node.send(message(number))
        await until(lambda: parts_of(node).pusher.statistics().waiting_bytes == 0)
        await until(lambda: len(subscription) == parts_of(node).pusher.statistics().pushed)
        assert 60 < len(subscription) < 140
        page = await client.query(StoreQuery(pubsub_topic=SHARD, page_size=100))
        assert len(page.messages) == 100


async def test_ephemeral_messages_reach_subscribers_and_no_store():
    async with service() as node, await LightNode.start([node.addresses[0]], FAST) as client:
        subscription = await client.subscribe(SHARD, [TOPIC])
        assert (await client.send(message(ephemeral=True))).accepted
        assert await received(subscription, 1)
        assert (await client.query(StoreQuery())).messages == ()


async def test_closing_ends_subscriptions_and_leaves_no_task():
    before = asyncio.all_tasks()
    async with service() as node:
        client = await LightNode.start([node.addresses[0]], FAST)
        subscription = await client.subscribe(SHARD, [TOPIC])
        await client.close()
        await client.close()
        assert [one async for one in subscription] == []
        assert client.status.health is NodeHealth.UNHEALTHY
        with pytest.raises(NodeUnavailableError):
            await client.subscribe(SHARD, [TOPIC])
    await node.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
