"""Exchanges that were recorded with a live nwaku v0.38.1: our services answer its clients, and answer as it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.filter_service import FilterService
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.nodes.protocols.store_service import StoreService
from fairway.service.archives import MemoryArchive
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    decode_filter_subscribe_request,
    decode_filter_subscribe_response,
    encode_filter_subscribe_request,
    encode_filter_subscribe_response,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    decode_lightpush_request,
    decode_lightpush_response,
    decode_push_request_v2,
    decode_push_response_v2,
)
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, decode_metadata
from fairway.wire.peer_exchange import PEER_EXCHANGE_PROTOCOL, decode_response
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    decode_store_query_request,
    decode_store_query_response,
    encode_store_query_response,
)
from patience import PATIENCE_S, run

VECTORS = Path(__file__).parents[2] / "vectors" / "nwaku"
SHARD = "/waku/2/rs/16/0"


def exchanges(name):
    """Return the exchanges of a file by name, in order, as bytes."""
    read = json.loads((VECTORS / f"{name}.json").read_bytes())
    return {
        name: {part: bytes.fromhex(data) for part, data in exchange.items()}
        for name, exchange in read.items()
        if isinstance(exchange, dict)
    }


FILTER = exchanges("filter")
STORE = exchanges("store")
REQUESTS = json.loads((VECTORS / "requests.json").read_bytes())
PEER_EXCHANGE = json.loads((VECTORS / "peer_exchange.json").read_bytes())["request"]


# --- what nwaku asks as a client


@contextlib.asynccontextmanager
async def node_and_client():
    options = ServiceOptions(cluster_id=16, shards=(0,), shard_count=1, tcp_port=0)
    async with (
        await ServiceNode.start(options, archive=MemoryArchive()) as node,
        await Host.start() as client,
    ):
        await client.connect(node.addresses[0])
        yield node, client


def answers(protocol, *requests):
    async def work():
        async with node_and_client() as (node, client):
            return [
                await PeerRequests(client).ask(
                    node.peer_id,
                    protocol,
                    bytes.fromhex(request),
                    max_response_bytes=1_000_000,
                    timeout_s=PATIENCE_S,
                )
                for request in requests
            ]

    return run(work())


def test_metadata_that_nwaku_sends_is_answered_with_that_of_the_node():
    (answer,) = answers(METADATA_PROTOCOL, *REQUESTS["metadata"])
    assert decode_metadata(answer) == WakuMetadata(cluster_id=16, shards=(0,))


def test_a_request_of_nwaku_for_records_is_answered():
    (answer,) = answers(PEER_EXCHANGE_PROTOCOL, PEER_EXCHANGE)
    response = decode_response(answer)
    assert (response.status, len(response.records)) == (200, 1)  # the node's own record


def test_nwaku_subscribes_by_filter_and_pings():
    codes = []
    for request, answer in zip(
        REQUESTS["filter"], answers(FILTER_SUBSCRIBE_PROTOCOL, *REQUESTS["filter"]), strict=True
    ):
        response = decode_filter_subscribe_response(answer)
        assert response.request_id == decode_filter_subscribe_request(bytes.fromhex(request)).request_id
        codes.append(response.status_code)
    assert codes == [200, 200]


def test_nwaku_takes_its_light_pushes_as_sent():
    """It needs the id of its request, the code 200 and a relay_peer_count above 0."""
    for request, answer in zip(
        REQUESTS["lightpush3"], answers(LIGHTPUSH_PROTOCOL, *REQUESTS["lightpush3"]), strict=True
    ):
        response = decode_lightpush_response(answer)
        assert response.request_id == decode_lightpush_request(bytes.fromhex(request)).request_id
        assert response.status_code == 200
        assert response.relay_peer_count
    (answer,) = answers(LIGHTPUSH_V2_PROTOCOL, *REQUESTS["lightpush2"])
    old = decode_push_response_v2(answer)
    assert old.request_id == decode_push_request_v2(bytes.fromhex(REQUESTS["lightpush2"][0])).request_id
    assert old.is_success


def test_nwaku_queries_the_store_by_time_and_by_hash():
    for request, answer in zip(REQUESTS["store"], answers(STORE_QUERY_PROTOCOL, *REQUESTS["store"]), strict=True):
        response = decode_store_query_response(answer)
        assert response.request_id == decode_store_query_request(bytes.fromhex(request)).request_id
        assert (response.status_code, response.messages) == (200, ())


# --- what nwaku answers as a service


def test_filter_requests_get_the_codes_of_nwaku_one_after_the_other():
    service = FilterService(pubsub_topics={SHARD}, limiter=RequestLimiter(None))
    for name, exchange in FILTER.items():
        recorded = decode_filter_subscribe_response(exchange["response"])
        ours = decode_filter_subscribe_response(service.respond("peer", exchange["request"], now_s=0))
        assert (ours.status_code, ours.request_id) == (recorded.status_code, recorded.request_id), name


@pytest.mark.parametrize("name", FILTER)
def test_filter_messages_are_read_and_written_byte_for_byte(name):
    request, response = FILTER[name]["request"], FILTER[name]["response"]
    assert encode_filter_subscribe_response(decode_filter_subscribe_response(response)) == response
    # nwaku reads a type of 0 whether it is written or not.
    again = encode_filter_subscribe_request(decode_filter_subscribe_request(request))
    assert decode_filter_subscribe_request(again) == decode_filter_subscribe_request(request)


def recorded_archive():
    """Return an archive with the messages that nwaku archived: not ephemeral, and dated within 20 s."""
    archive = MemoryArchive()
    for name, exchange in STORE.items():
        if not name.startswith("push"):
            continue
        request = decode_lightpush_request(exchange["request"])
        message = RoutedMessage.of(request.pubsub_topic, request.message(), request.message_bytes)
        assert message.message_hash == exchange["hash"]
        assert decode_lightpush_response(exchange["response"]).status_code == 200
        if name not in {"push3", "push4", "push5"}:
            archive.put(message, 0)
    return archive


QUERIES = [name for name in STORE if name.startswith("store")]


def page(response):
    """Return what a page says: codes, hashes, messages, cursor. nwaku encodes messages anew."""
    return (
        response.request_id,
        response.status_code,
        response.pagination_cursor,
        [
            (
                one.message_hash,
                one.pubsub_topic,
                one.message_bytes and RoutedMessage.of(SHARD, one.message()).message_hash,
                one.message_bytes and one.message().payload,
            )
            for one in response.messages
        ],
    )


@pytest.mark.parametrize("name", [name for name in QUERIES if "cursor" not in name])
def test_a_store_query_gets_the_page_of_nwaku(name):
    service = StoreService(recorded_archive().page, RequestLimiter(None))
    ours = asyncio.run(service.respond("peer", STORE[name]["request"], now_s=0))
    recorded = decode_store_query_response(STORE[name]["response"])
    assert page(decode_store_query_response(ours)) == page(recorded)
    assert all(one.message_hash == again for one, (again, *_) in zip(recorded.messages, page(recorded)[3], strict=True))


@pytest.mark.parametrize("name", [name for name in QUERIES if "cursor" in name])
def test_a_cursor_that_leads_nowhere_is_refused_as_by_nwaku(name):
    service = StoreService(recorded_archive().page, RequestLimiter(None))
    ours = decode_store_query_response(asyncio.run(service.respond("peer", STORE[name]["request"], now_s=0)))
    recorded = decode_store_query_response(STORE[name]["response"])
    assert not ours.is_success
    assert not recorded.is_success
    assert (recorded.status_code, recorded.request_id) == (300, "")
    assert "cursor not found" in (recorded.status_desc or "")


@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_of_the_store_survives_our_codec(name):
    recorded = decode_store_query_response(STORE[name]["response"])
    assert decode_store_query_response(encode_store_query_response(recorded)) == recorded
