"""A REST client of a real node: channels, gaps, restarts, status."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import fairway
from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError
from fairway.nodes.node import NodeHealth, StoreQuery
from fairway.nodes.rest import ReceiveWay, RestNode
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from patience import PATIENCE_S, run

QUICK = {"poll_interval_s": 0.1, "busy_poll_interval_s": 0.02, "check_interval_s": 0.3, "first_pause_s": 0.05}
WAYS = pytest.mark.parametrize("way", list(ReceiveWay), ids=lambda way: way.value)


def hashes(messages):
    return sorted(message.message_hash for message in messages)


@WAYS
def test_a_channel_between_a_rest_client_and_a_light_client_files_included(rest, way):
    async def work():
        async with (
            await ServiceNode.start(ServiceOptions()) as node,
            await RestServer.start(node) as server,
            AsyncExitStack() as exits,
        ):
            options = rest.options(receive=(way,), **QUICK)
            channels = []
            clients = {
                "alice": await fairway.connect(server.url, options=options),
                "bob": await fairway.connect(str(node.addresses[0])),
            }
            for name, client in clients.items():
                await exits.enter_async_context(client)
                channel = await fairway.create_reliable_channel(client, "team", name, "/myapp/1/team/proto")
                channels.append(await exits.enter_async_context(channel))
            alice, bob = channels
            file = bytes(range(256)) * 400
            for sender, receiver, payload in ((alice, bob, file), (bob, alice, file[::-1])):
                receipt = await sender.send(payload)
                async with asyncio.timeout(PATIENCE_S):
                    async for got in receiver:
                        if bytes(got) == payload:
                            break
                    await receiver.send(b"thank you")
                    assert len((await receipt.delivered()).delivered_to) == 1

    run(work())


@WAYS
def test_everything_comes_once_in_every_way(rest, way):
    async def work():
        async with rest.served() as (node, server), await rest.client(server.url, receive=(way,), **QUICK) as client:
            await node.send(rest.message(-1))
            subscription = await client.subscribe(rest.shard, [rest.topic])
            sent = [rest.message(number) for number in range(30)]
            for number, one in enumerate(sent):
                assert (await (client if number % 2 else node).send(one)).accepted
            await node.send(rest.message(0, topic="/fairway-test/1/other/proto"))
            got = await rest.received(subscription, 30)
            assert hashes(got) == hashes(sent)
            last = rest.message(99)
            await node.send(last)
            assert hashes(await rest.received(subscription, 1)) == [last.message_hash]
            assert len(subscription) == 0

    rest.run(work())


@pytest.mark.parametrize("way", [ReceiveWay.RELAY, ReceiveWay.FILTER], ids=lambda way: way.value)
def test_a_cache_that_overflows_between_two_questions_costs_nothing(rest, way):
    async def work():
        async with rest.served() as (node, server), await rest.client(server.url, receive=(way,), **QUICK) as client:
            subscription = await client.subscribe(rest.shard, [rest.topic])
            sent = []
            for _ in range(3):
                burst = [rest.message(payload=bytes([n]) * 2_000) for n in range(130)]
                for one in burst:
                    await node.send(one)
                sent += burst
                await rest.until(lambda: len(subscription) >= len(sent))  # noqa: B023 - waited for within this turn
            got = await rest.received(subscription, len(sent))
            assert hashes(got) == hashes(sent)
            cache = server.context.relayed if way is ReceiveWay.RELAY else server.context.filtered
            assert cache.overflowed > 0
            (feed,) = client.feeds
            assert feed.caught_up > 0

    rest.run(work())


def test_two_programs_that_empty_the_same_cache_both_get_everything(rest):
    async def work():
        ways = {"receive": (ReceiveWay.RELAY,), **QUICK}
        async with (
            rest.served() as (node, server),
            await rest.client(server.url, **ways) as one,
            await rest.client(server.url, **ways) as two,
        ):
            subscriptions = [await client.subscribe(rest.shard, [rest.topic]) for client in (one, two)]
            sent = [rest.message(number) for number in range(40)]
            for number, message in enumerate(sent):
                await node.send(message)
                if number % 4 == 0:  # so that now one, now the other one asks first
                    await rest.until(lambda number=number: sum(map(len, subscriptions)) > number)
            for subscription in subscriptions:
                assert hashes(await rest.received(subscription, 40)) == hashes(sent)

    rest.run(work())


@WAYS
def test_what_is_sent_while_the_api_is_away_comes_when_it_is_back(rest, way):
    async def work():
        async with rest.node() as node:
            server = await RestServer.start(node)
            port = server.port
            client = await rest.client(server.url, receive=(way,), longest_pause_s=0.2, **QUICK)
            async with client:
                changes = client.status_changes()
                subscription = await client.subscribe(rest.shard, [rest.topic])
                before = rest.message(0)
                await node.send(before)
                assert hashes(await rest.received(subscription, 1)) == [before.message_hash]
                await server.close()
                await rest.until(lambda: client.status.health is NodeHealth.UNHEALTHY)
                refused = await client.send(rest.message(1))
                assert (refused.accepted, refused.permanent) == (False, False)
                missed = [rest.message(number) for number in range(2, 80)]
                for one in missed:
                    await node.send(one)
                async with await RestServer.start(node, RestOptions(port=port)):
                    assert hashes(await rest.received(subscription, 78)) == hashes(missed)
                    await rest.until(lambda: client.status.connected)
                    after = rest.message(99)
                    assert (await client.send(after)).accepted
                    assert hashes(await rest.received(subscription, 1)) == [after.message_hash]
                seen = []
                async with asyncio.timeout(PATIENCE_S):
                    async for status in changes:
                        seen.append(status.connected)
                        if seen[-2:] == [False, True] and len(seen) > 2:
                            break

    rest.run(work())


def test_a_stream_that_dropped_messages_is_made_whole_from_the_store(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.events.EVENT_STREAM_BYTES", 1_000)

    async def work():
        async with rest.served() as (node, server), await rest.client(server.url) as client:
            subscription = await client.subscribe(rest.shard, [rest.topic])
            sent = [rest.message(payload=bytes([number]) * 600) for number in range(50)]
            for one in sent:
                await node.send(one)
            assert hashes(await rest.received(subscription, 50)) == hashes(sent)
            (feed,) = client.feeds
            assert (feed.way, feed.caught_up > 0) == (ReceiveWay.EVENTS, True)

    rest.run(work())


def test_queries_go_to_the_nodes_store_page_by_page(rest):
    async def work():
        async with rest.served() as (node, server), await rest.client(server.url) as client:
            sent = [rest.message(number, time_ns=1_000 + number) for number in range(25)]
            for one in sent:
                await node.send(one)
            for newest_first in (False, True):
                query = StoreQuery(
                    pubsub_topic=rest.shard, content_topics=(rest.topic,), page_size=10, newest_first=newest_first
                )
                cursor, theirs, ours = None, [], []
                while True:
                    page = await client.query(query, cursor)
                    theirs.append([one.message_hash for one in page.messages])
                    ours.append([one.message_hash for one in (await node.query(query, cursor)).messages])
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert theirs == ours
                assert len(theirs) == 3
            ranged = await client.query(StoreQuery(start_ns=1_003, end_ns=1_005))
            assert [one.message.timestamp_ns for one in ranged.messages] == [1_003, 1_004]
            found = await client.query(StoreQuery(message_hashes=(sent[7].message_hash,)))
            assert found.messages[0].message.payload == sent[7].message.payload
            with pytest.raises(StoreQueryError, match="400"):
                await client.query(StoreQuery(), b"n" * 32)
        with pytest.raises(StoreQueryError, match="closed"):
            await client.query(StoreQuery())

    rest.run(work())


def test_another_store_node_is_asked_when_the_address_names_it(rest):
    async def work():
        async with rest.served() as (keeper, _), rest.served(archive=None) as (_, forgetful):
            kept = rest.message(1)
            await keeper.send(kept)
            async with await rest.client(f"{forgetful.url}?peerAddr={keeper.addresses[0]}") as client:
                page = await client.query(StoreQuery())
                assert hashes(page.messages) == [kept.message_hash]

    rest.run(work())


def test_subscriptions_share_what_they_have_in_common_and_end_by_themselves(rest):
    async def work():
        other = "/fairway-test/1/other/proto"
        async with rest.served() as (node, server), await rest.client(server.url) as client:
            both = await client.subscribe(rest.shard, [rest.topic, other])
            one = await client.subscribe(rest.shard, [rest.topic])
            assert len(client.feeds) == 2
            await node.send(rest.message(1))
            await node.send(rest.message(2, topic=other))
            assert len(await rest.received(both, 2)) == 2
            assert len(await rest.received(one, 1)) == 1
            both.close()
            assert [feed.criterion for feed in client.feeds] == [(rest.shard, rest.topic)]
            one.close()
            assert client.feeds == ()
            await rest.until(lambda: not server.context.event_streams)
            assert client.status.connected
            again = await client.subscribe(rest.shard, [rest.topic])
            await node.send(rest.message(3))
            assert [got.message.payload for got in await rest.received(again, 1)] == [b"message 3"]
        assert await again.next_batch() == []
        with pytest.raises(NodeUnavailableError, match="closed"):
            await client.subscribe(rest.shard, [rest.topic])
        assert not (await client.send(rest.message(4))).accepted

    rest.run(work())


def test_a_node_without_relay_peers_is_unhealthy_until_it_has_one(rest):
    async def work():
        async with (
            rest.node() as hub,
            rest.served(peers=(str(hub.addresses[0]),)) as (_, server),
            await rest.client(server.url) as client,
        ):
            await rest.until(lambda: client.status.health is NodeHealth.SUFFICIENTLY_HEALTHY)
            assert client.status.store
            await hub.close()
            await rest.until(lambda: not client.status.connected)
            result = await client.send(rest.message(1))
            assert (result.accepted, result.permanent) == (False, False)
            assert "505" in result.detail

    rest.run(work())


def test_nobody_at_the_address_is_an_error_in_time_or_waited_for(rest, unused_port):
    async def work():
        url = f"http://127.0.0.1:{unused_port}"
        with pytest.raises(NodeUnavailableError, match=r"does not answer within 0\.2 s"):
            await fairway.connect(url, connect_timeout_s=0.2)
        options = rest.options(first_pause_s=0.05, health_interval_s=0.1, shard_count=1, request_timeout_s=600.0)
        async with await RestNode.start(url, options, connect_timeout_s=None) as client:
            await rest.until(lambda: client.status.detail)
            subscription = await client.subscribe(rest.shard, [rest.topic])
            assert not client.status.connected
            async with rest.node() as node:
                early = rest.message(1)
                await node.send(early)
                async with await RestServer.start(node, RestOptions(port=unused_port)):
                    assert hashes(await rest.received(subscription, 1)) == [early.message_hash]
                    await rest.until(lambda: client.status.connected)

    rest.run(work())


@pytest.mark.parametrize("address", ["http://", "https://:80", "http://[::1", "http:127.0.0.1", "httpx://127.0.0.1"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ConfigurationError, match=r"an example is http://127\.0\.0\.1:8645"):
        asyncio.run(fairway.connect(address))


@pytest.mark.parametrize(
    "wrong",
    [
        {"poll_interval_s": 1.5},
        {"poll_interval_s": 0},
        {"receive": ()},
        {"request_timeout_s": 0},
    ],
)
def test_options_that_cannot_work_are_refused(rest, wrong):
    with pytest.raises(ConfigurationError):
        rest.options(**wrong)
