"""Participants and nodes that find each other: by lists in DNS, by peer exchange, and by what they remember."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import fairway
from dns_lists import dns_server, list_key, make_list, url_of
from fairway.errors import NodeUnavailableError
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.nodes.discovery.network import Network
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import RoutedMessage
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.relay_shards import RelayShards
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, until

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"
DOMAIN = "nodes.example.org"
KEY = list_key()
SHARDS = RelayShards(cluster_id=16, shards=frozenset({0}))


async def service(exits, *, cluster=16, key=None, **changes):
    options = ServiceOptions(**{"cluster_id": cluster, "shards": (0,), "shard_count": 1, "ws_port": None, **changes})
    return await exits.enter_async_context(await ServiceNode.start(options, key=key))


async def light(exits, network, *, wanted=1, memory=None, timeout_s=PATIENCE_S):
    options = LightOptions(peers_to_use=wanted, request_timeout_s=60.0)
    node = await LightNode.start([], options, network=network, memory=memory, connect_timeout_s=timeout_s)
    return await exits.enter_async_context(node)


def network(**changes):
    return Network(**{"source": "this test", "cluster": 16, "shards": 1, **changes})


def by_list(server):
    return network(lists=(url_of(KEY, DOMAIN),), name_servers=(server.address,))


@asynccontextmanager
async def listed(*records):
    async with dns_server(make_list(DOMAIN, KEY, [str(record) for record in records])) as server:
        yield server


def message(number=0):
    content = WakuMessage(payload=b"message %d" % number, content_topic=TOPIC, timestamp_ns=time.time_ns())
    return RoutedMessage.of(SHARD, content)


def peers_of(node):
    host = parts_of(node).host if isinstance(node, ServiceNode) else node.host
    return {connection.peer_id for connection in host.connections()}


async def test_a_fresh_participant_finds_a_node_by_a_list_in_dns_and_talks_over_it(tmp_path):
    async with AsyncExitStack() as exits:
        node = await service(exits)
        server = await exits.enter_async_context(listed(node.record))
        file = tmp_path / "ours.toml"
        file.write_text(
            f'source = "this test"\ncluster = 16\nshards = 1\nlists = ["{url_of(KEY, DOMAIN)}"]\n'
            f'name_servers = ["{server.address}"]\n'
        )
        connecting = {"state": tmp_path / "state", "connect_timeout_s": PATIENCE_S}
        alice = await exits.enter_async_context(fairway.connect(f"waku:{file}", **connecting))
        bob = await exits.enter_async_context(fairway.connect(f"waku:{file}", **connecting))
        received = await bob.subscribe(SHARD, [TOPIC])
        await until(lambda: bob.status.connected)
        sent = message()
        assert (await alice.send(sent)).accepted
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(received)).message == sent.message


async def test_a_participant_that_knows_one_node_finds_another_by_peer_exchange():
    async with AsyncExitStack() as exits:
        known, other = await service(exits), await service(exits)
        parts_of(known).records.add(other.record)
        client = await light(exits, network(peers=(str(known.addresses[0]),)), wanted=2)
        await until(lambda: peers_of(client) == {known.peer_id, other.peer_id})


async def test_nodes_of_a_network_find_each_other_and_relay():
    async with AsyncExitStack() as exits:
        first = await service(exits)
        server = await exits.enter_async_context(listed(first.record))
        second = await service(exits, network=by_list(server))
        await until(lambda: second.status.connected)
        received = await first.subscribe(SHARD, [TOPIC])
        await until(lambda: len(parts_of(second).relay.peers_of(SHARD)) > 0)
        sent = message()
        assert (await second.send(sent)).accepted
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(received)).message == sent.message


async def test_found_nodes_are_remembered_over_a_restart(tmp_path):
    memory = tmp_path / "peers.json"
    async with AsyncExitStack() as exits:
        node = await service(exits)
        async with AsyncExitStack() as first, listed(node.record) as server:
            found = by_list(server)
            await light(first, found, memory=memory)
        client = await light(exits, found, memory=memory)  # the name server is gone
        assert peers_of(client) == {node.peer_id}


async def test_a_node_that_fails_is_replaced_by_another_one():
    async with AsyncExitStack() as exits:
        nodes = {node.peer_id: node for node in [await service(exits), await service(exits)]}
        server = await exits.enter_async_context(listed(*(node.record for node in nodes.values())))
        client = await light(exits, by_list(server))
        (used,) = peers_of(client)
        await nodes.pop(used).close()
        await until(lambda: peers_of(client) == set(nodes))
        await until(lambda: client.status.connected)


async def test_a_record_of_a_wrong_network_is_not_dialled():
    async with AsyncExitStack() as exits:
        right, wrong = await service(exits), await service(exits, cluster=17)
        server = await exits.enter_async_context(listed(wrong.record, right.record))
        client = await light(exits, by_list(server), wanted=2)
        await until(lambda: client.finder.faults["other network"] == 1)
        assert peers_of(client) == {right.peer_id}
        assert peers_of(wrong) == set()


async def test_a_node_that_claims_to_be_of_the_network_and_is_not_is_left():
    async with AsyncExitStack() as exits:
        key = IdentityKey.generate(KeyType.SECP256K1)
        liar = await service(exits, cluster=17, key=key)
        claim = NodeRecord.sign(key, sequence=1, addresses=liar.addresses, relay_shards=SHARDS)
        right = await service(exits)
        server = await exits.enter_async_context(listed(claim, right.record))
        client = await light(exits, by_list(server), wanted=2)
        await until(lambda: any("has ended" in text for text in client.finder.failures()))
        assert client.finder.connected() == (right.peer_id,)


async def test_a_forged_record_in_a_list_is_counted_and_ignored():
    async with AsyncExitStack() as exits:
        node = await service(exits)
        text = str(node.record)
        forged = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
        server = await exits.enter_async_context(dns_server(make_list(DOMAIN, KEY, [forged, text])))
        client = await light(exits, by_list(server), wanted=2)
        await until(lambda: client.finder.faults["signature"] == 1)
        assert peers_of(client) == {node.peer_id}


@pytest.mark.full
async def test_an_error_says_why_no_node_was_found():
    async with AsyncExitStack() as exits:
        server = await exits.enter_async_context(dns_server({}))
        with pytest.raises(NodeUnavailableError, match=rf"no text at {DOMAIN}"):
            await light(exits, by_list(server), timeout_s=3.0)
