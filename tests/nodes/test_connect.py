"""From an address to a node, or to an error that shows which addresses there are."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ConfigurationError
from fairway.nodes import connect
from fairway.nodes.light import LightOptions
from fairway.nodes.local import LocalNode, process_network
from fairway.nodes.rest import RestNodeOptions


def test_local_is_one_network_for_the_whole_process(say):
    async def story():
        async with await connect("local:") as alice, await connect("local:", name="bob") as bob:
            assert isinstance(alice, LocalNode)
            assert isinstance(bob, LocalNode)
            assert bob.name == "bob"
            assert bob in process_network().nodes
            heard = await say.listen(bob)
            await alice.send(say.message(1))
            assert say.payloads(heard.take()) == [b"message 1"]

    asyncio.run(story())
    asyncio.run(story())


def test_named_networks_do_not_hear_each_other(say):
    async def story():
        async with await connect("local:one") as here, await connect("local:two") as there:
            heard = await say.listen(there)
            await here.send(say.message(1))
            assert len(heard) == 0
            assert process_network("one") is not process_network("two")

    asyncio.run(story())


def test_a_network_that_was_closed_is_followed_by_a_new_one():
    network = process_network("closed in between")
    network.close()
    assert process_network("closed in between") is not network


@pytest.mark.parametrize(
    "address", ["", "localhost", "ftp://127.0.0.1:8645", "ip4/127.0.0.1/tcp/60000", "Local:", None, 7, b"local:"]
)
def test_an_address_that_is_not_understood_is_answered_with_those_that_are(address):
    with pytest.raises(ConfigurationError, match=r"this version understands .* local: or local:NAME"):
        asyncio.run(connect(address))


def test_an_option_that_an_address_does_not_have_is_answered_with_those_that_it_has():
    with pytest.raises(ConfigurationError, match="no option 'options'; it has name"):
        asyncio.run(connect("local:", options=LightOptions()))
    with pytest.raises(ConfigurationError, match="it has options, connect_timeout_s"):
        asyncio.run(connect("/ip4/127.0.0.1/tcp/1", name="alice"))
    with pytest.raises(ConfigurationError, match="are LightOptions, not RestNodeOptions"):
        asyncio.run(connect("/ip4/127.0.0.1/tcp/1", options=RestNodeOptions()))
    with pytest.raises(ConfigurationError, match="are RestNodeOptions, not LightOptions"):
        asyncio.run(connect("http://127.0.0.1:1", options=LightOptions()))


def test_a_node_is_connected_and_closed_by_async_with_alone():
    async def story():
        async with connect("local:with", name="alice") as node:
            assert node.status.connected
            assert node in process_network("with").nodes
        assert not node.status.connected
        awaited = await connect("local:with")
        assert awaited.status.connected
        await awaited.close()

    asyncio.run(story())
