"""Peers that mean harm, at every layer: the host stays up, holds little, and goes on serving honest peers."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from fairway.libp2p.errors import DialError
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.link import Link, Upgrader
from fairway.libp2p.multistream import encode_message
from fairway.libp2p.noise.handshake import NoiseCredentials
from fairway.libp2p.noise.pattern import Role
from fairway.libp2p.transports.tcp import dial_tcp
from fairway.wire.varint import encode_uvarint
from muxers import MUXERS
from patience import PATIENCE_S, until

TCP, WS = "/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/tcp/0/ws"
YAMUX, MPLEX = "/yamux/1.0.0", "/mplex/6.7.0"
GET = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
GET += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"


async def echo(stream):
    while (message := await stream.read_frame(1 << 20)) is not None:
        await stream.write_frame(message)


@contextlib.asynccontextmanager
async def node(*, handshake_timeout_s=5.0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairway.libp2p.host.HANDSHAKE_TIMEOUT_S", handshake_timeout_s)
        async with await Host.start(listen=[TCP, WS]) as host:
            host.handle("/echo/1", echo)
            yield host


async def serves(host, muxer=YAMUX):
    """An honest peer comes, is served, and goes."""
    async with await Host.start(muxers=[muxer]) as honest:
        for address in host.addresses:
            connection = await patiently(honest, address)
            async with await connection.open_stream(["/echo/1"]) as stream:
                await stream.write_frame(b"still there?")
                assert await stream.read_frame(100) == b"still there?"
            await connection.close()


async def patiently(host, address):
    """Connect to a host that waits only a moment for a handshake: on a slow machine one of them may take longer."""
    while True:
        with contextlib.suppress(DialError):
            return await host.connect(address)


async def dial_raw(address):
    return await asyncio.open_connection(address.host, address.port)


async def read_to_end(reader):
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass


async def send_garbage(address, data):
    """Send bytes to a socket of the host and wait until it hangs up."""
    reader, writer = await dial_raw(address)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await read_to_end(reader)
        writer.close()
        await writer.wait_closed()


async def hostile_link(address, muxer):
    """Be a peer with a proper identity up to the muxer; what follows is up to the test."""
    credentials = NoiseCredentials.make(IdentityKey.generate())
    upgrader = Upgrader(credentials=credentials, muxers=[muxer])
    link = Link(await dial_tcp(address))
    await upgrader.upgrade(link, Role.INITIATOR)
    return link


async def hang_up(link):
    while await link.transport.read():
        pass
    await link.transport.close()


def noise_message(size):
    return struct.pack(">H", size)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 1000,
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        encode_message("/multistream/1.0.0") + b"\xff\xff\xff\xff\x7f",
        encode_message("/multistream/1.0.0") + encode_message("/tls/1.0.0") * 100,
        encode_message("/multistream/1.0.0") + encode_message("/noise") + noise_message(65_535),
        encode_message("/multistream/1.0.0") + encode_message("/noise") + noise_message(32) + bytes(32),
        encode_message("/multistream/1.0.0") + encode_message("/noise") + noise_message(48) + b"\x07" * 48,
    ],
    ids=["ones", "zeros", "http", "huge-length", "many-proposals", "huge-noise", "low-order-point", "noise-garbage"],
)
@pytest.mark.parametrize("layer", ["tcp", "ws"])
def test_garbage_before_the_peer_is_proven_costs_only_its_connection(run, layer, data):
    async def scenario():
        async with node(handshake_timeout_s=0.3) as host:
            if layer == "tcp":
                await send_garbage(host.addresses[0], data)
            else:
                frame = b"\x82" + struct.pack(">BH", 0x80 | 126, len(data)) + bytes(4) + data
                await send_garbage(host.addresses[1], GET + frame)
            await until(lambda: host.statistics().failed_handshakes == 1)
            await serves(host)

    run(scenario())


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01" + bytes(100),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"X" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000,
        GET + b"\x82\xff" + struct.pack(">Q", 1 << 31) + bytes(4),
        GET + b"\xf2\x80" + bytes(4),
        GET + b"\x81\x84" + bytes(4) + b"text",
    ],
    ids=["tls", "no-upgrade", "no-http", "many-headers", "two-gigabyte-frame", "reserved-bits", "text-frame"],
)
def test_garbage_instead_of_a_websocket_costs_only_its_connection(run, data):
    async def scenario():
        async with node(handshake_timeout_s=0.3) as host:
            await send_garbage(host.addresses[1], data)
            await until(lambda: host.statistics().failed_handshakes == 1)
            await serves(host)

    run(scenario())


def test_random_bytes_at_every_layer_never_end_the_host(run, rng):
    async def scenario():
        async with node(handshake_timeout_s=1.0) as host:
            await asyncio.gather(
                *(send_garbage(host.addresses[index % 2], rng.randbytes(rng.randrange(1, 3000))) for index in range(40))
            )
            for index in range(40):
                link = await hostile_link(host.addresses[0], (YAMUX, MPLEX)[index % 2])
                link.send(rng.randbytes(rng.randrange(20, 3000)))
                link.transport.abort() if index % 4 else await give_turns()
                await link.transport.close()
            await until(lambda: host.statistics().connections == 0)
            assert host.statistics().buffered_bytes == 0
            await serves(host)

    async def give_turns():
        for _ in range(50):
            await asyncio.sleep(0)

    run(scenario())


BAD_FRAMES = {
    YAMUX: {
        "two-gigabytes": struct.pack("!BBHII", 0, 0, 1, 1, 1 << 31),
        "version": struct.pack("!BBHII", 9, 0, 1, 1, 0),
        "type": struct.pack("!BBHII", 0, 7, 1, 1, 0),
        "not-its-number": struct.pack("!BBHII", 0, 1, 1, 2, 0),
        "twice": struct.pack("!BBHII", 0, 1, 1, 1, 0) * 2,
        "ping-flood": struct.pack("!BBHII", 0, 2, 1, 0, 0) * 400_000,
    },
    MPLEX: {
        "two-gigabytes": b"\x00\x01a\x02\x80\x80\x80\x80\x08",
        "varint": b"\xff" * 12,
        "flag": b"\x07\x00",
        "twice": b"\x00\x00" * 2,
    },
}


@pytest.mark.parametrize(("muxer", "name"), [(muxer, name) for muxer, names in BAD_FRAMES.items() for name in names])
def test_a_malformed_frame_costs_only_its_connection(run, muxer, name):
    async def scenario():
        async with node() as host:
            link = await hostile_link(host.addresses[0], muxer)
            data = BAD_FRAMES[muxer][name]
            # A flood is one of a peer that does not read: it writes without looking whether that is taken.
            for begin in range(0, len(data), 60_000):
                link.send(data[begin : begin + 60_000])
            async with asyncio.timeout(PATIENCE_S):
                await hang_up(link)
            await until(lambda: host.statistics().connections == 0)
            await serves(host, muxer)

    run(scenario())


async def pings_without_end(writer):
    while True:
        writer.write((b"\x89\xfd" + bytes(4 + 125)) * 1000)
        await writer.drain()


def test_a_peer_that_sends_websocket_pings_and_takes_no_answer_is_cut_off(run):
    async def scenario():
        async with node() as host:
            reader, writer = await dial_raw(host.addresses[1])
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()
            with pytest.raises(ConnectionError):
                await pings_without_end(writer)
            writer.close()
            await until(lambda: host.statistics().failed_handshakes == 1)
            await serves(host)

    run(scenario())


@MUXERS
def test_a_peer_that_leaves_in_the_middle_of_anything_leaves_nothing(run, muxer):
    async def scenario():
        async with node() as host:
            for _ in range(20):
                client = await Host.start(muxers=[muxer])
                connection = await client.connect(host.addresses[0])
                stream = await connection.open_stream(["/echo/1"])
                await stream.write(b"\xff\x7fhalf a message")
                connection.link.transport.abort()
                await client.close()
            await until(lambda: host.statistics().connections == 0)
            assert (host.statistics().inbound_streams, host.statistics().buffered_bytes) == (0, 0)
            await serves(host, muxer)

    run(scenario())


@MUXERS
def test_a_peer_that_never_closes_its_streams_holds_a_bounded_number(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.stream.CLOSE_LINGER_S", 0.1)

    async def scenario():
        async with node() as host:

            async def answer_and_close(stream):
                await stream.write_frame(b"done")

            host.handle("/once/1", answer_and_close)
            async with await Host.start(muxers=[muxer]) as client:
                connection = await client.connect(host.addresses[0])
                kept = []
                for _ in range(50):
                    stream = await connection.open_stream(["/once/1"])
                    assert await stream.read_frame(10) == b"done"
                    kept.append(stream)
                await until(lambda: host.statistics().inbound_streams == 0)

    run(scenario())


@MUXERS
def test_a_peer_that_opens_and_resets_streams_without_end_has_few_of_them_served_at_a_time(run, muxer):
    def open_and_reset(number):
        if muxer == YAMUX:
            return b"".join(struct.pack("!BBHII", 0, 1, flag, 2 * number + 1, 0) for flag in (1, 8))
        return encode_uvarint(number << 3) + b"\0" + encode_uvarint(number << 3 | 6) + b"\0"

    async def scenario():
        async with node() as host, await Host.start() as honest:
            await honest.connect(host.addresses[0])
            link = await hostile_link(host.addresses[0], muxer)
            hanging_up = asyncio.create_task(hang_up(link))
            await until(lambda: host.statistics().connections == 2)
            link.send(b"".join(open_and_reset(number) for number in range(100, 8_000)))
            most = 0
            for _ in range(50):
                stream = await honest.open_stream(host.peer_id, ["/echo/1"])
                await stream.write_frame(b"still there?")
                assert await stream.read_frame(100) == b"still there?"
                await stream.close()
                served = sum(task.get_name().startswith("stream ") for task in asyncio.all_tasks())
                most = max(most, served)
            assert 0 < most < 500
            link.transport.abort()
            await hanging_up
            await serves(host, muxer)

    run(scenario())
