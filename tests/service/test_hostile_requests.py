"""Peers whose requests are too large, or never whole, or whose answers nobody reads: refused, or bounded.

``FAIRWAY_HOSTILE_PEERS`` sets how many messages are begun and not finished: 200 by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import time

import pytest

from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.waku.libp2p.errors import Libp2pError
from fairway.waku.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.waku.libp2p.gossipsub.codec import subscription_frame
from fairway.waku.libp2p.host import Host
from fairway.waku.libp2p.limits import HostLimits
from fairway.waku.libp2p.varint import encode_uvarint
from fairway.waku.node import RoutedMessage
from fairway.waku.protocols.exchange import ask
from fairway.waku.protocols.relay import RELAY_PROTOCOL
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_filter_subscribe_response,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    encode_lightpush_request,
)
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoreQueryRequest,
    decode_store_query_response,
    encode_store_query_request,
)
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"
BEGUN = int(os.environ.get("FAIRWAY_HOSTILE_PEERS", "200"))
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
    async with await Host.start(muxers=[muxer]) as host:
        for name, handler in handlers.items():
            host.handle(named[name], handler)
        await host.connect(node.addresses[0])
        yield host


async def serves(node, count=10):
    """An honest peer comes, and all that it pushes is taken."""
    async with client(node) as honest:
        codes = [(await push(honest, node))[0] for _ in range(count)]
    assert codes == [200] * count


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


def test_peers_that_ask_for_whole_pages_and_read_none_cost_a_bounded_amount():
    async def work():
        query = encode_store_query_request(
            StoreQueryRequest(
                request_id="page", include_data=True, pubsub_topic=SHARD, content_topics=(TOPIC,), pagination_limit=100
            )
        )
        async with (
            service() as node,
            client(node) as one,
            client(node) as other,
            client(node) as honest,
        ):
            for _ in range(40):
                await node.send(message(100_000))
            before = resident_mib()
            for bad in (one, other):
                (connection,) = bad.connections()
                # Sixty pages of a megabyte each: more than may wait for both of them.
                streams = [await connection.open_stream([STORE_QUERY_PROTOCOL]) for _ in range(60)]
                await asyncio.gather(*(stream.write_frame(query) for stream in streams))
            await until(lambda: node.pending_responses.given_up >= 50)
            grown = resident_mib() - before
            pending = node.pending_responses
            report(
                "120 pages that nobody reads:", mib=round(grown, 1), waiting=pending.size_bytes, answers=len(pending)
            )
            assert pending.size_bytes <= 64 * MIB
            assert grown < 400
            answer = decode_store_query_response(await request(honest, node, STORE_QUERY_PROTOCOL, query))
            assert len(answer.messages) >= 5
            await serves(node)

    run(work())


@pytest.mark.parametrize("muxer", ["/yamux/1.0.0", "/mplex/6.7.0"])
def test_messages_that_are_begun_and_never_finished_cost_a_bounded_amount(muxer):
    limit = 16 * MIB

    async def begin(connection):
        with contextlib.suppress(Libp2pError):  # of streams that gave way
            stream = await connection.open_stream([LIGHTPUSH_PROTOCOL])
            await stream.write(encode_uvarint(300_000) + bytes(250_000))

    async def work():
        limits = HostLimits(max_buffered_bytes=limit)
        async with service(host_limits=limits) as node, contextlib.AsyncExitStack() as exits:
            before, most = resident_mib(), 0
            for begun in range(0, BEGUN, 50):
                host = await exits.enter_async_context(client(node, muxer))
                (connection,) = host.connections()
                async with asyncio.timeout(60):
                    await asyncio.gather(*(begin(connection) for _ in range(min(50, BEGUN - begun))))
                most = max(most, node.host.statistics().buffered_bytes)
            assert limit - 300_000 < most <= limit
            grown = resident_mib() - before
            report(f"{BEGUN} messages begun:", mib=round(grown, 1), held=most)
            assert grown < 200
            async with client(node, muxer) as honest:
                assert [(await push(honest, node, 140_000))[0] for _ in range(10)] == [200] * 10

    run(work())


def test_a_relay_peer_with_10_000_topics_has_a_bounded_number_remembered():
    async def work():
        async with service() as node, await Host.start() as bad:
            connection = await bad.connect(node.addresses[0])
            stream = await connection.open_stream([RELAY_PROTOCOL])
            for start in range(0, 10_000, 500):
                topics = [Change(topic=f"{'t' * 200}{start + number}", subscribed=True) for number in range(500)]
                await stream.write(subscription_frame(tuple(topics)))
            mesh = node.relay._pubsub._router._mesh
            await until(lambda: bad.peer_id in mesh._peers and len(mesh._peers[bad.peer_id].topics) == 1_024)
            await asyncio.sleep(0.2)
            assert len(mesh._subscribers) == 1_024
            await bad.close()
            await until(lambda: not mesh._subscribers)
            await serves(node)

    run(work())


def test_a_filter_client_with_10_000_topics_is_told_that_this_is_too_much():
    async def work():
        async with service() as node, await Host.start() as bad:
            await bad.connect(node.addresses[0])
            codes = []
            for start in range(0, 10_000, 100):
                topics = [f"/app/1/{start + number}/proto" for number in range(100)]
                answer = await request(bad, node, FILTER_SUBSCRIBE_PROTOCOL, subscription(topics))
                codes.append(decode_filter_subscribe_response(answer).status_code)
            assert codes == [200] * 10 + [503] * 90
            assert len(node.filters.criteria_of(str(bad.peer_id))) == 1_000
            many = [f"/app/1/{number}/proto" for number in range(10_000)]
            answer = await request(bad, node, FILTER_SUBSCRIBE_PROTOCOL, subscription(many))
            assert decode_filter_subscribe_response(answer).status_code in {400, 503}
            await serves(node)

    run(work())


@pytest.mark.parametrize("count", [1_001, 30_000])
def test_a_store_query_for_more_hashes_than_anyone_needs_is_refused(count):
    async def work():
        async with service() as node, await Host.start() as bad:
            await bad.connect(node.addresses[0])
            hashes = tuple(number.to_bytes(32, "big") for number in range(count))
            query = encode_store_query_request(StoreQueryRequest(request_id="many", message_hashes=hashes))
            try:
                answer = decode_store_query_response(await request(bad, node, STORE_QUERY_PROTOCOL, query))
            except Libp2pError:
                assert count == 30_000  # 1 MiB is not even read
            else:
                assert (answer.status_code, answer.messages) == (400, ())
            await serves(node)

    run(work())
