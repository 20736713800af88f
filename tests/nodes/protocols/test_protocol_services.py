"""The services of a node, from the bytes of a request to the bytes of a response."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, NetworkError, StoreQueryError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.nodes.protocols.filter_service import FilterService
from fairway.nodes.protocols.lightpush import LightPushService
from fairway.nodes.protocols.metadata import mismatch
from fairway.nodes.protocols.request_limiter import RequestLimiter, RequestRate
from fairway.nodes.protocols.rules import MAX_CLOCK_OFFSET_NS, MAX_RELAYED_BYTES, MessageRules, Refusal
from fairway.nodes.protocols.store_service import RESPONSE_BYTES, StoreService
from fairway.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_filter_subscribe_response,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LightPushRequest,
    StatusCode,
    decode_lightpush_response,
    decode_push_response_v2,
    encode_lightpush_request,
    encode_push_request_v2,
)
from fairway.wire.metadata import WakuMetadata, encode_metadata
from fairway.wire.store import (
    StoreQueryRequest,
    decode_store_query_response,
    encode_store_query_request,
)
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, encode_waku_message

NOW_NS = 1_760_000_000_000_000_000
SHARD = "/waku/2/rs/16/0"
TOPIC = "/app/1/chat/proto"
UNLIMITED = RequestLimiter(None)


def encoded(payload=b"hello", topic=TOPIC, timestamp_ns=NOW_NS, **fields):
    return encode_waku_message(WakuMessage(payload=payload, content_topic=topic, timestamp_ns=timestamp_ns, **fields))


def rules(cluster=16, shards=(0,)):
    return MessageRules.of_network(cluster, [f"/waku/2/rs/{cluster}/{shard}" for shard in shards])


# --- what may pass


@pytest.mark.parametrize(
    ("topic", "message", "status"),
    [
        ("/waku/2/rs/16/9", encoded(), StatusCode.UNSUPPORTED_PUBSUB_TOPIC),
        (SHARD, encoded(b"x" * MAX_RELAYED_BYTES), StatusCode.PAYLOAD_TOO_LARGE),
        (SHARD, b"\xff\xff", StatusCode.BAD_REQUEST),
        (SHARD, encoded(topic=""), StatusCode.BAD_REQUEST),
        (SHARD, encoded(b""), StatusCode.BAD_REQUEST),
    ],
)
def test_a_message_against_the_rules_is_refused_with_its_code(topic, message, status):
    judged = rules().judge(topic, message, NOW_NS)
    assert isinstance(judged, Refusal)
    assert judged.status is status


@pytest.mark.parametrize("offset_ns", [-MAX_CLOCK_OFFSET_NS - 1, MAX_CLOCK_OFFSET_NS + 1, -NOW_NS])
def test_only_the_waku_network_refuses_timestamps_that_are_off(offset_ns):
    message = encoded(timestamp_ns=NOW_NS + offset_ns)
    assert isinstance(rules(1).judge("/waku/2/rs/1/0", message, NOW_NS), Refusal)
    assert rules(16).judge(SHARD, message, NOW_NS).payload == b"hello"


def test_a_node_is_told_that_a_shard_is_of_another_cluster():
    with pytest.raises(ConfigurationError, match="no shard of cluster 16"):
        MessageRules.of_network(16, ["/waku/2/rs/1/0"])


# --- how often


@given(st.lists(st.floats(0, 5), max_size=200), st.integers(1, 20), st.floats(0.5, 50))
def test_a_peer_never_gets_more_than_its_rate_and_burst(pauses, burst, per_second):
    limiter = RequestLimiter(RequestRate(per_second=per_second, burst=burst))
    now_s, admitted = 0.0, 0
    for pause in pauses:
        now_s += pause
        admitted += limiter.admit("peer", now_s)
    assert admitted <= burst + now_s * per_second + 1e-6


def test_limits_of_one_peer_do_not_touch_another_and_peers_are_bounded():
    limiter = RequestLimiter(RequestRate(per_second=1, burst=1), max_peers=10)
    assert limiter.admit("a", 0)
    assert not limiter.admit("a", 0)
    assert all(limiter.admit(f"peer {number}", 0) for number in range(100))
    assert len(limiter) == 10


# --- light push


def push(request, *, peers=3, needs_peers=False, limiter=UNLIMITED, fault=None, raw=None):
    relayed = []

    async def publish(pubsub_topic, data, message):
        if fault is not None:
            raise fault
        relayed.append((pubsub_topic, data, message.content_topic))
        return peers

    service = LightPushService(
        rules=rules(16, range(8)),
        limiter=limiter,
        publish=publish,
        sharding=lambda content_topic: autoshard(content_topic, 16, 8),
        needs_relay_peers=needs_peers,
    )
    data = encode_lightpush_request(request) if raw is None else raw
    answer = asyncio.run(service.respond("peer", data, now_s=0, now_ns=NOW_NS))
    return decode_lightpush_response(answer), relayed


def request(message=None, topic=SHARD, request_id="r1"):
    return LightPushRequest(
        request_id=request_id, pubsub_topic=topic, message_bytes=encoded() if message is None else message
    )


def test_a_good_message_is_relayed_as_the_bytes_that_came():
    response, relayed = push(request())
    assert (response.status_code, response.relay_peer_count, response.request_id) == (200, 3, "r1")
    assert relayed == [(SHARD, encoded(), TOPIC)]


def test_without_a_pubsub_topic_autosharding_decides():
    _, relayed = push(request(topic=None))
    assert relayed[0][0] == autoshard(TOPIC, 16, 8)


def test_a_node_that_should_have_relay_peers_says_when_it_has_none():
    assert push(request(), peers=0, needs_peers=True)[0].status_code == StatusCode.NO_PEERS_TO_RELAY


def test_a_node_that_is_its_own_network_counts_itself_so_that_nwaku_takes_the_message_as_sent():
    """nwaku's client reads a relay_peer_count that is 0 or absent as 505."""
    alone = push(request(), peers=0)[0]
    assert (alone.status_code, alone.relay_peer_count) == (200, 1)


