"""Peers that ask a service node for too much: it holds a bounded amount for them, and serves whoever is honest.

``FAIRWAY_HOSTILE_PEERS`` sets how many silent sockets and streams there are: 1,000 by default, 10,000 for the long
form.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import socket
import time

import pytest

from fairway.service.filter_pusher import MAX_WAITING_BYTES
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.waku.libp2p.gossipsub.codec import subscription_frame
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.limits import HostLimits
from fairway.waku.node import RoutedMessage
from fairway.waku.protocols.exchange import ask
from fairway.waku.protocols.relay import RELAY_PROTOCOL
from fairway.waku.protocols.request_limiter import RequestRate
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_message_push,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    encode_lightpush_request,
)
from fairway.wire.metadata import METADATA_PROTOCOL
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
)
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"
SILENT = int(os.environ.get("FAIRWAY_HOSTILE_PEERS", "1000"))
MUXERS = pytest.mark.parametrize("muxer", ["/yamux/1.0.0", "/mplex/6.7.0"])
PATIENCE_S = 600.0
MIB = 1_048_576


@contextlib.asynccontextmanager
async def service(**changes):
    given_options = {"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes}
    node = await ServiceNode.start(ServiceOptions(**given_options))
    try:
        yield node
    finally:
        await node.close()


def message(size=20):
    payload = random.randbytes(size)
    return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns()))


def subscription(topics):
    return encode_filter_subscribe_request(
        FilterSubscribeRequest(
            request_id="subscribe",
            filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
            pubsub_topic=SHARD,
            content_topics=tuple(topics),
        )
    )


async def request(host, node, protocol, data, timeout_s=20.0):
    return await ask(host, node.peer_id, protocol, data, max_response_bytes=1 << 22, timeout_s=timeout_s)


async def push(host, node, size=20):
    """Push a message, and return the status code of the answer and how long it took."""
    asked = LightPushRequest(request_id="push", pubsub_topic=SHARD, message_bytes=message(size).encoded)
    began_s = time.monotonic()
    answer = await request(host, node, LIGHTPUSH_PROTOCOL, encode_lightpush_request(asked))
    return decode_lightpush_response(answer).status_code, time.monotonic() - began_s


@contextlib.asynccontextmanager
async def client(node, muxer="/yamux/1.0.0", **handlers):
    """A peer that is connected; ``handlers`` are coroutine functions by the names below."""
    named = {"pushes": FILTER_PUSH_PROTOCOL, "relay": RELAY_PROTOCOL}
    # A peer that reads nothing keeps its streams all the same, also when this machine is slow.
    limits = HostLimits(slow_reader_timeout_s=PATIENCE_S, write_stall_timeout_s=PATIENCE_S)
    async with await Host.start(muxers=[muxer], limits=limits) as host:
        for name, handler in handlers.items():
            host.handle(named[name], handler)
        await host.connect(node.addresses[0])
        yield host


async def serves(node, count=10):
    """An honest peer comes, and all that it pushes is taken."""
    async with client(node) as honest:
        codes = [(await push(honest, node))[0] for _ in range(count)]
    assert codes == [200] * count


async def read_nothing(stream):
    await asyncio.Event().wait()


async def until(condition, timeout_s=20.0):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - several parts that have no event in common
            await asyncio.sleep(0.01)


def resident_mib():
    """Memory of this process, where the peers are, too."""
    gc.collect()
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
        return int(file.read().split()[1]) * resource.getpagesize() / MIB


def report(what, **figures):
    print(what, " ".join(f"{name}={value}" for name, value in figures.items()))  # noqa: T201 - the figures of the run


def run(work, timeout_s=120):
    asyncio.run(asyncio.wait_for(work, timeout_s))


def open_files_allowed():
    """Let this process open as many files as it may; return how many that is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_silent_sockets_keep_nobody_out():
    # The node lets go of most of its ends at once, the peers of none of theirs.
    if open_files_allowed() < SILENT + 2_000:
        pytest.skip(f"this system allows too few open files for {SILENT} sockets")

    async def work():
        async with service(host_limits=HostLimits(handshake_timeout_s=60.0)) as node:
            before = resident_mib()
            sockets = []
            try:
                for count in range(SILENT):
                    one = socket.socket()
                    one.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        one.connect(("127.0.0.1", node.addresses[count % 2].port))
                    sockets.append(one)
                    if count % 50 == 0:
                        await asyncio.sleep(0)
                await until(lambda: node.host.statistics().refused_connections >= SILENT * 0.8)
                statistics = node.host.statistics()
                assert statistics.pending_handshakes <= node.host.limits.max_pending_handshakes_per_ip
                grown = resident_mib() - before
                report(f"{SILENT} silent sockets:", mib=round(grown, 1))
                assert grown < 100
                await serves(node)
            finally:
                for one in sockets:
                    one.close()

    run(work())


