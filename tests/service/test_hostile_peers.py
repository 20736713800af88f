"""Peers that send what they should not to a service node: it stays up, and serves whoever is honest.

Garbage and half-truths at every layer, messages heard before, false names.
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
from fairway.libp2p.errors import DialError, StreamError
from fairway.libp2p.gossipsub.codec import Message, encode_message, publish_frame, subscription_frame
from fairway.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.link import Link, Upgrader, negotiate
from fairway.libp2p.multistream import MultistreamDialer
from fairway.libp2p.multistream import encode_message as encode_line
from fairway.libp2p.noise.handshake import NoiseCredentials
from fairway.libp2p.noise.pattern import Role
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.transports.tcp import dial_tcp
from fairway.nodes.node import StoreQuery
from fairway.nodes.protocols.filter_service import FilterLimits
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import AdvancedServiceOptions, ServiceOptions
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_filter_subscribe_response,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LightPushRequest,
    StatusCode,
    decode_lightpush_response,
    encode_lightpush_request,
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
YAMUX, MPLEX = "/yamux/1.0.0", "/mplex/6.7.0"
REQUEST_PROTOCOLS = (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    STORE_QUERY_PROTOCOL,
    METADATA_PROTOCOL,
)


@contextlib.asynccontextmanager
async def service(**changes):
    given_options = {"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes}
    node = await ServiceNode.start(ServiceOptions(**given_options))
    try:
        yield node
    finally:
        await node.close()


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
        FILTER_SUBSCRIBE_PROTOCOL: subscription([TOPIC]),
        STORE_QUERY_PROTOCOL: encode_store_query_request(
            StoreQueryRequest(request_id="query", include_data=True, pubsub_topic=SHARD, content_topics=(TOPIC,))
        ),
        METADATA_PROTOCOL: encode_metadata(WakuMetadata(cluster_id=16, shards=(0,))),
    }


def subscription(topics):
    return encode_filter_subscribe_request(
        FilterSubscribeRequest(
            request_id="subscribe",
            filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
            pubsub_topic=SHARD,
            content_topics=tuple(topics),
        )
    )


async def request(host, node, protocol, data):
    return await PeerRequests(host).ask(node.peer_id, protocol, data, max_response_bytes=1 << 22, timeout_s=PATIENCE_S)


async def serves(node):
    """An honest peer comes, is served by every protocol, and goes."""
    async with await Host.start() as honest:
        await honest.connect(node.addresses[0])
        payload = random.randbytes(20)
        pushed = decode_lightpush_response(await request(honest, node, LIGHTPUSH_PROTOCOL, push_request(payload)))
        assert pushed.status_code == 200
        found = decode_store_query_response(
            await request(honest, node, STORE_QUERY_PROTOCOL, valid_requests()[STORE_QUERY_PROTOCOL])
        )
        assert found.status_code == 200
        subscribed = await request(honest, node, FILTER_SUBSCRIBE_PROTOCOL, subscription([TOPIC]))
        assert decode_filter_subscribe_response(subscribed).status_code == 200
        told = decode_metadata(
            await request(honest, node, METADATA_PROTOCOL, encode_metadata(WakuMetadata(cluster_id=16)))
        )
        assert told.cluster_id == 16
    page = await node.query(StoreQuery(newest_first=True, page_size=1))
    assert page.messages[0].message.payload == payload


async def secured(node, muxer):
    """Be a peer with a proper identity up to the muxer; what follows is up to the test."""
    upgrader = Upgrader(credentials=NoiseCredentials.make(IdentityKey.generate()), muxers=[muxer])
    link = Link(await dial_tcp(node.addresses[0]))
    await upgrader.upgrade(link, Role.INITIATOR)
    return link


async def half_a_handshake(node, rng):
    link = Link(await dial_tcp(node.addresses[0]))
    await negotiate(link, MultistreamDialer(["/noise"]))
    return link


async def bare_socket(node, rng):
    return Link(await dial_tcp(node.addresses[0]))


async def after_noise(node, rng):
    return await secured(node, rng.choice((YAMUX, MPLEX)))


@pytest.mark.parametrize("begin", [bare_socket, half_a_handshake, after_noise])
def test_garbage_below_the_protocols_ends_only_its_connection(begin, rng):
    async def work():
        async with service() as node:
            for number in range(40):
                link = await begin(node, rng)
                start = encode_line("/multistream/1.0.0") if number % 3 == 0 else b""
                link.send(start + rng.randbytes(rng.randrange(1, 5_000)))
                if number % 2:
                    link.transport.abort()
                await link.transport.close()
            await until(lambda: parts_of(node).host.statistics().connections == 0)
            assert parts_of(node).host.statistics().buffered_bytes == 0
            await serves(node)

    run(work())


@pytest.mark.parametrize("protocol", [*REQUEST_PROTOCOLS, RELAY_PROTOCOL])
@MUXERS
def test_garbage_in_a_stream_ends_only_the_stream(protocol, muxer, rng):
    async def work():
        async with service() as node, await Host.start(muxers=[muxer]) as bad:
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

    run(work())


@pytest.mark.parametrize("protocol", REQUEST_PROTOCOLS)
def test_every_beginning_of_a_valid_request_is_answered_or_refused(protocol):
    async def work():
        async with service() as node, await Host.start() as peer:
            await peer.connect(node.addresses[0])
            whole = valid_requests()[protocol]
            for size in range(len(whole)):
                with contextlib.suppress(StreamError):
                    await request(peer, node, protocol, whole[:size])
            await serves(node)

    run(work())


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
                runner.run(request(peer, node, protocol, bytes(data)))
            assert peer.connections(), bytes(data)

        try:
            mutated()
            runner.run(serves(node))
        finally:
            runner.run(peer.close())
            runner.run(node.close())


@pytest.mark.parametrize("protocol", [*REQUEST_PROTOCOLS, RELAY_PROTOCOL])
def test_a_frame_that_claims_2_gb_is_not_waited_for(protocol):
    async def work():
        async with service() as node, await Host.start() as bad:
            connection = await bad.connect(node.addresses[0])
            stream = await connection.open_stream([protocol])
            await stream.write(b"\x80\x80\x80\x80\x08" + bytes(1_000))
            if "lightpush" in protocol:
                # It says that the request is too large, rather than end the stream without a word.
                assert await asyncio.wait_for(stream.read(), PATIENCE_S)
            else:
                with pytest.raises(StreamError):
                    await asyncio.wait_for(stream.read(), PATIENCE_S)
            assert parts_of(node).host.statistics().buffered_bytes < 10_000
            await serves(node)

    run(work())


def test_a_node_that_is_not_the_one_that_was_named_is_not_spoken_to():
    async def work():
        somebody = PeerId.from_public_key(IdentityKey.generate().public_key)
        async with service() as node, await Host.start() as client:
            named = node.addresses[0].without_peer_id().with_peer_id(somebody)
            with pytest.raises(DialError):
                await client.connect(named)
            assert not client.connections()
            # The same key at the other end of a connection that the impostor began does not make it another peer.
            await until(lambda: parts_of(node).host.statistics().connections == 0)
            await serves(node)

    run(work())


def test_two_hosts_with_one_identity_are_one_peer_with_one_allowance():
    async def work():
        key = IdentityKey.generate()
        rate = RequestRate(per_second=0.01, burst=4)
        async with service(request_rate=rate) as node:
            codes = []
            for _ in range(3):
                async with await Host.start(key=key) as twin:
                    await twin.connect(node.addresses[0])
                    for number in range(2):
                        answer = await request(twin, node, LIGHTPUSH_PROTOCOL, push_request(b"%d" % number))
                        codes.append(decode_lightpush_response(answer).status_code)
            assert codes == [200, 200, 200, 200, 429, 429]
            await serves(node)

    run(work())


def test_a_relayed_message_that_is_replayed_counts_once():
    async def work():
        async with service() as node, await Host.start() as bad:
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

    run(work())


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xff", envelope(b""), envelope(bytes(200_000)), envelope()[:-3]],
    ids=["empty", "garbage", "no-payload", "too-large", "cut-off"],
)
def test_an_invalid_relayed_message_is_dropped_and_its_peer_disconnected(data):
    async def work():
        async with service() as node, await Host.start() as bad:
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

    run(work())


def test_many_filter_clients_together_have_a_bounded_number_of_topics():
    async def work():
        limits = FilterLimits(criteria=100, total_criteria=250)
        async with (
            service(advanced=AdvancedServiceOptions(filter_limits=limits)) as node,
            contextlib.AsyncExitStack() as exits,
        ):
            codes, hosts = [], []
            for number in range(4):
                hosts.append(await exits.enter_async_context(await Host.start()))
                await hosts[-1].connect(node.addresses[0])
                topics = [f"/app/1/{number}-{topic}/proto" for topic in range(80)]
                answer = await request(hosts[-1], node, FILTER_SUBSCRIBE_PROTOCOL, subscription(topics))
                codes.append(decode_filter_subscribe_response(answer).status_code)
            assert codes == [200, 200, 200, 503]
            # What is given back is there for others.
            assert parts_of(node).filters.forget(str(hosts[0].peer_id))
            answer = await request(hosts[-1], node, FILTER_SUBSCRIBE_PROTOCOL, subscription(topics))
            assert decode_filter_subscribe_response(answer).status_code == 200
            answer = await request(hosts[-1], node, FILTER_SUBSCRIBE_PROTOCOL, subscription(topics))
            assert decode_filter_subscribe_response(answer).status_code == 200

    run(work())


def test_a_peer_that_identifies_repeatedly_is_queried_once_at_a_time():
    async def work():
        questions = []

        async def never_tell(stream):
            questions.append(stream)
            await asyncio.Event().wait()

        async with service() as node, await Host.start() as bad:
            bad.handle(METADATA_PROTOCOL, never_tell)
            await bad.connect(node.addresses[0])
            await until(lambda: questions)
            before = len(asyncio.all_tasks())
            for number in range(100):
                bad.handle(f"/another/{number}", never_tell)
                await until(lambda number=number: f"/another/{number}" in parts_of(node).host.protocols_of(bad.peer_id))
            assert len(questions) == 1
            await until(lambda: len(asyncio.all_tasks()) <= before)
            await serves(node)

    run(work())
