"""A light client that finds no service node says of each address why."""

import asyncio

import pytest

from fairway.errors import NodeUnavailableError
from fairway.libp2p.host import Host
from fairway.nodes.light import LightNode

OTHER = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust"


def failure(address_of):
    async def work():
        host = await Host.start(listen=["/ip4/127.0.0.1/tcp/0"])
        try:
            address = str(host.addresses[0])
            if address_of is None:
                await host.close()
            with pytest.raises(NodeUnavailableError) as caught:
                await LightNode.start([address if address_of is None else address_of(address)], connect_timeout_s=1)
            return address, str(caught.value)
        finally:
            await host.close()

    return asyncio.run(work())


def test_nobody_listens_there():
    address, told = failure(None)
    assert f"cannot connect to {address}" in told
    assert told.endswith("give the address of one that runs: 'fairway node' prints its own")


def test_somebody_else_listens_there():
    _, told = failure(lambda address: f"{address.rpartition('/')[0]}/{OTHER}")
    assert f"expected {OTHER}, found " in told


def test_it_serves_nothing():
    _, told = failure(lambda address: address)
    assert "1 connected, which serve no light push and filter to this cluster" in told
