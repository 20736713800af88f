"""Two hosts: who connects to whom, what they know of each other, and what is left when one of them goes."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import AddressError, ConnectionClosedError, DialError, NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.peer_book import PeerConnected, PeerDisconnected, PeerIdentified
from fairway.libp2p.peer_id import PeerId

TCP = "/ip4/127.0.0.1/tcp/0"
WS = "/ip4/127.0.0.1/tcp/0/ws"
YAMUX, MPLEX = "/yamux/1.0.0", "/mplex/6.7.0"


async def echo(stream):
    while (message := await stream.read_frame(1 << 22)) is not None:
        await stream.write_frame(message)


@pytest.mark.parametrize("listen", [TCP, WS, "/ip6/::1/tcp/0", "/ip6/::1/tcp/0/ws"])
@pytest.mark.parametrize("muxer", [YAMUX, MPLEX])
def test_two_hosts_talk_over_every_transport_and_muxer(run, listen, muxer):
    async def scenario():
        async with await Host.start(listen=[listen]) as server, await Host.start(muxers=[muxer]) as client:
            server.handle("/echo/1", echo)
            connection = await client.connect(server.addresses[0])
            assert connection.peer_id == server.peer_id
            assert connection.muxer == muxer
            async with await client.open_stream(server.peer_id, ["/echo/2", "/echo/1"]) as stream:
                assert stream.protocol == "/echo/1"
                for size in (0, 1, 1000, 70_000, 1_500_000):
                    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
                    await stream.write_frame(message)
                    assert await stream.read_frame(1 << 22) == message

    run(scenario())


def test_dialling_another_peer_than_the_one_that_answers_names_both(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            wanted = PeerId.from_public_key(IdentityKey.generate().public_key)
            address = server.addresses[0].without_peer_id().with_peer_id(wanted)
            with pytest.raises(DialError) as caught:
                await client.connect(address)
            assert str(wanted) in str(caught.value)
            assert str(server.peer_id) in str(caught.value)
            assert client.connections() == ()

    run(scenario())


def test_an_address_without_a_peer_id_connects_to_whoever_answers(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            connection = await client.connect(server.addresses[0].without_peer_id())
            assert connection.peer_id == server.peer_id

    run(scenario())


def test_a_connection_that_is_up_is_used_again(run):
    async def scenario():
        async with await Host.start(listen=[TCP, WS]) as server, await Host.start() as client:
            first = await client.connect(server.addresses[0])
            assert await client.connect(server.addresses[1]) is first
            assert await client.connect(server.addresses[0]) is first

    run(scenario())


def test_hosts_that_dial_each_other_at_once_are_connected(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as one, await Host.start(listen=[TCP]) as other:
            one.handle("/echo/1", echo)
            other.handle("/echo/1", echo)
            await asyncio.gather(one.connect(other.addresses[0]), other.connect(one.addresses[0]))
            for here, there in ((one, other), (other, one)):
                async with await here.open_stream(there.peer_id, ["/echo/1"]) as stream:
                    await stream.write_frame(b"hello")
                    assert await stream.read_frame(100) == b"hello"

    run(scenario())


def test_a_name_is_resolved(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            port = server.addresses[0].port
            for kind in ("dns", "dns4"):
                connection = await client.connect(f"/{kind}/localhost/tcp/{port}/p2p/{server.peer_id}")
                assert connection.peer_id == server.peer_id
                await connection.close()

    run(scenario())


@pytest.mark.parametrize(
    "address", ["/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1/ws", "/dns4/does-not-exist.invalid/tcp/1"]
)
def test_where_nobody_answers_there_is_a_dial_error_that_names_the_address(run, address):
    async def scenario():
        async with await Host.start() as client:
            with pytest.raises(DialError, match=address):
                await client.connect(address)

    run(scenario())


def test_a_peer_that_says_nothing_is_given_up_in_time(run, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.dialer.HANDSHAKE_TIMEOUT_S", 0.1)

    async def scenario():
        async def silence(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        address = f"/ip4/127.0.0.1/tcp/{server.sockets[0].getsockname()[1]}"
        async with server, await Host.start() as client:
            with pytest.raises(DialError, match="too long"):
                await client.connect(address)
            with pytest.raises(DialError, match=r"longer than 0\.05 s"):
                await client.connect(address, timeout_s=0.05)

    run(scenario())


def test_a_host_does_not_dial_itself(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as host:
            with pytest.raises(DialError, match="itself"):
                await host.connect(host.addresses[0])
            with pytest.raises(DialError, match="itself"):
                await host.connect(host.addresses[0].without_peer_id())

    run(scenario())


def test_what_cannot_be_listened_on_or_dialled_says_what_can(run):
    async def scenario():
        with pytest.raises(AddressError, match="IP address"):
            await Host.start(listen=["/dns4/localhost/tcp/0"])
        with pytest.raises(AddressError, match="neither a TCP nor a WebSocket"):
            await Host.start(listen=["/ip4/127.0.0.1/udp/0/quic-v1"])
        with pytest.raises(AddressError, match="put a proxy with one"):
            await Host.start(listen=["/ip4/127.0.0.1/tcp/0/wss"])
        with pytest.raises(ConfigurationError, match="yamux"):
            await Host.start(muxers=["/spdy/3"])
        async with await Host.start() as host:
            with pytest.raises(AddressError, match="cannot be dialled"):
                await host.connect("/ip4/127.0.0.1/udp/1/quic-v1")

    run(scenario())


def test_a_port_that_is_taken_is_an_error_and_leaves_no_listener(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as first:
            with pytest.raises(OSError, match="in use"):
                await Host.start(listen=[TCP, first.addresses[0]])

    run(scenario())


def test_no_common_muxer_is_a_dial_error(run):
    async def scenario():
        async with await Host.start(listen=[TCP], muxers=[YAMUX]) as server, await Host.start(muxers=[MPLEX]) as client:
            with pytest.raises(DialError, match="none of /mplex"):
                await client.connect(server.addresses[0])

    run(scenario())


def test_watchers_learn_who_comes_what_it_serves_and_that_it_goes(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server:
            events = server.watch()
            async with await Host.start() as client:
                client.handle("/echo/1", echo)
                await client.connect(server.addresses[0])
                connected, identified = [await anext(events) for _ in range(2)]
                assert isinstance(connected, PeerConnected)
                assert isinstance(identified, PeerIdentified)
                assert connected.peer_id == identified.peer_id == client.peer_id
                assert "/echo/1" in identified.protocols
                assert server.protocols_of(client.peer_id) == identified.protocols
            assert await anext(events) == PeerDisconnected(peer_id=client.peer_id)
            assert server.protocols_of(client.peer_id) == frozenset()
        assert [event async for event in events] == []

    run(scenario())


def test_disconnecting_ends_every_connection_with_a_peer_and_streams_say_so(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            server.handle("/echo/1", echo)
            events = server.watch()
            await client.connect(server.addresses[0])
            await client.open_stream(server.peer_id, ["/echo/1"])
            await client.disconnect(server.peer_id)
            assert client.connections() == ()
            with pytest.raises(ConnectionClosedError, match="connect first"):
                await client.open_stream(server.peer_id, ["/echo/1"])
            async for event in events:
                if isinstance(event, PeerDisconnected):
                    break
            assert server.statistics().connections == 0

    run(scenario())


def test_a_protocol_that_the_peer_does_not_speak_is_a_typed_error(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            await client.connect(server.addresses[0])
            with pytest.raises(NegotiationError, match="none of /a/1, /b/1"):
                await client.open_stream(server.peer_id, ["/a/1", "/b/1"])

    run(scenario())


def test_a_closed_host_says_so_and_may_be_closed_again(run):
    async def scenario():
        async with await Host.start(listen=[TCP]) as server:
            client = await Host.start()
            await client.close()
            await client.close()
            with pytest.raises(ConnectionClosedError, match="closed"):
                await client.connect(server.addresses[0])

    run(scenario())


def test_a_host_can_be_closed_from_one_of_its_handlers(run):
    async def scenario():
        done = asyncio.Event()

        async def leave(stream):
            await stream.connection.close()
            done.set()

        async with await Host.start(listen=[TCP]) as server, await Host.start() as client:
            server.handle("/leave/1", leave)
            await client.connect(server.addresses[0])
            await client.open_stream(server.peer_id, ["/leave/1"])
            await done.wait()

    run(scenario())
