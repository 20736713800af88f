"""Peers whose requests are too large, or never whole, or whose answers nobody reads: refused, or bounded.

``FAIRWAY_HOSTILE_PEERS`` sets how many messages are begun and not finished: 200 by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.gossipsub.codec import SubscriptionChange as Change
from fairway.libp2p.gossipsub.codec import subscription_frame
from fairway.libp2p.host import Host
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.service.node import parts_of
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    decode_filter_subscribe_response,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_push_request_v2,
)
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoreQueryRequest,
    decode_store_query_response,
    encode_store_query_request,
)
from fairway.wire.varint import encode_uvarint
from muxers import MUXERS
from patience import PATIENCE_S

BEGUN = int(os.environ.get("FAIRWAY_HOSTILE_PEERS", "200"))
MIB = 1_048_576


def test_peers_that_query_pages_and_read_none_take_bounded_memory(crowd):
    async def work():
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

    crowd.run(work())


@MUXERS
def test_unfinished_messages_take_bounded_memory(crowd, muxer, monkeypatch):
    limit = 16 * MIB
    monkeypatch.setattr("fairway.libp2p.limits.MAX_BUFFERED_BYTES", limit)

    async def begin(connection):
        with contextlib.suppress(Libp2pError):  # of streams that gave way
            stream = await connection.open_stream([LIGHTPUSH_PROTOCOL])
            await stream.write(encode_uvarint(300_000) + bytes(250_000))

    async def work():
        async with crowd.service() as node, contextlib.AsyncExitStack() as exits:
            most = 0
            for begun in range(0, BEGUN, 50):
                host = await exits.enter_async_context(crowd.client(node, muxer))
                (connection,) = host.connections()
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(*(begin(connection) for _ in range(min(50, BEGUN - begun))))
                most = max(most, parts_of(node).host.statistics().buffered_bytes)
            assert limit - 300_000 < most <= limit
            crowd.report(f"{BEGUN} messages begun:", held=most)
            async with crowd.client(node, muxer) as honest:
                assert [await crowd.push(honest, node, 140_000) for _ in range(10)] == [200] * 10

    crowd.run(work())


def test_a_relay_peer_with_10_000_topics_has_a_bounded_number_remembered(crowd):
    async def work():
        async with crowd.service() as node, await Host.start() as bad:
            connection = await bad.connect(node.addresses[0])
            stream = await connection.open_stream([RELAY_PROTOCOL])
            for start in range(0, 10_000, 500):
                topics = [Change(topic=f"{'t' * 200}{start + number}", subscribed=True) for number in range(500)]
                await stream.write(subscription_frame(tuple(topics)))
            # What it leaves was subscribed to before, and is read after all the rest.
            left = Change(topic=f"{'t' * 200}0", subscribed=False)
            await crowd.until(lambda: parts_of(node).relay.statistics().interests == 1_024)
            await stream.write(subscription_frame((left,)))
            await crowd.until(lambda: parts_of(node).relay.statistics().interests == 1_023)
            await bad.close()
            await crowd.until(lambda: not parts_of(node).relay.statistics().interests)
            await crowd.serves(node)

    crowd.run(work())


def test_a_filter_client_with_10_000_topics_is_refused(crowd):
    async def work():
        async with crowd.service() as node, await Host.start() as bad:
            await bad.connect(node.addresses[0])
            codes = []
            for start in range(0, 10_000, 100):
                topics = [f"/app/1/{start + number}/proto" for number in range(100)]
                answer = await crowd.request(bad, node, FILTER_SUBSCRIBE_PROTOCOL, crowd.subscription(topics))
                codes.append(decode_filter_subscribe_response(answer).status_code)
            assert codes == [200] * 10 + [503] * 90
            assert len(parts_of(node).filters.criteria_of(str(bad.peer_id))) == 1_000
            many = [f"/app/1/{number}/proto" for number in range(10_000)]
            answer = await crowd.request(bad, node, FILTER_SUBSCRIBE_PROTOCOL, crowd.subscription(many))
            assert decode_filter_subscribe_response(answer).status_code in {400, 503}
            await crowd.serves(node)

    crowd.run(work())


@pytest.mark.parametrize("count", [1_001, 30_000])
def test_a_store_query_for_more_hashes_than_anyone_needs_is_refused(crowd, count):
    async def work():
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

    crowd.run(work())


@MUXERS
@pytest.mark.parametrize("size", [4 * MIB, 20 * MIB], ids=["somewhat", "very"])
def test_a_light_push_that_is_longer_than_any_is_read_is_answered_with_413_and_its_own_id(crowd, muxer, size):
    async def work():
        message = bytes(size)
        asked = encode_lightpush_request(
            LightPushRequest(request_id="mine", pubsub_topic=crowd.shard, message_bytes=message)
        )
        asked_v2 = encode_push_request_v2(
            LightPushRequest(request_id="mine too", pubsub_topic=crowd.shard, message_bytes=message)
        )
        async with crowd.service() as node, crowd.client(node, muxer) as client:
            assert len(asked) > parts_of(node).lightpush.max_request_bytes
            answer = decode_lightpush_response(await crowd.request(client, node, LIGHTPUSH_PROTOCOL, asked))
            assert (answer.request_id, answer.status_code) == ("mine", 413)
            answer_v2 = decode_push_response_v2(await crowd.request(client, node, LIGHTPUSH_V2_PROTOCOL, asked_v2))
            assert (answer_v2.request_id, answer_v2.is_success) == ("mine too", False)
            assert "message size exceeded" in (answer_v2.info or "")
            # The connection lives, and nothing of it is left in memory.
            assert await crowd.push(client, node) == 200
            await crowd.until(lambda: not parts_of(node).host.statistics().buffered_bytes)

    crowd.run(work())


def test_a_light_push_without_an_id_or_end_that_is_too_long_is_answered_as_well(crowd):
    async def work():
        async with crowd.service() as node, crowd.client(node) as client:
            for beginning in (b"", b"\xff" * 600, b"\x0a\x7fshort"):
                stream = await client.open_stream(node.peer_id, [LIGHTPUSH_PROTOCOL])
                await stream.write(encode_uvarint(100 * MIB) + beginning)
                await stream.close_write()
                answer = decode_lightpush_response(await stream.read_frame(MIB))
                assert (answer.request_id, answer.status_code) == ("", 413)
                await stream.close()

    crowd.run(work())
