"""A light client among service nodes that lie, and that talk without end: it believes what it can check."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import Counter

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.protocols.exchange import answering
from fairway.wire.filter import FILTER_PUSH_PROTOCOL, MessagePush, encode_message_push
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushResponse,
    decode_lightpush_request,
    encode_lightpush_response,
)
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, encode_metadata
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoredMessage,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import WakuMessage
from patience import run, until
from scripted_nodes import ScriptedNode, answers, light_client

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


def message(payload, topic=TOPIC):
    return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=topic, timestamp_ns=time.time_ns()))


def entry(routed, message_hash=None):
    return StoredMessage(
        message_hash=message_hash or routed.message_hash, message_bytes=routed.encoded, pubsub_topic=routed.pubsub_topic
    )


def store(entries, *, cursor=None, asked=None):
    """A handler of store queries that always answers the same."""

    async def respond(peer, data):
        request = decode_store_query_request(data)
        if asked is not None:
            asked.append(request)
        return encode_store_query_response(
            StoreQueryResponse(
                request_id=request.request_id,
                status_code=200,
                status_desc="OK",
                messages=tuple(entries),
                pagination_cursor=cursor,
            )
        )

    return answers(respond)


def pusher(status_code):
    """A handler of light pushes that always says the same; None: nothing."""

    async def respond(peer, data):
        if status_code is None:
            raise ConnectionError
        request = decode_lightpush_request(data)
        return encode_lightpush_response(
            LightPushResponse(request_id=request.request_id, status_code=status_code, status_desc="so it is")
        )

    return answers(respond)


@contextlib.asynccontextmanager
async def among(*services, **options):
    """A light client connected to nodes that have these handlers by protocol."""
    nodes = [ScriptedNode(handlers) for handlers in services]
    async with light_client(*nodes, **options) as light:
        yield light, [node.host for node in nodes]


def test_a_message_under_a_false_hash_hides_no_message_of_another_node():
    async def work():
        true, false = message(b"true"), message(b"false")
        lying, honest = store([entry(false, true.message_hash)]), store([entry(true)])
        async with among({STORE_QUERY_PROTOCOL: honest}, {STORE_QUERY_PROTOCOL: lying}) as (light, _):
            for query in (StoreQuery(pubsub_topic=SHARD), StoreQuery(message_hashes=(true.message_hash,))):
                page = await light.query(query)
                assert [found.message.payload for found in page.messages] == [b"true"]

    run(work())


def test_what_was_not_asked_for_is_left_out():
    async def work():
        wanted, other = message(b"wanted"), message(b"other", "/other/1/room/proto")
        async with among({STORE_QUERY_PROTOCOL: store([entry(wanted), entry(other)])}) as (light, _):
            page = await light.query(StoreQuery(pubsub_topic=SHARD, content_topics=(TOPIC,)))
            assert [found.message.payload for found in page.messages] == [b"wanted"]
            assert (await light.query(StoreQuery(pubsub_topic="/waku/2/rs/16/1"))).messages == ()

    run(work())


def test_a_query_that_is_given_up_as_soon_as_it_is_asked_leaves_nothing_undone():
    async def work():
        async with among({STORE_QUERY_PROTOCOL: store([])}) as (light, _):
            for _ in range(3):
                asking = asyncio.create_task(light.query(StoreQuery(pubsub_topic=SHARD)))
                await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        gc.collect()  # a question that was made and never asked says so now, and a warning is an error

    run(work())


def test_a_store_that_goes_on_for_ever_with_what_nobody_asked_for_is_asked_once():
    async def work():
        asked = []
        endless = store([entry(message(b"again"))], cursor=b"c" * 32, asked=asked)
        async with among({STORE_QUERY_PROTOCOL: endless}) as (light, _):
            page = await light.query(StoreQuery(message_hashes=(b"h" * 32, b"i" * 32)))
            assert (page.messages, page.cursor) == ((), None)
            assert len(asked) == 1

    run(work())


def test_a_node_that_answers_garbage_is_one_that_failed():
    async def work():
        async def garbage(peer, data):
            return b"\xff" * 100

        handler = answering(garbage, max_request_bytes=1 << 20)
        async with among({STORE_QUERY_PROTOCOL: handler, LIGHTPUSH_PROTOCOL: handler}) as (light, _):
            with pytest.raises(StoreQueryError):
                await light.query(StoreQuery())
            result = await light.send(message(b"out"))
            assert (result.accepted, result.permanent) == (False, False)

    run(work())


@pytest.mark.parametrize(
    ("codes", "accepted", "permanent"),
    [
        ((413, 413), False, True),
        ((413, 503), False, False),
        ((413, 505), False, False),
        ((413, None), False, False),
        ((413, 200), True, False),
        ((None, None), False, False),
    ],
)
def test_one_node_that_refuses_for_good_does_not_speak_for_those_that_cannot_now(codes, accepted, permanent):
    async def work():
        async with among(*({LIGHTPUSH_PROTOCOL: pusher(code)} for code in codes)) as (light, _):
            result = await light.send(message(b"out"))
            assert (result.accepted, result.permanent) == (accepted, permanent)

    run(work())


def test_what_two_nodes_took_and_no_store_has_goes_to_the_third_one(monkeypatch):
    monkeypatch.setattr("fairway.nodes.light.sent_confirmation.CONFIRM_AFTER_S", 0.05)
    taken = Counter()

    def taking(name):
        async def respond(peer, data):
            taken[name] += 1
            request = decode_lightpush_request(data)
            return encode_lightpush_response(
                LightPushResponse(request_id=request.request_id, status_code=200, relay_peer_count=3)
            )

        return answers(respond)

    async def work():
        services = [{LIGHTPUSH_PROTOCOL: taking(name), STORE_QUERY_PROTOCOL: store([])} for name in "abc"]
        async with among(*services) as (light, _):
            result = await light.send(message(b"out"))
            assert result.stored is not None
            assert await result.stored is False
            await until(lambda: len(taken) == 3)

    run(work())


def test_pushes_that_nobody_asked_for_are_counted_and_left_out():
    async def work():
        async with among({}) as (light, (node,)):
            heard = await light.subscribe(SHARD, [TOPIC])
            stream = await node.open_stream(light.host.peer_id, [FILTER_PUSH_PROTOCOL])
            for number in range(50):
                push = MessagePush(message_bytes=message(b"%d" % number).encoded, pubsub_topic=SHARD)
                await stream.write_frame(encode_message_push(push))
                await stream.write_frame(b"\xff")
            await until(lambda: light.statistics().unwanted == 100)
            assert not heard.take()

    run(work())


def test_a_node_that_says_without_end_what_it_serves_is_asked_one_question_at_a_time():
    async def work():
        questions, release = [], asyncio.Event()

        async def metadata(peer, data):
            questions.append(data)
            await release.wait()
            return encode_metadata(WakuMetadata(cluster_id=16))

        handler = answering(metadata, max_request_bytes=1 << 16)
        services = {METADATA_PROTOCOL: handler, STORE_QUERY_PROTOCOL: store([])}
        async with among(services, cluster_id=16) as (light, (node,)):
            before = len(asyncio.all_tasks())
            for number in range(50):
                node.handle(f"/another/{number}", handler)
                await until(lambda number=number: f"/another/{number}" in light.host.protocols_of(node.peer_id))
            assert len(questions) <= 1
            assert not light.status.store
            assert len(asyncio.all_tasks()) < before + 20
            release.set()
            await until(lambda: light.status.store)  # of a node of its cluster

    run(work())
