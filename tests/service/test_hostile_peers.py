"""Peers that send what they should not to a service node, or too much: it stays up, and serves honest peers.

Garbage in streams, messages that were relayed before, requests that are too large, and answers that nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.libp2p.errors import Libp2pError, StreamError
from fairway.libp2p.gossipsub.codec import Message, encode_message, publish_frame, subscription_frame
from fairway.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.filter_pusher import MAX_WAITING_BYTES
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_filter_subscribe_response,
    decode_message_push,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LightPushRequest,
    StatusCode,
    decode_lightpush_response,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_push_request_v2,
)
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, decode_metadata, encode_metadata
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoreQueryRequest,
    decode_store_query_response,
    encode_store_query_request,
)
from fairway.wire.waku_message import WakuMessage, encode_waku_message
from muxers import MUXERS
from patience import PATIENCE_S, run, until

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"
MIB = 1_048_576
REQUEST_PROTOCOLS = (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    STORE_QUERY_PROTOCOL,
    METADATA_PROTOCOL,
)


class Crowd:
    """What the tests with hostile peers do and measure."""

    shard = SHARD
    topic = TOPIC

    @staticmethod
    @contextlib.asynccontextmanager
    async def service(**changes):
        given = {"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes}
        async with await ServiceNode.start(ServiceOptions(**given)) as node:
            yield node

    @classmethod
    @contextlib.asynccontextmanager
    async def client(cls, node, muxer="/yamux/1.0.0", **handlers):
        """A peer that is connected; ``handlers`` are coroutine functions by the names below."""
        named = {"pushes": FILTER_PUSH_PROTOCOL, "relay": RELAY_PROTOCOL}
        async with await Host.start(muxers=[muxer]) as host:
            for name, handler in handlers.items():
                host.handle(named[name], handler)
            await host.connect(node.addresses[0])
            yield host

    @staticmethod
    def message(size=20):
        payload = random.randbytes(size)
        return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns()))

    @staticmethod
    def subscription(topics):
        return encode_filter_subscribe_request(
            FilterSubscribeRequest(
                request_id="subscribe",
                filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
                pubsub_topic=SHARD,
                content_topics=tuple(topics),
            )
        )

    @staticmethod
    async def request(host, node, protocol, data):
        return await PeerRequests(host).ask(
            node.peer_id, protocol, data, max_response_bytes=1 << 22, timeout_s=PATIENCE_S
        )

    @classmethod
    async def push(cls, host, node, size=20):
        """Push a message, and return the status code of the answer."""
        asked = LightPushRequest(request_id="push", pubsub_topic=SHARD, message_bytes=cls.message(size).encoded)
        answer = await cls.request(host, node, LIGHTPUSH_PROTOCOL, encode_lightpush_request(asked))
        return decode_lightpush_response(answer).status_code

    @classmethod
    async def serves(cls, node, count=10):
        """An honest peer comes, and all that it pushes is taken."""
        async with cls.client(node) as honest:
            codes = [await cls.push(honest, node) for _ in range(count)]
        assert codes == [200] * count

    until = staticmethod(until)

    @staticmethod
    def report(what, **figures):
        print(what, " ".join(f"{name}={value}" for name, value in figures.items()))  # noqa: T201 - figures of the run

    run = staticmethod(run)


@pytest.fixture
def crowd(monkeypatch):
    # A peer that reads nothing keeps its streams all the same, also when this machine is slow.
    monkeypatch.setattr("fairway.libp2p.connection.SLOW_READER_TIMEOUT_S", 600.0)
    monkeypatch.setattr("fairway.libp2p.connection.WRITE_STALL_TIMEOUT_S", 600.0)
    return Crowd


def envelope(payload=b"payload"):
    return encode_waku_message(WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns()))


def push_request(payload=b"payload"):
    return encode_lightpush_request(
        LightPushRequest(request_id="push", pubsub_topic=SHARD, message_bytes=envelope(payload))
    )


def valid_requests():
    return {
        LIGHTPUSH_PROTOCOL: push_request(),
        LIGHTPUSH_V2_PROTOCOL: push_request(),
        FILTER_SUBSCRIBE_PROTOCOL: Crowd.subscription([TOPIC]),
        STORE_QUERY_PROTOCOL: encode_store_query_request(
            StoreQueryRequest(request_id="query", include_data=True, pubsub_topic=SHARD, content_topics=(TOPIC,))
        ),
        METADATA_PROTOCOL: encode_metadata(WakuMetadata(cluster_id=16, shards=(0,))),
    }


async def serves(node):
    """An honest peer comes, is served by every protocol, and goes."""
    async with await Host.start() as honest:
        await honest.connect(node.addresses[0])
        payload = random.randbytes(20)
        pushed = decode_lightpush_response(await Crowd.request(honest, node, LIGHTPUSH_PROTOCOL, push_request(payload)))
        assert pushed.status_code == 200
        found = decode_store_query_response(
            await Crowd.request(honest, node, STORE_QUERY_PROTOCOL, valid_requests()[STORE_QUERY_PROTOCOL])
        )
        assert found.status_code == 200
        subscribed = await Crowd.request(honest, node, FILTER_SUBSCRIBE_PROTOCOL, Crowd.subscription([TOPIC]))
        assert decode_filter_subscribe_response(subscribed).status_code == 200
        told = decode_metadata(
            await Crowd.request(honest, node, METADATA_PROTOCOL, encode_metadata(WakuMetadata(cluster_id=16)))
        )
        assert told.cluster_id == 16
    page = await node.query(StoreQuery(newest_first=True, page_size=1))
    assert page.messages[0].message.payload == payload


@pytest.mark.parametrize("protocol", [*REQUEST_PROTOCOLS, RELAY_PROTOCOL])
@MUXERS
async def test_garbage_in_a_stream_ends_only_the_stream(protocol, muxer, rng):
    async with Crowd.service() as node, await Host.start(muxers=[muxer]) as bad:
        connection = await bad.connect(node.addresses[0])
        for number in range(60):
            stream = await connection.open_stream([protocol])
            data = rng.randbytes(rng.randrange(200))
            with contextlib.suppress(StreamError):
                await (stream.write_frame(data) if number % 2 else stream.write(data))
                await stream.close_write()
                while await stream.read():
                    pass
            await stream.reset()
        await until(lambda: parts_of(node).host.statistics().inbound_streams <= 2)
        assert connection in bad.connections()
        await serves(node)


@pytest.mark.parametrize("protocol", REQUEST_PROTOCOLS)
def test_any_mutation_of_a_valid_request_is_answered_or_refused(protocol):
    with asyncio.Runner() as runner:
        node = runner.run(
            ServiceNode.start(ServiceOptions(cluster_id=16, shards=(0,), shard_count=1, request_rate=None))
        )
        peer = runner.run(Host.start())
        runner.run(peer.connect(node.addresses[0]))
        whole = valid_requests()[protocol]
        change = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 4), st.binary(max_size=12))

        @examples(0.6, database=None)
        @given(st.lists(change, min_size=1, max_size=4))
        def mutated(changes):
            data = bytearray(whole)
            for start, cut, insert in changes:
                data[start : start + cut] = insert
            with contextlib.suppress(StreamError):
                runner.run(Crowd.request(peer, node, protocol, bytes(data)))
            assert peer.connections(), bytes(data)

        try:
            mutated()
            runner.run(serves(node))
        finally:
            runner.run(peer.close())
            runner.run(node.close())


@pytest.mark.parametrize("protocol", [*REQUEST_PROTOCOLS, RELAY_PROTOCOL])
async def test_a_frame_that_claims_2_gb_is_not_waited_for(protocol):
    async with Crowd.service() as node, await Host.start() as bad:
        connection = await bad.connect(node.addresses[0])
        stream = await connection.open_stream([protocol])
        await stream.write(b"\x80\x80\x80\x80\x08" + bytes(1_000))
        with pytest.raises(StreamError):
            await asyncio.wait_for(stream.read(), PATIENCE_S)
        assert parts_of(node).host.statistics().buffered_bytes < 10_000
        await serves(node)


async def test_a_relayed_message_that_is_replayed_counts_once():
    async with Crowd.service() as node, await Host.start() as bad:
        heard = await node.subscribe(SHARD, [TOPIC])
        connection = await bad.connect(node.addresses[0])
        stream = await connection.open_stream([RELAY_PROTOCOL])
        await stream.write(subscription_frame((Change(topic=SHARD, subscribed=True),)))
        frame = publish_frame(encode_message(Message(topic=SHARD, data=envelope())))
        for _ in range(20):
            await stream.write(frame * 100)
        await until(lambda: parts_of(node).relay.statistics().duplicates == 1_999)
        assert len(heard.take()) == 1
        assert parts_of(node).distribution.statistics().messages == 1
        assert len((await node.query(StoreQuery())).messages) == 1
        await serves(node)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xff", envelope(b""), envelope(bytes(200_000)), envelope()[:-3]],
    ids=["empty", "garbage", "no-payload", "too-large", "cut-off"],
)
async def test_an_invalid_relayed_message_is_dropped_and_its_peer_disconnected(data):
    async with Crowd.service() as node, await Host.start() as bad:
        heard = await node.subscribe(SHARD, [TOPIC])
        connection = await bad.connect(node.addresses[0])
        stream = await connection.open_stream([RELAY_PROTOCOL])
        await stream.write(subscription_frame((Change(topic=SHARD, subscribed=True),)))
        for number in range(15):
            mutated = data + bytes([0x82, 0x10, 1, number]) if data else data
            await stream.write(publish_frame(encode_message(Message(topic=SHARD, data=mutated))))
        await until(lambda: parts_of(node).relay.statistics().invalid > 0 or not bad.connections())
        assert parts_of(node).distribution.statistics().messages == 0
        assert set(parts_of(node).relay.refused) <= {StatusCode.BAD_REQUEST, StatusCode.PAYLOAD_TOO_LARGE}
        assert not heard.take()
        await serves(node)


async def read_nothing(stream):
    await asyncio.Event().wait()


@MUXERS
async def test_a_subscriber_that_reads_nothing_takes_bounded_memory_and_delays_no_other(crowd, muxer):
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


def vars_of(statistics):
    return {name: getattr(statistics, name) for name in type(statistics).__slots__}


@MUXERS
async def test_a_relay_peer_that_reads_nothing_takes_bounded_memory_and_delays_others_briefly(crowd, muxer):
    async with (
        crowd.service(archive=None) as node,
        crowd.client(node, muxer, relay=read_nothing) as slow,
        crowd.client(node) as honest,
    ):
        stream = await slow.connections()[0].open_stream([RELAY_PROTOCOL])
        await stream.write(subscription_frame((Change(topic=crowd.shard, subscribed=True),)))
        await crowd.until(lambda: parts_of(node).relay.peers_of(crowd.shard))
        answers = [await crowd.push(honest, node, 100_000) for _ in range(300)]
        assert answers == [200] * 300
        relay = parts_of(node).relay
        crowd.report("30 MB past a slow relay peer:", held_bytes=relay.held_bytes, dropped=relay.dropped)
        assert relay.held_bytes <= 17 * MIB
        assert relay.dropped > 10  # how much the operating system holds in between is its business


async def test_a_flood_of_pushes_is_answered_with_429_while_an_honest_peer_is_served(crowd):
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


async def test_peers_that_query_pages_and_read_none_take_bounded_memory(crowd):
    query = encode_store_query_request(
        StoreQueryRequest(
            request_id="page",
            include_data=True,
            pubsub_topic=crowd.shard,
            content_topics=(crowd.topic,),
            pagination_limit=100,
        )
    )
    async with (
        crowd.service() as node,
        crowd.client(node) as one,
        crowd.client(node) as other,
        crowd.client(node) as honest,
    ):
        for _ in range(40):
            await node.send(crowd.message(100_000))
        for bad in (one, other):
            (connection,) = bad.connections()
            # Sixty pages of a megabyte each: more than may wait for both of them.
            streams = [await connection.open_stream([STORE_QUERY_PROTOCOL]) for _ in range(60)]
            await asyncio.gather(*(stream.write_frame(query) for stream in streams))
        await crowd.until(lambda: parts_of(node).pending_responses.given_up >= 50)
        pending = parts_of(node).pending_responses
        crowd.report("120 pages that nobody reads:", waiting=pending.size_bytes, answers=len(pending))
        assert pending.size_bytes <= 64 * MIB
        answer = decode_store_query_response(await crowd.request(honest, node, STORE_QUERY_PROTOCOL, query))
        assert len(answer.messages) >= 5
        await crowd.serves(node)


@pytest.mark.parametrize("count", [1_001, 30_000])
async def test_a_store_query_for_more_hashes_than_anyone_needs_is_refused(crowd, count):
    async with crowd.service() as node, await Host.start() as bad:
        await bad.connect(node.addresses[0])
        hashes = tuple(number.to_bytes(32, "big") for number in range(count))
        query = encode_store_query_request(StoreQueryRequest(request_id="many", message_hashes=hashes))
        try:
            answer = decode_store_query_response(await crowd.request(bad, node, STORE_QUERY_PROTOCOL, query))
        except Libp2pError:
            assert count == 30_000  # 1 MiB is not even read
        else:
            assert (answer.status_code, answer.messages) == (400, ())
        await crowd.serves(node)


@MUXERS
async def test_a_light_push_with_a_message_that_is_too_long_is_answered_with_413_and_its_own_id(crowd, muxer):
    message = bytes(3 * MIB)
    asked = encode_lightpush_request(
        LightPushRequest(request_id="mine", pubsub_topic=crowd.shard, message_bytes=message)
    )
    asked_v2 = encode_push_request_v2(
        LightPushRequest(request_id="mine too", pubsub_topic=crowd.shard, message_bytes=message)
    )
    async with crowd.service() as node, crowd.client(node, muxer) as client:
        answer = decode_lightpush_response(await crowd.request(client, node, LIGHTPUSH_PROTOCOL, asked))
        assert (answer.request_id, answer.status_code) == ("mine", 413)
        answer_v2 = decode_push_response_v2(await crowd.request(client, node, LIGHTPUSH_V2_PROTOCOL, asked_v2))
        assert (answer_v2.request_id, answer_v2.is_success) == ("mine too", False)
        assert "message size exceeded" in (answer_v2.info or "")
        # The connection lives, and nothing of it is left in memory.
        assert await crowd.push(client, node) == 200
        await crowd.until(lambda: not parts_of(node).host.statistics().buffered_bytes)
