"""The bounds of a host: each is reached, each costs whoever reached it, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import DialError, Libp2pError, LimitError, StreamResetError
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.limits import ConnectionAdmission, HostLimits
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.transports.tcp import dial_tcp
from muxers import MUXERS
from patience import until

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


async def hold(stream):
    while await stream.read():
        pass


class Door:
    """An admission with a crowd, and who of it was turned away."""

    def __init__(self):
        self.admission = ConnectionAdmission(HostLimits())
        self.away = []

    def begin_handshake(self, ip, name):
        return self.admission.begin_handshake(ip, lambda: self.away.append(name))


@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_allows_nothing_is_refused_where_it_is_written(value):
    with pytest.raises(ConfigurationError, match=f"max_connections must be at least 1, not {value}"):
        HostLimits(max_connections=value)


def test_the_address_with_the_largest_crowd_gives_way_when_the_whole_door_is_full(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.limits.MAX_PENDING_HANDSHAKES", 5)
    monkeypatch.setattr("fairway.libp2p.limits.MAX_PENDING_HANDSHAKES_PER_IP", 4)
    door = Door()
    door.begin_handshake("192.0.2.9", "honest, and the oldest of all")
    for number in range(4):
        door.begin_handshake("192.0.2.1", number)
    door.begin_handshake("192.0.2.2", "newcomer")
    assert door.away == [0]


def test_a_peer_has_no_more_connections_than_it_may(run):
    async def scenario():
        key = IdentityKey.generate()
        async with await Host.start(listen=LISTEN) as server, contextlib.AsyncExitStack() as stack:
            for _ in range(6):
                twin = await stack.enter_async_context(await Host.start(key=key))
                await twin.connect(server.addresses[0])
            await until(lambda: server.statistics().refused_connections == 2)
            assert server.statistics().connections == 4
            assert server.statistics().peers == 1

    run(scenario())


@MUXERS
def test_a_peer_that_opens_too_many_streams_of_a_protocol_has_those_reset(run, muxer):
    async def scenario():
        async with await Host.start(listen=LISTEN) as server, await Host.start(muxers=[muxer]) as client:
            server.handle("/hold/1", hold, max_streams_per_peer=3)
            server.handle("/other/1", hold)
            connection = await client.connect(server.addresses[0])
            held = [await connection.open_stream(["/hold/1"]) for _ in range(3)]
            with pytest.raises(StreamResetError):
                await (await connection.open_stream(["/hold/1"])).read()
            await connection.open_stream(["/other/1"])
            await held[0].close()
            await until(lambda: server.statistics().inbound_streams == 3)
            again = await connection.open_stream(["/hold/1"])
            await again.write(b"welcome again")

    run(scenario())


@MUXERS
def test_two_thousand_silent_streams_are_bounded_and_others_are_served(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.connection.NEGOTIATION_TIMEOUT_S", 0.5)
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_INBOUND_STREAMS", 100)
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_OUTBOUND_STREAMS", 10_000)

    async def scenario():
        async with (
            await Host.start(listen=LISTEN) as server,
            await Host.start(muxers=[muxer]) as hostile,
            await Host.start(muxers=[muxer]) as honest,
        ):
            server.handle("/hold/1", hold)
            connection = await hostile.connect(server.addresses[0])
            core = connection.mux
            for _ in range(2000):
                core.open_stream()
            connection.flush()
            await until(lambda: core.outbound_streams <= 100)
            assert server.statistics().inbound_streams <= 100
            await honest.connect(server.addresses[0])
            await served(honest, server)
            await until(lambda: server.statistics().inbound_streams == 0)

    run(scenario())


async def served(honest, server):
    """Speak to a host that waits only a moment for a protocol's name: on a slow machine one of them may take longer."""
    while True:
        with contextlib.suppress(Libp2pError):
            async with await honest.open_stream(server.peer_id, ["/hold/1"]) as stream:
                return await stream.write(b"served")