@MUXERS
def test_silent_streams_keep_nobody_out(muxer):
    protocols = (LIGHTPUSH_PROTOCOL, FILTER_SUBSCRIBE_PROTOCOL, STORE_QUERY_PROTOCOL, METADATA_PROTOCOL)
    each = 60 * len(protocols)

    async def work():
        async with service() as node, contextlib.AsyncExitStack() as exits:
            before, count = resident_mib(), 0
            while count < SILENT:
                host = await exits.enter_async_context(client(node, muxer))
                (connection,) = host.connections()
                wanted = min(each, SILENT - count)
                names = [protocols[number % len(protocols)] for number in range(wanted)]
                await asyncio.gather(*(connection.open_stream([name]) for name in names))
                count += wanted
            await until(lambda: node.host.statistics().inbound_streams >= SILENT)
            grown = resident_mib() - before
            report(
                f"{SILENT} silent streams, both ends:", mib=round(grown, 1), kib_each=round(grown * 1024 / SILENT, 1)
            )
            assert grown < 20 + SILENT * 50 / 1024
            await serves(node)
            # A stream too many of one protocol is not served, however the others are spread.
            host = await exits.enter_async_context(client(node, muxer))
            (connection,) = host.connections()
            with contextlib.suppress(Libp2pError):
                for _ in range(600):
                    await connection.open_stream([STORE_QUERY_PROTOCOL])
            await until(lambda: connection.is_closed or node.host.statistics().inbound_streams <= SILENT + 80)
            await serves(node)

    run(work())


@MUXERS
def test_a_subscriber_that_reads_nothing_costs_a_bounded_amount_and_delays_nobody(muxer):
    async def work():
        got = []

        async def read_all(stream):
            while (frame := await stream.read_frame(1 << 20)) is not None:
                got.append(decode_message_push(frame).message_bytes)

        async with (
            service(archive=None) as node,
            client(node, muxer, pushes=read_nothing) as slow,
            client(node, muxer, pushes=read_all) as honest,
        ):
            for one in (slow, honest):
                await request(one, node, FILTER_SUBSCRIBE_PROTOCOL, subscription([TOPIC]))
            before = resident_mib()
            sent = []
            for number in range(400):
                one = message(100_000)
                sent.append(one.encoded)
                await node.send(one)
                if number % 20 == 19:
                    await until(lambda: len(got) >= len(sent))
            assert got == sent
            statistics = node.pusher.statistics()
            grown = resident_mib() - before
            report("40 MB past a slow subscriber:", mib=round(grown, 1), **vars_of(statistics))
            assert grown < 300  # 80 of them are what this test keeps
            assert statistics.waiting_bytes <= 2 * MAX_WAITING_BYTES
            assert statistics.dropped > 50
            await serves(node)

    run(work())


def vars_of(statistics):
    return {name: getattr(statistics, name) for name in type(statistics).__slots__}


@MUXERS
def test_a_relay_peer_that_reads_nothing_costs_a_bounded_amount_and_delays_nobody_for_long(muxer):
    async def work():
        async with (
            service(archive=None, host_limits=HostLimits(write_stall_timeout_s=PATIENCE_S)) as node,
            client(node, muxer, relay=read_nothing) as slow,
            client(node) as honest,
        ):
            stream = await slow.connections()[0].open_stream([RELAY_PROTOCOL])
            await stream.write(subscription_frame((Change(topic=SHARD, subscribed=True),)))
            await until(lambda: node.relay.peer_count(SHARD))
            before = resident_mib()
            answers = [await push(honest, node, 100_000) for _ in range(300)]
            assert [code for code, _ in answers] == [200] * 300
            statistics = node.relay._pubsub.outbox_statistics()
            waited_s = sum(took_s > 0.5 for _, took_s in answers)
            grown = resident_mib() - before
            report("30 MB past a slow relay peer:", mib=round(grown, 1), **vars_of(statistics))
            assert grown < 200
            assert statistics.waiting_bytes <= 17 * MIB
            assert statistics.dropped > 10  # how much the operating system holds in between is its business
            assert waited_s <= 3  # once for the slow peer, and what a busy machine adds

    run(work())


@MUXERS
def test_a_peer_that_never_closes_its_streams_has_them_closed(muxer):
    async def work():
        async with service(host_limits=HostLimits(close_linger_s=0.2)) as node, client(node, muxer) as bad:
            (connection,) = bad.connections()
            asked = LightPushRequest(request_id="push", pubsub_topic=SHARD, message_bytes=message().encoded)
            kept = []
            for _ in range(300):
                stream = await connection.open_stream([LIGHTPUSH_PROTOCOL])
                await stream.write_frame(encode_lightpush_request(asked))
                assert decode_lightpush_response(await stream.read_frame(1_000)).status_code == 200
                kept.append(stream)
            await until(lambda: node.host.statistics().inbound_streams == 0)
            await serves(node)

    run(work())


def test_a_flood_of_pushes_is_answered_with_429_while_an_honest_peer_is_served():
    async def work():
        async with (
            service(request_rate=RequestRate(per_second=20.0, burst=40)) as node,
            client(node) as bad,
            client(node) as honest,
        ):
            codes = []

            async def flood():
                while True:
                    codes.append((await push(bad, node))[0])

            floods = [asyncio.create_task(flood()) for _ in range(20)]
            try:
                began_s = time.monotonic()
                answers = []
                for _ in range(40):
                    answers.append(await push(honest, node))
                    await asyncio.sleep(0.02)
                took_s = time.monotonic() - began_s
            finally:
                for task in floods:
                    task.cancel()
                await asyncio.gather(*floods, return_exceptions=True)
            served = [code for code, _ in answers].count(200)
            report("flood:", requests=len(codes), refused=codes.count(429), honest=f"{served}/40")
            assert [code for code, _ in answers] == [200] * 40
            assert set(codes) == {200, 429}
            assert codes.count(200) <= 40 + 20 * (took_s + 1)
            # Of the last request of each task the answer was not waited for.
            assert 0 <= node.limiters["lightpush"].refused - codes.count(429) <= 20

    run(work())
