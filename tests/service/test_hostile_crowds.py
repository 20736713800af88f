"""Peers that ask a service node for too much: it holds a bounded amount for them, and serves whoever is honest.

``FAIRWAY_HOSTILE_PEERS`` sets how many silent sockets and streams there are: 1,000 by default, 10,000 for the long
form.
"""

from __future__ import annotations

import asyncio
import os
import time

from fairway.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.libp2p.gossipsub.codec import subscription_frame
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.filter_pusher import MAX_WAITING_BYTES
from fairway.service.node import parts_of
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    decode_message_push,
)
from muxers import MUXERS

SILENT = int(os.environ.get("FAIRWAY_HOSTILE_PEERS", "1000"))
MIB = 1_048_576


async def read_nothing(stream):
    await asyncio.Event().wait()


@MUXERS
def test_a_subscriber_that_reads_nothing_takes_bounded_memory_and_delays_no_other(crowd, muxer):
    async def work():
        got = []

        async def read_all(stream):
            while (frame := await stream.read_frame(1 << 20)) is not None:
                got.append(decode_message_push(frame).message_bytes)

        async with (
            crowd.service(archive=None) as node,
            crowd.client(node, muxer, pushes=read_nothing) as slow,
            crowd.client(node, muxer, pushes=read_all) as honest,
        ):
            for one in (slow, honest):
                await crowd.request(one, node, FILTER_SUBSCRIBE_PROTOCOL, crowd.subscription([crowd.topic]))
            sent = []
            for number in range(400):
                one = crowd.message(100_000)
                sent.append(one.encoded)
                await node.send(one)
                if number % 20 == 19:
                    await crowd.until(lambda: len(got) >= len(sent))
            assert got == sent
            statistics = parts_of(node).pusher.statistics()
            crowd.report("40 MB past a slow subscriber:", **vars_of(statistics))
            assert statistics.waiting_bytes <= 2 * MAX_WAITING_BYTES
            assert statistics.dropped > 50
            await crowd.serves(node)

    crowd.run(work())


def vars_of(statistics):
    return {name: getattr(statistics, name) for name in type(statistics).__slots__}


@MUXERS
def test_a_relay_peer_that_reads_nothing_takes_bounded_memory_and_delays_others_briefly(crowd, muxer):
    async def work():
        async with (
            crowd.service(archive=None) as node,
            crowd.client(node, muxer, relay=read_nothing) as slow,
            crowd.client(node) as honest,
        ):
            stream = await slow.connections()[0].open_stream([RELAY_PROTOCOL])
            await stream.write(subscription_frame((Change(topic=crowd.shard, subscribed=True),)))
            await crowd.until(lambda: parts_of(node).relay.peer_count(crowd.shard))
            answers = [await crowd.push(honest, node, 100_000) for _ in range(300)]
            assert answers == [200] * 300
            statistics = parts_of(node).relay.outbox_statistics()
            crowd.report("30 MB past a slow relay peer:", **vars_of(statistics))
            assert statistics.waiting_bytes <= 17 * MIB
            assert statistics.dropped > 10  # how much the operating system holds in between is its business

    crowd.run(work())


def test_a_flood_of_pushes_is_answered_with_429_while_an_honest_peer_is_served(crowd):
    async def work():
        async with (
            crowd.service(request_rate=RequestRate(per_second=20.0, burst=40)) as node,
            crowd.client(node) as bad,
            crowd.client(node) as honest,
        ):
            codes = []

            async def flood():
                while True:
                    codes.append(await crowd.push(bad, node))

            floods = [asyncio.create_task(flood()) for _ in range(20)]
            try:
                began_s = time.monotonic()
                answers = [await crowd.push(honest, node) for _ in range(40)]
                await crowd.until(lambda: 429 in codes)
                took_s = time.monotonic() - began_s
            finally:
                for task in floods:
                    task.cancel()
                await asyncio.gather(*floods, return_exceptions=True)
            served = answers.count(200)
            crowd.report("flood:", requests=len(codes), refused=codes.count(429), honest=f"{served}/40")
            assert answers == [200] * 40
            assert set(codes) == {200, 429}
            assert codes.count(200) <= 40 + 20 * (took_s + 1)
            # Of the last request of each task the answer was not waited for.
            assert 0 <= parts_of(node).limiters["lightpush"].refused - codes.count(429) <= 20

    crowd.run(work())