@pytest.mark.parametrize(
    ("asked", "raw", "status"),
    [
        (request(b""), None, StatusCode.BAD_REQUEST),
        (request(request_id=""), None, StatusCode.BAD_REQUEST),
        (request(), b"\x0a\xff", StatusCode.BAD_REQUEST),
        (request(), b"\x00" * 10_000_000, StatusCode.BAD_REQUEST),
        (request(encoded(b"x" * 153_600)), None, StatusCode.PAYLOAD_TOO_LARGE),
        (request(encoded(b"x" * 1_048_000)), None, StatusCode.PAYLOAD_TOO_LARGE),
        (request(topic="/waku/2/rs/9/9"), None, StatusCode.UNSUPPORTED_PUBSUB_TOPIC),
        (request(encoded() + b"\x5a\x41" + b"m" * 65), None, StatusCode.BAD_REQUEST),
    ],
)
def test_a_bad_request_is_answered_with_its_code_and_not_relayed(asked, raw, status):
    response, relayed = push(asked, raw=raw)
    assert (response.status_code, relayed) == (status, [])
    assert response.status_desc


def test_too_many_requests_and_failures_of_the_node_have_their_codes():
    spent = RequestLimiter(RequestRate(per_second=0.001, burst=1))
    assert spent.admit("peer", 0)
    assert push(request(), limiter=spent)[0].status_code == StatusCode.TOO_MANY_REQUESTS
    broken = push(request(), fault=NetworkError("the relay is closed"))[0]
    assert (broken.status_code, broken.status_desc) == (StatusCode.INTERNAL_SERVER_ERROR, "the relay is closed")


def test_the_previous_version_is_answered_too():
    async def publish(*_):
        return 2

    service = LightPushService(rules=rules(), limiter=UNLIMITED, publish=publish, sharding=str, needs_relay_peers=False)
    asked = LightPushRequest(request_id="old", pubsub_topic=SHARD, message_bytes=encoded())
    answer = asyncio.run(service.respond_v2("peer", encode_push_request_v2(asked), now_s=0, now_ns=NOW_NS))
    assert decode_push_response_v2(answer).is_success
    answer = asyncio.run(service.respond_v2("peer", b"\xff", now_s=0, now_ns=NOW_NS))
    assert not decode_push_response_v2(answer).is_success


# --- filter


def ask(service, peer, kind, topics=(TOPIC,), pubsub_topic=SHARD, now_s=0.0):
    criteria = {"pubsub_topic": pubsub_topic, "content_topics": tuple(topics)}
    asked = FilterSubscribeRequest(
        request_id="r",
        filter_subscribe_type=kind,
        **(criteria if kind in {FilterSubscribeType.SUBSCRIBE, FilterSubscribeType.UNSUBSCRIBE} else {}),
    )
    data = encode_filter_subscribe_request(asked)
    return decode_filter_subscribe_response(service.respond(peer, data, now_s)).status_code


