"""A REST client and go-waku 0.10, as it answers: read off its handlers, and seen on it in ``tests/interop``."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.node import NodeHealth, StoreQuery
from patience import PATIENCE_S


class GoWaku:
    """A go-waku in memory, which relays."""

    def __init__(self, rest):
        self.rest = rest
        self.subscribed = False
        self.waiting: list[Any] | None = []
        self.sent = []

    def __call__(self, method, path, body):
        if path == "/health":
            return 501, "Non RLN healthcheck is not implemented"
        if path.startswith("/store/v3/messages"):
            return 500, {"messages": None, "error_message": "no suitable peers found"}
        if path.startswith("/relay/v1"):
            return self._relay(method, path, body)
        return 404, "404 page not found\n"

    def _relay(self, method, path, body):
        if path.endswith("/subscriptions"):
            self.subscribed = True
            return 200, True
        if not self.subscribed:
            return (404, "no subscription found for pubsubTopic") if method == "GET" else (500, "")
        if method == "POST":
            self.sent.append(json.loads(body))
            return 200, True
        waiting, self.waiting = self.waiting, None
        return 200, waiting


def test_messages_go_out_and_come_in_by_relay_and_an_empty_cache_is_none_at_all(rest):
    async def work():
        go = GoWaku(rest)
        async with rest.scripted(go) as server, await rest.client(server.url) as client:
            assert client.status.health is NodeHealth.MINIMALLY_HEALTHY
            changes = client.status_changes()
            subscription = await client.subscribe(rest.shard, [rest.topic])
            assert all(status.connected for status in changes.take())
            for number in range(3):
                assert (await client.send(rest.message(number))).accepted
                # What its peers sent comes without a version, and with an ephemeral that is neither.
                shape = {"payload": "aGFsbG8=", "contentTopic": rest.topic, "timestamp": 17 + number, "ephemeral": None}
                go.waiting = [shape]
                async with asyncio.timeout(PATIENCE_S):
                    got = (await anext(subscription)).message
                assert (got.payload, got.timestamp_ns, got.ephemeral) == (b"hallo", 17 + number, None)
            assert [message["payload"] for message in go.sent] == ["bWVzc2FnZSAw", "bWVzc2FnZSAx", "bWVzc2FnZSAy"]
            assert client.status.health is NodeHealth.MINIMALLY_HEALTHY

    rest.run(work())


def test_a_shard_that_the_node_does_not_relay_yet_is_subscribed_first(rest):
    async def work():
        go = GoWaku(rest)
        async with rest.scripted(go) as server, await rest.client(server.url) as client:
            assert (await client.send(rest.message(1))).accepted
            assert (go.subscribed, len(go.sent)) == (True, 1)

    rest.run(work())


def test_that_the_node_knows_no_store_is_said_by_the_status_until_it_does(rest):
    async def work():
        go = GoWaku(rest)
        page = {"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": []}

        def script(method, path, body):
            return found.get(path.partition("?")[0]) or go(method, path, body)

        found = {}
        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            assert client.status.store
            with pytest.raises(StoreQueryError, match="no suitable peers"):
                await client.query(StoreQuery(pubsub_topic=rest.shard, content_topics=(rest.topic,)))
            assert not client.status.store
            found["/store/v3/messages"] = (200, page)
            await client.query(StoreQuery(pubsub_topic=rest.shard, content_topics=(rest.topic,)))
            assert client.status.store

    rest.run(work())
