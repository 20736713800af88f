"""A light client with several service nodes: they are used together, and one takes the place of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from fairway.libp2p.stream import Stream
from fairway.nodes.light import LightNode
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeResponse,
    FilterSubscribeType,
    MessagePush,
    decode_filter_subscribe_request,
    encode_filter_subscribe_response,
    encode_message_push,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushResponse,
    decode_lightpush_request,
    encode_lightpush_response,
)
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoredMessage,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until
from scripted_nodes import ScriptedNode, answers, light_client

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


class Node(ScriptedNode):
    """A service node that serves filter, light push and a store of two pages."""

    def __init__(
        self,
        push_code: Callable[[], int] = lambda: 200,
        kept: tuple[RoutedMessage, ...] = (),
        *,
        relays_to: int = 1,
        store_code: int = 200,
    ) -> None:
        super().__init__(
            {
                FILTER_SUBSCRIBE_PROTOCOL: answers(self._filter),
                LIGHTPUSH_PROTOCOL: answers(self._push),
                STORE_QUERY_PROTOCOL: answers(self._page),
            }
        )
        self.topics: set[str] = set()
        self.ping_codes: Iterator[int] = iter(())
        """What pings are answered with, in turn, and with 200 from then on."""
        self.taken: list[bytes | None] = []
        """Payloads that were pushed and taken."""
        self._push_code = push_code
        self._kept = kept
        self._relays_to, self._store_code = relays_to, store_code

    async def push_to(self, client: LightNode, *messages: RoutedMessage) -> None:
        """Push what came on a content topic."""
        stream = await self.host.open_stream(client.host.peer_id, [FILTER_PUSH_PROTOCOL])
        for one in messages:
            push = MessagePush(message_bytes=one.encoded, pubsub_topic=SHARD)
            await stream.write_frame(encode_message_push(push))

    async def _filter(self, peer: str, data: bytes) -> bytes:
        request = decode_filter_subscribe_request(data)
        status_code = 200
        match request.filter_subscribe_type:
            case FilterSubscribeType.SUBSCRIBE:
                self.topics.update(request.content_topics)
            case FilterSubscribeType.SUBSCRIBER_PING:
                status_code = next(self.ping_codes, 200)
        return encode_filter_subscribe_response(
            FilterSubscribeResponse(request_id=request.request_id, status_code=status_code)
        )

    async def _push(self, peer: str, data: bytes) -> bytes:
        request = decode_lightpush_request(data)
        status_code = self._push_code()
        if status_code == 200:
            self.taken.append(request.message().payload)
        return encode_lightpush_response(
            LightPushResponse(
                request_id=request.request_id,
                status_code=status_code,
                relay_peer_count=self._relays_to if status_code == 200 else None,
            )
        )

    async def _page(self, peer: str, data: bytes) -> bytes:
        request = decode_store_query_request(data)
        if self._store_code != 200:
            return encode_store_query_response(
                StoreQueryResponse(request_id=request.request_id, status_code=self._store_code)
            )
        half = len(self._kept) // 2
        is_first = request.pagination_cursor is None
        return encode_store_query_response(
            StoreQueryResponse(
                request_id=request.request_id,
                status_code=200,
                messages=tuple(
                    StoredMessage(message_hash=one.message_hash, message_bytes=one.encoded, pubsub_topic=SHARD)
                    for one in (self._kept[:half] if is_first else self._kept[half:])
                ),
                pagination_cursor=b"\x01" * 32 if is_first else None,
            )
        )


def message(number: int) -> RoutedMessage:
    waku = WakuMessage(payload=b"%d" % number, content_topic=TOPIC, timestamp_ns=1_760_000_000_000_000_000 + number)
    return RoutedMessage.of(SHARD, waku)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filter pings every hundredth of a second, of which the first failure counts."""
    monkeypatch.setattr("fairway.nodes.light.filter_client.PING_INTERVAL_S", 0.01)
    monkeypatch.setattr("fairway.nodes.light.filter_client.MAX_FAILED_PINGS", 1)