def filter_service():
    return FilterService(pubsub_topics={SHARD}, limiter=UNLIMITED)


def test_a_subscriber_gets_what_it_asked_for_until_it_unsubscribes():
    service = filter_service()
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBER_PING) == 404
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBE, [TOPIC, "/b/1/b/b"]) == 200
    assert ask(service, "b", FilterSubscribeType.SUBSCRIBE) == 200
    assert service.subscribers_of(SHARD, TOPIC) == ("a", "b")
    assert service.subscribers_of("/waku/2/rs/16/1", TOPIC) == ()
    assert ask(service, "a", FilterSubscribeType.UNSUBSCRIBE) == 200
    assert service.subscribers_of(SHARD, TOPIC) == ("b",)
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBER_PING) == 200
    assert ask(service, "a", FilterSubscribeType.UNSUBSCRIBE, ["/c/1/c/c"]) == 404
    assert ask(service, "a", FilterSubscribeType.UNSUBSCRIBE_ALL) == 200
    assert ask(service, "a", FilterSubscribeType.UNSUBSCRIBE_ALL) == 404
    assert len(service) == 1


def test_a_silent_subscriber_is_forgotten_and_a_ping_keeps_one():
    service = filter_service()
    for peer in ("a", "b"):
        ask(service, peer, FilterSubscribeType.SUBSCRIBE)
    ask(service, "b", FilterSubscribeType.SUBSCRIBER_PING, now_s=100)
    assert service.expire(350) == ("a",)
    assert service.subscribers_of(SHARD, TOPIC) == ("b",)


def test_subscriptions_are_bounded(monkeypatch):
    monkeypatch.setattr("fairway.nodes.protocols.filter_service.MAX_SUBSCRIBERS", 2)
    monkeypatch.setattr("fairway.nodes.protocols.filter_service.MAX_CRITERIA", 3)
    service = filter_service()
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBE, [f"/{n}/1/a/b" for n in range(4)]) == 503
    assert [ask(service, peer, FilterSubscribeType.SUBSCRIBE) for peer in "abc"] == [200, 200, 503]
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBE, ["x" * 2_000]) == 400
    assert ask(service, "a", FilterSubscribeType.SUBSCRIBE, pubsub_topic="/waku/2/rs/16/7") == 400
    assert decode_filter_subscribe_response(service.respond("a", b"\xff", 0)).status_code == 400


_STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(FilterSubscribeType),
        st.lists(st.sampled_from(["/1/1/1/1", "/2/1/1/1", "/3/1/1/1"]), min_size=1, max_size=3),
    ),
    max_size=40,
)


@given(_STEPS)
def test_the_index_by_topic_always_agrees_with_the_subscriptions(steps):
    service = filter_service()
    expected: dict[str, set[str]] = {}
    for peer, kind, topics in steps:
        ask(service, peer, kind, topics)
        held = expected.setdefault(peer, set())
        if kind is FilterSubscribeType.SUBSCRIBE:
            held |= set(topics)
        elif kind is FilterSubscribeType.UNSUBSCRIBE:
            held -= set(topics)
        elif kind is FilterSubscribeType.UNSUBSCRIBE_ALL:
            held.clear()
    for topic in ("/1/1/1/1", "/2/1/1/1", "/3/1/1/1"):
        wanted = {peer for peer, held in expected.items() if topic in held}
        assert set(service.subscribers_of(SHARD, topic)) == wanted
    assert len(service) == sum(map(bool, expected.values()))


# --- store

JS_WAKU_READS_BYTES = 4_194_304
"""it-length-prefixed, the longest message by default."""


def store(asked, page=None, fault=None, limiter=UNLIMITED, raw=None):
    queries: list[tuple[StoreQuery, bytes | None]] = []

    async def archive(query, cursor):
        queries.append((query, cursor))
        if fault is not None:
            raise fault
        return page or StorePage(messages=())

    service = StoreService(archive, limiter)
    data = encode_store_query_request(asked, checked=False) if raw is None else raw
    answer = asyncio.run(service.respond("peer", data, now_s=0))
    assert len(answer) < JS_WAKU_READS_BYTES
    return decode_store_query_response(answer), queries


