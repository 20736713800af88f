"""The subscriptions of a light client: given up half-way, impossible, refused by the nodes, and at its end."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import ConfigurationError
from fairway.nodes.protocols.exchange import answering
from fairway.wire.filter import (
    FILTER_SUBSCRIBE_PROTOCOL,
    FilterSubscribeResponse,
    FilterSubscribeType,
    decode_filter_subscribe_request,
    encode_filter_subscribe_response,
)
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL
from patience import run, until
from scripted_nodes import ScriptedNode, answers, light_client

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


class FilterNode(ScriptedNode):
    """A service node that only knows filter, and answers every request with one status code."""

    def __init__(self, status_code=200, *, pushes=False):
        served = [FILTER_SUBSCRIBE_PROTOCOL, LIGHTPUSH_PROTOCOL] if pushes else [FILTER_SUBSCRIBE_PROTOCOL]
        super().__init__(dict.fromkeys(served, answers(self.respond)))
        self.status_code = status_code
        self.answers = asyncio.Event()
        self.answers.set()
        self.topics = set()
        self.requests_s = []

    @property
    def requests(self):
        return len(self.requests_s)

    async def respond(self, peer, data):
        self.requests_s.append(asyncio.get_running_loop().time())
        request = decode_filter_subscribe_request(data)
        await self.answers.wait()
        if self.status_code == 200:
            match request.filter_subscribe_type:
                case FilterSubscribeType.SUBSCRIBE:
                    self.topics.update(request.content_topics)
                case FilterSubscribeType.UNSUBSCRIBE:
                    self.topics.difference_update(request.content_topics)
        return encode_filter_subscribe_response(
            FilterSubscribeResponse(request_id=request.request_id, status_code=self.status_code)
        )


def test_nodes_that_refuse_a_subscription_are_asked_again_in_a_while_and_not_at_once():
    async def work(codes):
        nodes = [FilterNode(code) for code in codes]
        async with light_client(*nodes) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: max(node.requests for node in nodes) >= 4)
            # Once to subscribe, once more when the subscription was noticed, and once a second from then on.
            assert all(node.requests_s[3] - node.requests_s[0] > 0.9 for node in nodes if node.requests > 3)

    async def all_of_them():
        await asyncio.gather(*(work(codes) for codes in ((503,), (200, 503), (503, 503), (503, 429, 503))))

    run(all_of_them())


def test_another_node_takes_the_place_of_one_that_refuses_without_waiting():
    async def work():
        nodes = [FilterNode(503), FilterNode(503), FilterNode(200)]
        async with light_client(*nodes, peers_to_use=1) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: nodes[2].topics == {TOPIC})
            # Who waited would have asked the others once more a second later.
            assert max(node.requests for node in nodes[:2]) <= 2

    run(work())


def test_a_subscription_that_is_given_up_half_way_is_taken_back_at_the_node():
    async def work():
        node = FilterNode()
        async with light_client(node) as light:
            node.answers.clear()
            subscribing = asyncio.create_task(light.subscribe(SHARD, [TOPIC]))
            await until(lambda: node.requests == 1)
            subscribing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await subscribing
            node.answers.set()
            other = "/fairway-test/1/other/proto"
            await light.subscribe(SHARD, [other])
            await until(lambda: node.topics == {other})
            # Three requests: what was given up, this one, and what takes the first back.
            await until(lambda: node.requests >= 3 and node.topics == {other})

    run(work())


def test_impossible_subscriptions_are_refused_and_end_nothing_else():
    impossible = [("", [TOPIC]), (SHARD, [""]), (SHARD, ["\ud800"]), (SHARD, []), (SHARD, TOPIC), (SHARD, [1])]

    async def work():
        node = FilterNode()
        async with light_client(node) as light:
            for shard, topics in impossible:
                with pytest.raises(ConfigurationError):
                    await light.subscribe(shard, topics)
            await light.subscribe(SHARD, [TOPIC])
            # The node forgets: only a client that still looks after its subscriptions makes it again.
            await light.host.disconnect(node.host.peer_id)
            node.topics.clear()
            await until(lambda: node.topics == {TOPIC})

    run(work())


def test_a_topic_beyond_those_that_a_node_keeps_is_refused_and_the_others_stay():
    topics = [f"/fairway-test/1/{number}/proto" for number in range(1_000)]

    async def work():
        node = FilterNode()
        async with light_client(node) as light:
            first = await light.subscribe(SHARD, topics)
            await light.subscribe(SHARD, topics[:1])
            with pytest.raises(ConfigurationError, match="at most 1,000 content topics for one client"):
                await light.subscribe(SHARD, [TOPIC])
            await until(lambda: node.topics == set(topics))
            first.close()
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: node.topics == {topics[0], TOPIC})

    run(work())


def test_who_gives_up_waiting_for_the_end_still_has_everything_closed():
    async def work():
        node = FilterNode()
        async with light_client(node) as light:
            subscription = await light.subscribe(SHARD, [TOPIC])
            node.answers.clear()
            closing = asyncio.create_task(light.close())
            await until(lambda: node.requests == 2)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert await subscription.next_batch() == []
            await until(lambda: not node.host.connections())

    run(work())


@pytest.mark.parametrize("status_code", [200, 503])
def test_a_client_is_away_if_no_node_took_its_subscription_but_not_while_it_is_being_made(status_code):
    async def work():
        node = FilterNode(status_code, pushes=True)
        async with light_client(node) as light:
            await until(lambda: light.status.connected)
            changes = light.status_changes()
            node.answers.clear()
            subscribing = asyncio.create_task(light.subscribe(SHARD, [TOPIC]))
            await until(lambda: node.requests == 1)
            # What a node says it serves has the client look how it is.
            node.host.handle("/another/1", answering(node.respond, max_request_bytes=1))
            await until(lambda: "/another/1" in light.host.protocols_of(node.host.peer_id))
            node.answers.set()
            await subscribing
            away = [status.detail for status in changes.take() if not status.connected]
            assert away == ([] if status_code == 200 else [f"no node has the filter subscription: {status_code}"])
            assert light.status.connected is (status_code == 200)

    run(work())


def test_while_a_node_answers_no_ping_another_one_has_its_subscriptions_too(monkeypatch):
    async def work():
        nodes = [FilterNode(), FilterNode(), FilterNode()]
        monkeypatch.setattr("fairway.nodes.light.filter_client.PING_INTERVAL_S", 0.1)
        monkeypatch.setattr("fairway.nodes.light.filter_client.MAX_FAILED_PINGS", 1_000)
        async with light_client(*nodes, request_timeout_s=0.5) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: sum(node.topics == {TOPIC} for node in nodes) == 2)
            silent = [node for node in nodes if node.topics]
            (other,) = (node for node in nodes if not node.topics)
            for node in silent:
                node.answers.clear()
            await until(lambda: other.topics == {TOPIC})
            for node in silent:
                node.answers.set()
            await until(lambda: sum(node.topics == {TOPIC} for node in nodes) == 2)

    run(work())


def test_a_node_that_does_not_answer_holds_up_no_other_one(monkeypatch):
    async def work():
        silent, other = FilterNode(), FilterNode()
        monkeypatch.setattr("fairway.nodes.light.filter_client.PING_INTERVAL_S", 0.1)
        async with light_client(silent, other, request_timeout_s=1_000.0) as light:
            await light.subscribe(SHARD, [TOPIC])
            await until(lambda: silent.topics == other.topics == {TOPIC})
            silent.answers.clear()
            pinged = silent.requests
            await until(lambda: silent.requests > pinged)
            other.topics.clear()
            await light.host.disconnect(other.host.peer_id)
            await until(lambda: other.topics == {TOPIC})

    run(work())