def test_what_two_nodes_push_comes_once() -> None:
    async def work() -> None:
        nodes = Node(), Node()
        async with light_client(*nodes) as light:
            heard = await light.subscribe(SHARD, [TOPIC])
            await until(lambda: all(node.topics for node in nodes))
            # What each pushes last shows that all before it was read.
            await nodes[0].push_to(light, message(1), message(2))
            await nodes[1].push_to(light, message(1), message(3))
            came: list[bytes] = []
            while not {b"2", b"3"} <= set(came):
                came += [one.message.payload for one in await heard.next_batch()]
            assert sorted(came) == [b"1", b"2", b"3"]

    run(work())


@pytest.mark.usefixtures("often")
def test_another_node_takes_the_place_of_one_that_does_not_answer_pings() -> None:
    async def work() -> None:
        nodes = Node(), Node()
        async with light_client(*nodes, peers_to_use=1) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: any(node.topics for node in nodes))
            first, second = sorted(nodes, key=lambda node: not node.topics)
            first.ping_codes = iter([500])
            await until(lambda: second.topics == {TOPIC})
            await until(lambda: light.status.connected)

    run(work())


@pytest.mark.usefixtures("often")
def test_a_client_is_away_while_no_node_has_its_subscription() -> None:
    async def work() -> None:
        node = Node()
        async with light_client(node) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: light.status.connected)
            changes = light.status_changes()
            node.topics.clear()
            node.ping_codes = iter([404])
            await until(lambda: node.topics == {TOPIC} and light.status.connected)
            away = [status.detail for status in changes.take() if not status.connected]
            assert away == ["no node has the filter subscription"]

    run(work())


def test_a_message_that_the_first_nodes_cannot_take_goes_through_another_one() -> None:
    async def work() -> None:
        codes = iter([503, 503])
        nodes = [Node(push_code=lambda: next(codes, 200)) for _ in range(3)]
        async with light_client(*nodes) as light:
            assert (await light.send(message(1))).accepted

    run(work())


def test_a_message_that_the_first_nodes_relay_to_nobody_goes_through_another_one() -> None:
    async def work() -> None:
        nodes = [Node(relays_to=0), Node(relays_to=0), Node()]
        async with light_client(*nodes) as light:
            for number in range(3):
                assert (await light.send(message(number))).accepted
                assert nodes[2].taken[number:] == [b"%d" % number]

    run(work())


def test_a_store_that_fails_hides_nothing_that_another_one_has() -> None:
    async def work() -> None:
        kept = tuple(message(number) for number in range(2))
        async with light_client(Node(store_code=503), Node(kept=kept), Node(store_code=503)) as light:
            page = await light.query(StoreQuery(message_hashes=(kept[0].message_hash,)))
            assert [one.message_hash for one in page.messages] == [kept[0].message_hash]

    run(work())


@pytest.mark.parametrize("first", range(3))
def test_a_node_that_does_not_answer_holds_up_no_message_that_another_one_takes(first: int) -> None:
    async def silent(_: Stream) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        nodes = [Node(lambda: 503), Node(), Node()]
        async with light_client(*nodes[first:], *nodes[:first], request_timeout_s=10 * PATIENCE_S) as light:
            nodes[2].host.handle(LIGHTPUSH_PROTOCOL, silent)
            for number in range(4):
                async with asyncio.timeout(PATIENCE_S):
                    assert (await light.send(message(number))).accepted

    run(work())


def test_all_pages_of_all_store_nodes_are_read() -> None:
    async def work() -> None:
        kept = tuple(message(number) for number in range(8))
        async with light_client(Node(kept=kept[:4]), Node(kept=kept[4:])) as light:
            page = await light.query(StoreQuery(pubsub_topic=SHARD))
            came = [*page.messages]
            while page.cursor is not None:
                page = await light.query(StoreQuery(pubsub_topic=SHARD), page.cursor)
                came += page.messages
            assert sorted(one.message.payload for one in came) == sorted(one.message.payload for one in kept)

    run(work())
