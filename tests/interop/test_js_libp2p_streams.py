"""js-libp2p and our host, over both transports and both muxers, dialled from either side."""

from __future__ import annotations

import asyncio

import pytest

from certificates import Authority
from fairway.libp2p.host import Host
from fairway.libp2p.peer_book import PeerIdentified
from fairway.libp2p.ping import Pinger
from fairway.libp2p.transports.certificate import ServerCertificate
from patience import PATIENCE_S, until

PROTOCOL = "/fairway-echo/1"
SIZES = (1, 1000, 150_000, 2_000_000)
MUXERS = pytest.mark.parametrize("muxer", ["yamux", pytest.param("mplex", marks=pytest.mark.full)])
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", pytest.param("ws", marks=pytest.mark.full)])


def listening(transport):
    return ["/ip4/127.0.0.1/tcp/0" + ("" if transport == "tcp" else "/ws")]


async def echo(stream):
    while data := await stream.read():
        await stream.write(data)


def bounded(scenario):
    async def run():
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(run())


@pytest.mark.full
@TRANSPORTS
@MUXERS
def test_js_libp2p_dials_us_knows_us_and_its_streams_are_served(js_peer, transport, muxer):
    async def scenario():
        async with await Host.start(listen=listening(transport), agent="fairway-test") as host:
            host.handle(PROTOCOL, echo)
            events = host.watch()
            async with js_peer("streams.mjs", "js", {"muxers": [muxer]}) as peer:
                peer.tell("dial", address=str(host.addresses[0]))
                (connected,) = await peer.wait("connected")
                assert connected["muxer"].split("/")[1] == muxer
                (identified,) = await peer.wait("identified")
                (connection,) = host.connections()
                assert identified["agent"] == "fairway-test"
                assert identified["signed"]
                assert PROTOCOL in identified["protocols"]
                assert identified["observed"] == str(connection.remote_address)
                async for event in events:
                    if isinstance(event, PeerIdentified):
                        break
                assert host.info_of(connection.peer_id).agent.startswith("js-libp2p/")
                for size in SIZES:
                    peer.tell("echo", size=size, times=3)
                peer.tell("echo", size=100, times=300)
                echoed = await peer.wait("echoed", len(SIZES) + 1)
                assert {event["size"]: event["whole"] for event in echoed} == dict.fromkeys(SIZES, 3) | {100: 300}
                # Nothing is left of the streams, and js-libp2p found nothing to complain about.
                await until(lambda: not host.statistics().inbound_streams)
                peer.tell("ping")
                await peer.wait("pong")
                assert await Pinger(connection).ping(timeout_s=PATIENCE_S) > 0
                assert peer.of("failed") == []

    bounded(scenario)


@TRANSPORTS
@MUXERS
def test_we_dial_js_libp2p_and_its_streams_carry_what_we_write(js_peer, transport, muxer):
    async def scenario():
        settings = {"muxers": [muxer], "listen": listening(transport)}
        async with js_peer("streams.mjs", "js", settings) as peer, await Host.start() as host:
            (ready,) = await peer.wait("ready")
            connection = await host.connect(ready["multiaddrs"][0])
            assert connection.muxer.split("/")[1] == muxer
            assert str(connection.peer_id) == ready["peerId"]
            for size in SIZES:
                message = bytes(index % 241 for index in range(size))
                async with await connection.open_stream([PROTOCOL]) as stream:
                    writing = asyncio.create_task(stream.write(message))
                    assert await stream.read_exactly(size) == message
                    await writing
            assert await Pinger(connection).ping(timeout_s=PATIENCE_S) > 0

    bounded(scenario)


@pytest.mark.full
@pytest.mark.parametrize("end", ["/tls/ws", "/wss"])
def test_js_libp2p_dials_us_over_tls(js_peer, tmp_path, end):
    async def scenario():
        authority = Authority(tmp_path)
        issued = authority.issue()
        certificate = ServerCertificate(issued.certificate, issued.key)
        trust = {"NODE_EXTRA_CA_CERTS": str(authority.file)}
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0/tls/ws"], certificate=certificate) as host:
            host.handle(PROTOCOL, echo)
            address = f"/dns4/localhost/tcp/{host.listening[0].port}{end}/p2p/{host.peer_id}"
            async with js_peer("streams.mjs", "js", {}, **trust) as peer:
                peer.tell("dial", address=address)
                await peer.wait("connected")
                for size in SIZES:
                    peer.tell("echo", size=size, times=3)
                echoed = await peer.wait("echoed", len(SIZES))
                assert {event["size"]: event["whole"] for event in echoed} == dict.fromkeys(SIZES, 3)
                assert peer.of("failed") == []
            # Without the authority it does not come in.
            failed = host.statistics().failed_handshakes
            async with js_peer("streams.mjs", "stranger", {}) as stranger:
                stranger.tell("dial", address=address)
                await stranger.wait("failed")
                await until(lambda: host.statistics().failed_handshakes > failed)
                assert host.connections() == ()

    bounded(scenario)
