"""One peer, or a crowd of them, takes of a node's services no more than leaves something for others."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.gossipsub.codec import Message, SubscriptionChange, encode_message, publish_frame
from fairway.libp2p.gossipsub.codec import subscription_frame as subscribed
from fairway.libp2p.gossipsub.router import Router, ValidationResult
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.node import StorePage
from fairway.nodes.protocols.filter_service import FilterService
from fairway.nodes.protocols.relay import Relay
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.nodes.protocols.rules import MessageRules
from fairway.nodes.protocols.store_service import MAX_UNDER_WAY, StoreService
from fairway.wire.filter import FilterSubscribeRequest, FilterSubscribeType
from fairway.wire.store import StoreQueryRequest
from fairway.wire.waku_message import WakuMessage, encode_waku_message
from patience import run

SHARD = "/waku/2/rs/16/0"
UNLIMITED = RequestLimiter(None)


def filters():
    return FilterService(pubsub_topics={SHARD}, limiter=UNLIMITED)


def ask(service, peer, topics=("/app/1/chat/proto",), kind=FilterSubscribeType.SUBSCRIBE):
    request = FilterSubscribeRequest(
        request_id="r", filter_subscribe_type=kind, pubsub_topic=SHARD, content_topics=tuple(topics)
    )
    if kind is FilterSubscribeType.SUBSCRIBER_PING:
        request = FilterSubscribeRequest(request_id="r", filter_subscribe_type=kind)
    return service.handle(peer, request, 0.0).status_code


def test_subscriptions_of_peers_that_left_give_way_to_one_that_is_here_the_oldest_first(monkeypatch):
    monkeypatch.setattr("fairway.nodes.protocols.filter_service.MAX_SUBSCRIBERS", 3)
    service = filters()
    for peer in "abc":
        assert ask(service, peer) == 200
    assert ask(service, "honest") == 503
    for peer in "ba":
        service.left(peer)
    assert ask(service, "honest") == 200
    assert (service.criteria_of("b"), len(service)) == (frozenset(), 3)
    # The other one came back in time.
    assert ask(service, "a", kind=FilterSubscribeType.SUBSCRIBER_PING) == 200
    assert ask(service, "another") == 503


def test_room_for_topics_is_made_in_the_same_way_and_only_as_much_as_is_needed(monkeypatch):
    monkeypatch.setattr("fairway.nodes.protocols.filter_service.MAX_TOTAL_CRITERIA", 4)
    service = filters()
    for peer in "abc":
        assert ask(service, peer, [f"/{peer}/1/t/proto"]) == 200
        service.left(peer)
    assert ask(service, "honest", ["/h/1/one/proto", "/h/1/two/proto"]) == 200
    assert [bool(service.criteria_of(peer)) for peer in "abc"] == [False, True, True]
    service.left("nobody")
    assert ask(service, "honest", [f"/h/1/{number}/proto" for number in range(5)]) == 503
    assert len(service.criteria_of("honest")) == 2


def test_a_peer_with_many_queries_under_way_is_asked_to_wait_and_another_is_answered():
    async def work():
        go_on = asyncio.Event()

        async def archive(query, cursor):
            await go_on.wait()
            return StorePage(messages=(), cursor=None)

        service = StoreService(archive, UNLIMITED)
        asked = StoreQueryRequest(request_id="q", pubsub_topic=SHARD, content_topics=("/app/1/chat/proto",))
        many = [asyncio.create_task(service.query("greedy", asked, now_s=0)) for _ in range(MAX_UNDER_WAY)]
        await asyncio.sleep(0)
        assert (await service.query("greedy", asked, now_s=0)).status_code == 429
        other = asyncio.create_task(service.query("honest", asked, now_s=0))
        await asyncio.sleep(0)
        go_on.set()
        assert [(await one).status_code for one in [*many, other]] == [200] * (MAX_UNDER_WAY + 1)
        assert (await service.query("greedy", asked, now_s=0)).status_code == 200

    run(work())


def peer(number):
    return PeerId(b"\x12\x20" + hashlib.sha256(str(number).encode()).digest())


def body(frame):
    _, start = decode_uvarint(frame) or (0, 0)
    return frame[start:]


def judged_by_relay(data):
    """Return what a relay says of a message of its shard."""

    async def work():
        async with await Host.start() as host:
            relay = Relay(host, MessageRules.of_network(16, [SHARD]), rng=random.Random(1))
            return relay.judge(Message(topic=SHARD, data=data))

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (encode_waku_message(WakuMessage(payload=b"p", content_topic="/a/1/b/proto")), ValidationResult.ACCEPT),
        (encode_waku_message(WakuMessage(payload=b"", content_topic="/a/1/b/proto")), ValidationResult.IGNORE),
        (encode_waku_message(WakuMessage(payload=b"p")), ValidationResult.IGNORE),
        (b"", ValidationResult.IGNORE),
        (b"\x0a\x01p\x12\x02\xff\xfe", ValidationResult.IGNORE),
        (b"\x0a\x01p\x12\x01t\x5a\x41" + b"m" * 65, ValidationResult.IGNORE),
        (b"\xff\xff", ValidationResult.REJECT),
        (b"\x0a\x7fshort", ValidationResult.REJECT),
    ],
    ids=["good", "no-payload", "no-topic", "empty", "topic-no-utf8", "long-meta", "garbage", "cut-off"],
)
def test_only_what_no_node_takes_for_a_message_is_held_against_who_brings_it(data, verdict):
    assert judged_by_relay(data) is verdict


def signed(topic, data):
    """Return a message with an author, as nodes that do not insist on StrictNoSign pass it on."""
    return encode_message(Message(topic=topic, data=data)) + b"\x0a\x02me" + b"\x1a\x08" + bytes(8)


@pytest.mark.parametrize("bad", [False, True], ids=["signed", "garbage"])
def test_who_passes_signed_messages_on_keeps_its_score_and_who_sends_garbage_does_not(bad):
    router = Router(lambda message: ValidationResult.ACCEPT, rng=random.Random(1))
    router.subscribe(SHARD)
    router.add_peer(peer(1), dialled=False)
    router.receive(peer(1), body(subscribed((SubscriptionChange(topic=SHARD, subscribed=True),))), 0)
    for number in range(100):
        message = b"\xff\xff" if bad else signed(SHARD, b"%d" % number)
        assert router.receive(peer(1), body(publish_frame(message)), 1) == []
    assert router.statistics().invalid == (34 if bad else 100)  # what a peer says that is graylisted is not heard
    assert (router.score_of(peer(1)) < -10_000) is bad