@MUXERS
def test_a_stream_beyond_the_limit_waits_until_another_one_ends_and_only_so_long(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.connection.MAX_OUTBOUND_STREAMS", 2)
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_OUTBOUND_STREAMS", 2)

    async def scenario():
        async with await Host.start(listen=LISTEN) as server, await Host.start(muxers=[muxer]) as client:
            server.handle("/hold/1", hold)
            connection = await client.connect(server.addresses[0])
            await until(lambda: client.protocols_of(server.peer_id))
            await until(lambda: client.statistics().outbound_streams == 0)
            held = [await connection.open_stream(["/hold/1"]) for _ in range(2)]
            with pytest.raises(LimitError, match=r"2 streams .* within 0\.05 s"):
                await connection.open_stream(["/hold/1"], timeout_s=0.05)
            waiting = [asyncio.create_task(connection.open_stream(["/hold/1"], timeout_s=60)) for _ in range(2)]
            await asyncio.sleep(0)
            assert client.statistics().outbound_streams == 2
            await held[0].reset()
            await held[1].close()
            await asyncio.gather(*waiting)

    run(scenario())


@MUXERS
def test_three_hundred_streams_at_once_reach_a_peer_that_accepts_as_many_as_nim_libp2p(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_INBOUND_STREAMS", 200)

    async def scenario():
        async with await Host.start(listen=LISTEN) as server, await Host.start(muxers=[muxer]) as client:

            async def echo(stream):
                await stream.write(await stream.read_exactly(1))

            server.handle("/echo/1", echo, max_streams_per_peer=1_000)
            connection = await client.connect(server.addresses[0])

            async def asked(number):
                async with await connection.open_stream(["/echo/1"], timeout_s=60) as stream:
                    await stream.write(bytes([number % 256]))
                    return await stream.read_exactly(1)

            answers = await asyncio.gather(*(asked(number) for number in range(300)))
            assert answers == [bytes([number % 256]) for number in range(300)]

    run(scenario())


def test_addresses_of_one_network_of_ipv6_are_one_place(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.limits.MAX_PENDING_HANDSHAKES_PER_IP", 2)
    door = Door()
    for number in range(3):
        door.begin_handshake(f"2001:db8:0:1::{number}", number)
    door.begin_handshake("2001:db8:0:2::1", "another network")
    assert door.away == [0]
    assert door.admission.pending == 3


def test_a_crowd_that_took_every_place_keeps_a_host_from_dialling_nobody(run):
    async def scenario():
        limits = HostLimits(max_connections=8)
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(await Host.start(listen=LISTEN, limits=limits))
            known = await stack.enter_async_context(await Host.start(listen=LISTEN))
            crowd = [await stack.enter_async_context(await Host.start()) for _ in range(8)]
            for one in crowd:
                with contextlib.suppress(DialError):
                    await one.connect(server.addresses[0])
            await until(lambda: server.statistics().refused_connections == 1)
            assert server.statistics().connections == 7
            await server.connect(known.addresses[0])
            assert server.statistics().connections == 8
            await crowd[0].close()
            await until(lambda: server.statistics().connections == 7)
            await crowd[7].connect(server.addresses[0])
            await until(lambda: server.statistics().connections == 8)

    run(scenario())


def test_a_peer_that_vanished_without_a_word_is_found_by_ping(run, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.connection.KEEPALIVE_INTERVAL_S", 0.1)

    async def scenario():
        async with await Host.start(listen=LISTEN) as server, await Host.start() as client:
            connection = await client.connect(server.addresses[0])
            await until(lambda: server.statistics().connections == 1)
            for _ in range(3):
                before = server.connections()[0].received_bytes
                await until(lambda before=before: server.connections()[0].received_bytes > before)
            assert server.statistics().connections == 1, "a peer that answers pings stays"
            with frozen(connection):
                await until(lambda: server.statistics().connections == 0)

    run(scenario())


@contextlib.contextmanager
def frozen(connection):
    """A machine that is gone: its sockets are still there, and nothing is read from them any more."""
    transport = connection.link.transport
    thaw = asyncio.Event()
    read = transport.read

    async def read_later():
        await thaw.wait()
        return await read()

    transport.read = read_later
    try:
        yield
    finally:
        thaw.set()


@MUXERS
def test_a_peer_that_takes_nothing_is_disconnected(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.connection.KEEPALIVE_INTERVAL_S", 0.1)
    monkeypatch.setattr("fairway.libp2p.connection.WRITE_STALL_TIMEOUT_S", 0.2)
    monkeypatch.setattr("fairway.libp2p.mux.muxer.INITIAL_SEND_WINDOW_BYTES", 1 << 26)

    async def scenario():
        async def pour(stream):
            while True:
                await stream.write(bytes(100_000))

        async with await Host.start(listen=LISTEN) as server, await Host.start(muxers=[muxer]) as client:
            server.handle("/pour/1", pour)
            connection = await client.connect(server.addresses[0])
            await connection.open_stream(["/pour/1"])
            with frozen(connection):
                await until(lambda: server.statistics().connections == 0)

    run(scenario())


def test_a_connection_that_closed_when_all_was_sent_can_still_be_aborted(run):
    async def scenario():
        async def read_late(reader, writer):
            await closing.wait()
            sizes.append(len(await reader.read()))
            writer.close()

        closing, sizes = asyncio.Event(), []
        async with await asyncio.start_server(read_late, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            transport = await dial_tcp(Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}"))
            transport.write(bytes(8_000_000))
            asyncio.get_running_loop().call_soon(closing.set)
            await transport.close()
            transport.abort()
            await until(lambda: sizes)

    run(scenario())
