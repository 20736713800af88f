"""Peers whose requests are too large, or never whole, or whose answers nobody reads: refused, or bounded.

``FAIRWAY_HOSTILE_PEERS`` sets how many messages are begun and not finished: 200 by default.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.host import Host
from fairway.service.node import parts_of
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
from muxers import MUXERS

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
