"""A light client whose service nodes serve few streams at a time: it opens few, and repeats what was not served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from fairway.errors import StoreQueryError
from fairway.libp2p.errors import Libp2pError, LimitError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream
from fairway.nodes.light import LightNode
from fairway.nodes.node import RoutedMessage, SendResult, StoreQuery
from fairway.nodes.protocols.exchange import answering
from fairway.nodes.protocols.peer_requests import MAX_STREAMS, PeerRequests
from fairway.wire.filter import FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushResponse,
    decode_lightpush_request,
    encode_lightpush_response,
)
from fairway.wire.store import (
    STORE_QUERY_PROTOCOL,
    StoreQueryResponse,
    decode_store_query_request,
    encode_store_query_response,
)
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until
from scripted_nodes import ScriptedNode, accepts_subscriptions, answers, light_client

SHARD, TOPIC = "/waku/2/rs/16/0", "/fairway-test/1/room/proto"
ECHO = "/fairway-test/echo/1"


class Gate:
    """A handler that serves at most so many streams of all clients, and ends or resets a further one unread."""

    def __init__(self, serve: Callable[[Stream], Awaitable[None]], at_once: float, *, resets: bool = False) -> None:
        self.open, self.most, self.turned_away, self.at_once = 0, 0, 0, at_once
        self._serve, self._resets = serve, resets

    async def __call__(self, stream: Stream) -> None:
        if self.open >= self.at_once:
            self.turned_away += 1
            await (stream.reset() if self._resets else stream.close())
            return
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self._serve(stream)
        finally:
            self.open -= 1


class Node(ScriptedNode):
    """A service node that serves at most so many streams of each protocol."""

    def __init__(self, at_once: float, *, resets: bool = False) -> None:
        self.taken: list[bytes] = []
        self.release = asyncio.Event()
        """Pushes and queries are answered from then on."""
        self.release.set()
        handlers = {
            LIGHTPUSH_PROTOCOL: answers(self._push),
            STORE_QUERY_PROTOCOL: answers(self._page),
            FILTER_SUBSCRIBE_PROTOCOL: accepts_subscriptions,
        }
        self.gates = {protocol: Gate(handler, at_once, resets=resets) for protocol, handler in handlers.items()}
        super().__init__(self.gates)
        self.pushes = self.gates[LIGHTPUSH_PROTOCOL]

    async def _push(self, peer: str, data: bytes) -> bytes:
        await self.release.wait()
        request = decode_lightpush_request(data)
        self.taken.append(request.message().payload or b"")
        return encode_lightpush_response(
            LightPushResponse(request_id=request.request_id, status_code=200, relay_peer_count=1)
        )

    async def _page(self, peer: str, data: bytes) -> bytes:
        await self.release.wait()
        request = decode_store_query_request(data)
        return encode_store_query_response(StoreQueryResponse(request_id=request.request_id, status_code=200))


def message(number: int) -> RoutedMessage:
    return RoutedMessage.of(SHARD, WakuMessage(payload=b"%d" % number, content_topic=TOPIC, timestamp_ns=1 + number))


async def send_at_once(light: LightNode, count: int) -> list[SendResult]:
    return list(await asyncio.gather(*(light.send(message(number)) for number in range(count))))


def faults(results: Sequence[SendResult]) -> set[str]:
    return {result.detail for result in results if not result.accepted}


@pytest.mark.parametrize("resets", [False, True], ids=["ends a further one", "resets a further one"])
@pytest.mark.parametrize("at_once", [10, 3, 1])
def test_a_burst_of_messages_goes_through_a_node_that_serves_few_streams(at_once: int, resets: bool) -> None:
    async def work() -> None:
        node = Node(at_once, resets=resets)
        async with light_client(node) as light:
            assert faults(await send_at_once(light, 64)) == set()
            assert sorted(node.taken) == sorted(b"%d" % number for number in range(64))
            # One stream less is open after each that was not served, until many were.
            assert node.pushes.turned_away <= (0 if at_once >= MAX_STREAMS else 12)

    run(work())


def test_at_most_eight_streams_are_open_for_each_protocol_of_a_node() -> None:
    async def work() -> None:
        node = Node(float("inf"))
        node.release.clear()
        async with light_client(node) as light:
            sending = asyncio.create_task(send_at_once(light, 40))
            asking = [asyncio.create_task(light.query(StoreQuery(pubsub_topic=SHARD))) for _ in range(40)]
            store = node.gates[STORE_QUERY_PROTOCOL]
            await until(lambda: node.pushes.open == store.open == MAX_STREAMS)
            node.release.set()
            assert faults(await sending) == set()
            await asyncio.gather(*asking)
            assert node.pushes.most == store.most == MAX_STREAMS == 8

    run(work())


def test_a_message_takes_the_node_that_has_a_stream_free() -> None:
    async def work() -> None:
        nodes = [Node(10) for _ in range(3)]
        async with light_client(*nodes) as light:
            for node in nodes:
                node.release.clear()
            held = asyncio.create_task(send_at_once(light, MAX_STREAMS))
            await until(lambda: sorted(node.pushes.open for node in nodes)[1:] == [MAX_STREAMS, MAX_STREAMS])
            [free] = [node for node in nodes if node.pushes.open < MAX_STREAMS]
            free.release.set()
            assert (await light.send(message(99))).accepted
            assert b"99" in free.taken
            for node in nodes:
                node.release.set()
            await held

    run(work())


def test_a_node_that_serves_nothing_keeps_no_message_from_another_one_and_is_asked_a_few_times_only() -> None:
    async def work() -> None:
        dead, good = Node(0), Node(10)
        async with light_client(dead, good) as light:
            assert faults(await send_at_once(light, 20)) == set()
        async with light_client(dead) as light:
            before = dead.pushes.turned_away
            result = await light.send(message(1))
            assert (result.accepted, result.permanent, result.too_many) == (False, False, False)
            assert "ended the stream without a response" in result.detail
            assert dead.pushes.turned_away - before < 10
            with pytest.raises(StoreQueryError, match="ended the stream without a response"):
                await light.query(StoreQuery(pubsub_topic=SHARD))

    run(work())


def test_what_waits_for_a_stream_too_long_asks_the_sender_to_slow_down_and_blames_no_node() -> None:
    async def work() -> None:
        node = Node(10)
        async with light_client(node, request_timeout_s=0.5) as light:
            node.release.clear()
            held = [asyncio.create_task(light.send(message(number))) for number in range(MAX_STREAMS + 1)]
            last = await held[-1]
            assert (last.accepted, last.too_many) == (False, True)
            assert "unanswered" in last.detail
            node.release.set()
            await asyncio.gather(*held)

    run(work())


def test_what_still_waits_for_a_stream_when_a_push_ends_is_dropped_without_an_error() -> None:
    async def work() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        slow, quick = Node(10), Node(10)
        async with light_client(slow, quick) as light:
            slow.release.clear()
            assert faults(await send_at_once(light, 3 * MAX_STREAMS)) == set()
            slow.release.set()
            await until(lambda: not slow.pushes.open)
        assert errors == []

    run(work())


async def echo(peer: str, data: bytes) -> bytes:
    await asyncio.sleep(0)  # all requests that arrived together are now being served
    return data


@contextlib.asynccontextmanager
async def asking(gate: Gate) -> AsyncIterator[tuple[PeerRequests, PeerId]]:
    async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as there, await Host.start() as here:
        there.handle(ECHO, gate)
        await here.connect(there.addresses[0])
        yield PeerRequests(here), there.peer_id


async def ask(requests: PeerRequests, peer: PeerId, data: bytes, timeout_s: float = PATIENCE_S) -> bytes:
    return await requests.ask(peer, ECHO, data, max_response_bytes=100, timeout_s=timeout_s)


def test_more_streams_are_used_again_when_a_node_serves_more() -> None:
    async def work() -> None:
        gate = Gate(answering(echo, max_request_bytes=100), 2)
        async with asking(gate) as (requests, peer):
            for data in (b"few", b"more"):
                answers = await asyncio.gather(*(ask(requests, peer, data) for _ in range(500)))
                assert set(answers) == {data}
                gate.at_once = float("inf")
            assert gate.most == MAX_STREAMS

    run(work())


def test_a_request_that_is_given_up_leaves_its_stream_to_another_one() -> None:
    async def silent(stream: Stream) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        gate = Gate(silent, float("inf"))
        async with asking(gate) as (requests, peer):
            held = [asyncio.create_task(ask(requests, peer, b"x")) for _ in range(3 * MAX_STREAMS)]
            for first in (0, MAX_STREAMS, 2 * MAX_STREAMS):
                await until(lambda first=first: gate.open == first + MAX_STREAMS)
                assert requests.is_busy(peer, ECHO)
                with pytest.raises(LimitError):
                    await ask(requests, peer, b"x", timeout_s=0.01)
                some = held[first : first + MAX_STREAMS]
                for one in some:
                    one.cancel()
                await asyncio.wait(some)
            assert not requests.is_busy(peer, ECHO)

    run(work())


def test_a_connection_that_ends_ends_all_its_requests() -> None:
    async def silent(stream: Stream) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        gate = Gate(silent, float("inf"))
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as there, await Host.start() as here:
            there.handle(ECHO, gate)
            connection = await here.connect(there.addresses[0])
            requests = PeerRequests(here)
            held = [asyncio.create_task(ask(requests, there.peer_id, b"x")) for _ in range(20)]
            await until(lambda: gate.open == MAX_STREAMS)
            await connection.close()
            ends = await asyncio.gather(*held, return_exceptions=True)
            assert all(isinstance(end, Libp2pError) for end in ends)

    run(work())