def routed(number, size=10):
    message = WakuMessage(payload=bytes([number]) * size, content_topic=TOPIC, timestamp_ns=NOW_NS + number)
    return RoutedMessage.of(SHARD, message)


def test_a_query_reaches_the_archive_as_it_was_asked_with_the_end_of_its_time_as_nwaku_takes_it():
    asked = StoreQueryRequest(
        request_id="q",
        pubsub_topic=SHARD,
        content_topics=(TOPIC,),
        time_start_ns=5,
        time_end_ns=9,
        pagination_forward=True,
        pagination_limit=1_000,
        pagination_cursor=b"c" * 32,
        include_data=True,
    )
    messages = (routed(1), routed(2))
    response, queries = store(asked, StorePage(messages=messages, cursor=b"d" * 32))
    assert queries == [
        (StoreQuery(pubsub_topic=SHARD, content_topics=(TOPIC,), start_ns=5, end_ns=10, page_size=100), b"c" * 32)
    ]
    assert [entry.message_bytes for entry in response.messages] == [message.encoded for message in messages]
    assert (response.status_code, response.pagination_cursor) == (200, b"d" * 32)


def test_a_look_up_by_hash_with_a_pubsub_topic_is_answered_as_js_waku_asks():
    asked = StoreQueryRequest(request_id="q", pubsub_topic=SHARD, message_hashes=(routed(1).message_hash,))
    response, queries = store(asked, StorePage(messages=(routed(1),)))
    assert queries[0][0].pubsub_topic == ""
    assert [(entry.message_hash, entry.message_bytes) for entry in response.messages] == [
        (routed(1).message_hash, None)
    ]


@pytest.mark.parametrize("forward", [True, False])
def test_a_page_too_long_for_one_response_ends_early_at_the_right_end(forward):
    messages = tuple(routed(number, 100_000) for number in range(60))
    asked = StoreQueryRequest(request_id="q", include_data=True, pagination_forward=forward, pagination_limit=100)
    response, _ = store(asked, StorePage(messages=messages))
    count = len(response.messages)
    assert 30 < count < 60
    assert sum(len(entry.message_bytes) for entry in response.messages) < RESPONSE_BYTES
    kept = messages[:count] if forward else messages[-count:]
    assert [entry.message_hash for entry in response.messages] == [message.message_hash for message in kept]
    assert response.pagination_cursor == kept[-1 if forward else 0].message_hash


@pytest.mark.parametrize(
    "asked",
    [
        StoreQueryRequest(request_id=""),
        StoreQueryRequest(request_id="q", message_hashes=(b"short",)),
        StoreQueryRequest(request_id="q", message_hashes=(b"h" * 32,) * 1_001),
        StoreQueryRequest(request_id="q", pagination_cursor=b"short"),
        StoreQueryRequest(request_id="q", content_topics=("t",) * 1_001),
    ],
)
def test_a_query_that_cannot_be_is_a_bad_request(asked):
    response, queries = store(asked)
    assert (response.status_code, queries) == (400, [])


def test_a_time_range_that_ends_before_it_starts_has_an_empty_page():
    response, queries = store(StoreQueryRequest(request_id="q", time_start_ns=9, time_end_ns=5))
    assert (response.status_code, response.messages, response.pagination_cursor) == (200, (), None)
    assert queries == []


def test_faults_of_query_archive_and_rate_have_their_codes():
    asked = StoreQueryRequest(request_id="q")
    assert store(asked, fault=StoreQueryError("unknown cursor"))[0].status_code == 400
    assert store(asked, fault=NetworkError("the disk is gone"))[0].status_code == 500
    assert store(asked, raw=b"\xff\xff")[0].status_code == 400
    spent = RequestLimiter(RequestRate(per_second=0.001, burst=1))
    assert spent.admit("peer", 0)
    assert store(asked, limiter=spent)[0].status_code == 429


# --- metadata


def test_a_peer_of_another_cluster_is_told_apart():
    ours = WakuMetadata(cluster_id=16, shards=(0,))
    assert mismatch(ours, encode_metadata(WakuMetadata(cluster_id=16))) is None
    assert "cluster 1" in (mismatch(ours, encode_metadata(WakuMetadata(cluster_id=1))) or "")
    assert "cluster None" in (mismatch(ours, b"") or "")
    assert "not valid protobuf" in (mismatch(ours, b"\xff") or "")
