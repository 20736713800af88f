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
from fairway.libp2p.errors import StreamError
from fairway.libp2p.gossipsub.codec import Message, encode_message, publish_frame, subscription_frame
from fairway.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.libp2p.host import Host
from fairway.nodes.node import StoreQuery
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
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
