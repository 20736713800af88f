"""What all peers together can make a host hold: whoever holds the most gives way, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc

import pytest

from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.host import Host
from fairway.libp2p.ping import Pinger
from fairway.wire.varint import encode_uvarint
from muxers import MUXERS
from patience import PATIENCE_S, until

LISTEN = ["/ip4/127.0.0.1/tcp/0"]


async def answer(stream):
    while (frame := await stream.read_frame(1 << 20)) is not None:
        await stream.write_frame(frame[:10])


async def neglect(stream):
    await asyncio.Event().wait()


async def asks(host, node, size):
    async with await host.open_stream(node.peer_id, ["/answer/1"]) as stream:
        await stream.write_frame(bytes(size))
        return await stream.read_frame(100)


@contextlib.asynccontextmanager
async def node_with_peers(count, limit, muxer):
    async with contextlib.AsyncExitStack() as exits:
        exits.enter_context(pytest.MonkeyPatch.context()).setattr("fairway.libp2p.limits.MAX_BUFFERED_BYTES", limit)
        node = await exits.enter_async_context(await Host.start(listen=LISTEN))
        node.handle("/answer/1", answer)
        node.handle("/neglect/1", neglect)
        peers = [await exits.enter_async_context(await Host.start(muxers=[muxer])) for _ in range(count)]
        for peer in peers:
            await peer.connect(node.addresses[0])
        yield node, peers


@MUXERS
def test_messages_that_are_begun_and_not_finished_are_bounded_over_all_peers(run, muxer):
    async def scenario():
        async with node_with_peers(5, 1_000_000, muxer) as (node, (honest, *slow)):
            begun = []
            most = 0
            for peer in slow:
                for _ in range(10):
                    stream = await peer.open_stream(node.peer_id, ["/answer/1"])
                    with contextlib.suppress(Libp2pError):
                        await stream.write(encode_uvarint(200_000) + bytes(100_000))
                    begun.append(stream)
                    most = max(most, node.statistics().buffered_bytes)
            await until(lambda: node.statistics().buffered_bytes > 800_000)
            assert max(most, node.statistics().buffered_bytes) <= 1_000_000
            for _ in range(5):
                assert await asks(honest, node, 150_000) == bytes(10)
            for stream in begun:
                await stream.reset()
            await until(lambda: node.statistics().buffered_bytes == 0)

    run(scenario())


@MUXERS
def test_peers_that_fill_the_memory_with_unread_bytes_cost_an_honest_peer_nothing(run, muxer):
    async def scenario():
        async with node_with_peers(4, 300_000, muxer) as (node, (honest, *bad)):

            async def fill(peer):
                while True:
                    with contextlib.suppress(Libp2pError):
                        stream = await peer.open_stream(node.peer_id, ["/neglect/1"])
                        await stream.write(bytes(3_000))
                    await asyncio.sleep(0)

            fillers = [asyncio.create_task(fill(peer)) for peer in bad for _ in range(5)]
            try:
                await until(lambda: node.statistics().buffered_bytes > 290_000)
                for _ in range(20):
                    assert await asks(honest, node, 20_000) == bytes(10)
            finally:
                for task in fillers:
                    task.cancel()
                await asyncio.gather(*fillers, return_exceptions=True)

    run(scenario())


def test_what_is_read_after_a_connection_has_ended_is_not_counted_again(run):
    async def scenario():
        async with node_with_peers(1, 1_000_000, "/yamux/1.0.0") as (node, (peer,)):
            told = 0

            async def tell(stream):
                nonlocal told
                await stream.write(b"all of it")
                await stream.close_write()
                told += 1

            peer.handle("/tell/1", tell)
            read, _unread = [await node.open_stream(peer.peer_id, ["/tell/1"]) for _ in range(2)]
            await until(lambda: told == 2)
            await Pinger(node.connections()[0]).ping(timeout_s=PATIENCE_S)  # whatever was sent before has come, too
            # The bytes of the negotiation are reported with the first ones that the application reads.
            assert node.statistics().buffered_bytes >= 18
            await peer.close()
            await until(lambda: not node.connections())
            assert await read.read() == b"all of it"
            assert node.statistics().buffered_bytes == 0

    run(scenario())


def test_a_message_that_comes_in_tiny_pieces_takes_little_more_memory_than_it_has_bytes(run):
    async def scenario():
        async with node_with_peers(1, 1_000_000, "/yamux/1.0.0") as (node, (peer,)):
            stream = await peer.open_stream(node.peer_id, ["/answer/1"])
            await stream.write(encode_uvarint(30_000) + b"x")
            (connection,) = node.connections()
            await until(lambda: any(one.protocol == "/answer/1" for one in connection.streams()))
            (inbound,) = [one for one in connection.streams() if one.protocol == "/answer/1"]
            tracemalloc.start()
            try:
                for number in range(10_000):
                    inbound.data_arrived(b"%c%c" % (number % 251, number % 241))
                    await asyncio.sleep(0)
                gc.collect()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < 100_000
            await stream.reset()

    run(scenario())
