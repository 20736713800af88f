"""ping: 32 bytes that come back, or an error that says why not."""

from __future__ import annotations

import pytest

from fairway.libp2p.errors import FrameError, Libp2pError, NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.ping import PING_PROTOCOL, Pinger


def test_a_peer_that_answers_late_wrongly_or_not_at_all_is_told_apart(run):
    async def silent(stream):
        await stream.read_exactly(1000)

    async def wrong(stream):
        await stream.write(bytes(32))
        await stream.read_exactly(1000)

    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as server, await Host.start() as client:
            connection = await client.connect(server.addresses[0])
            server.handle(PING_PROTOCOL, silent)
            with pytest.raises(Libp2pError, match=r"within 0\.05 s"):
                await Pinger(connection).ping(timeout_s=0.05)
            server.handle(PING_PROTOCOL, wrong)
            with pytest.raises(FrameError, match="other bytes"):
                await Pinger(connection).ping()
            await connection.close()
            with pytest.raises((Libp2pError, NegotiationError)):
                await Pinger(connection).ping()

    run(scenario())


def test_pings_in_a_row_use_one_stream_and_another_one_once_the_peer_ends_it(run):
    streams = []

    async def twice(stream):
        streams.append(stream)
        for _ in range(2):
            await stream.write(await stream.read_exactly(32))

    async def scenario():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as server, await Host.start() as client:
            server.handle(PING_PROTOCOL, twice)
            pinger = Pinger(await client.connect(server.addresses[0]))
            for _ in range(5):
                assert 0 < await pinger.ping() < 10
            assert len(streams) == 3

    run(scenario())
