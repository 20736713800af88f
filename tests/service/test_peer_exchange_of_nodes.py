"""What a service node tells others of itself and of the nodes that it knows."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from fairway.libp2p.errors import NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.discovery.node_record import Capability, NodeRecord
from fairway.nodes.protocols.peer_exchange import ask_for_records
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.relay_shards import RelayShards
from patience import PATIENCE_S

SHARDS = RelayShards(cluster_id=16, shards=frozenset({0}))
OTHER = NodeRecord.sign(
    IdentityKey.generate(KeyType.SECP256K1),
    sequence=1,
    addresses=[Multiaddr.parse("/ip4/192.0.2.7/tcp/60000")],
    relay_shards=SHARDS,
)


@asynccontextmanager
async def asking(key=None, **changes):
    options = ServiceOptions(**{"cluster_id": 16, "shards": (0,), "shard_count": 1, **changes})
    async with await ServiceNode.start(options, key=key) as node, await Host.start() as host:
        await host.connect(str(parts_of(node).host.listening[0]).replace("0.0.0.0", "127.0.0.1"))

        async def ask():
            return (await ask_for_records(host, node.peer_id, 60, timeout_s=PATIENCE_S)).records

        yield node, ask


async def test_a_record_has_the_addresses_and_services_of_its_node():
    async with asking() as (node, ask):
        (record,) = await ask()
        assert record == node.record
        assert record.peer_id == node.peer_id
        assert set(record.addresses) == set(node.addresses)
        assert record.relay_shards == SHARDS
        assert record.capabilities == Capability(15)


async def test_a_record_of_a_node_without_an_archive_lacks_store():
    async with asking(archive=None) as (_, ask):
        assert Capability.STORE not in (await ask())[0].capabilities


async def test_a_node_returns_the_records_of_other_nodes():
    async with asking() as (node, ask):
        parts_of(node).records.add(OTHER)
        assert set(await ask()) == {node.record, OTHER}


async def test_a_record_of_a_node_on_all_addresses_has_reachable_ones():
    async with asking(host="0.0.0.0") as (node, ask):
        told = {address.host for address in (await ask())[0].addresses}
        assert "0.0.0.0" not in told
        assert told <= {address.host for address in node.addresses}
        assert told


async def test_a_record_has_only_the_announced_addresses():
    announced = ("/ip4/203.0.113.5/tcp/60000", "/dns4/node.example.org/tcp/443/tls/ws")
    async with asking(announce=announced) as (node, ask):
        assert (await ask())[0].addresses == node.addresses
        assert [str(address.without_peer_id()) for address in node.addresses] == list(announced)


async def test_a_peer_that_asks_too_often_is_refused_and_counted():
    async with asking(request_rate=RequestRate(per_second=0.01, burst=1)) as (node, ask):
        await ask()
        with pytest.raises(NegotiationError, match="429"):
            await ask()
        assert parts_of(node).limiters["peer_exchange"].refused == 1
