"""What tests of service nodes share.

`Rest`: a node with its REST API, and a client of it that is nothing but the standard library's. `Crowd`: a node among
peers that ask for too much, and an honest one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    encode_filter_subscribe_request,
)
from fairway.wire.lightpush import (
    LIGHTPUSH_PROTOCOL,
    LightPushRequest,
    decode_lightpush_response,
    encode_lightpush_request,
)
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


def _call(server, method, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


class Rest:
    """What the tests of the REST API share."""

    shard = SHARD
    topic = TOPIC

    @staticmethod
    @asynccontextmanager
    async def serving(rest=None, **changes):
        options = {"cluster_id": 16, "shards": (0,), "shard_count": 1, **changes}
        async with (
            await ServiceNode.start(ServiceOptions(**options)) as node,
            await RestServer.start(node, rest or RestOptions()) as server,
        ):
            yield node, server

    @staticmethod
    async def call(server, method, path, body=None, **headers):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers = {"content_type": "application/json", **headers}
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await asyncio.to_thread(_call, server, method, path, body, fields)

    @classmethod
    async def publish(cls, server, payload="aGFsbG8=", *, topic=TOPIC, **fields):
        message = {"payload": payload, "contentTopic": topic, **fields}
        answer = await cls.call(server, "POST", f"/relay/v1/messages/{quote(SHARD, safe='')}", message)
        assert (answer.status, answer.text) == (200, "OK")

    run = staticmethod(run)


@pytest.fixture
def rest():
    return Rest


class Crowd:
    """What the tests with hostile peers do and measure."""

    shard = SHARD
    topic = TOPIC

    @staticmethod
    @asynccontextmanager
    async def service(**changes):
        given = {"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes}
        async with await ServiceNode.start(ServiceOptions(**given)) as node:
            yield node

    @classmethod
    @asynccontextmanager
    async def client(cls, node, muxer="/yamux/1.0.0", **handlers):
        """A peer that is connected; ``handlers`` are coroutine functions by the names below."""
        named = {"pushes": FILTER_PUSH_PROTOCOL, "relay": RELAY_PROTOCOL}
        async with await Host.start(muxers=[muxer]) as host:
            for name, handler in handlers.items():
                host.handle(named[name], handler)
            await host.connect(node.addresses[0])
            yield host

    @staticmethod
    def message(size=20):
        payload = random.randbytes(size)
        return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns()))

    @staticmethod
    def subscription(topics):
        return encode_filter_subscribe_request(
            FilterSubscribeRequest(
                request_id="subscribe",
                filter_subscribe_type=FilterSubscribeType.SUBSCRIBE,
                pubsub_topic=SHARD,
                content_topics=tuple(topics),
            )
        )

    @staticmethod
    async def request(host, node, protocol, data):
        return await PeerRequests(host).ask(
            node.peer_id, protocol, data, max_response_bytes=1 << 22, timeout_s=PATIENCE_S
        )

    @classmethod
    async def push(cls, host, node, size=20):
        """Push a message, and return the status code of the answer."""
        asked = LightPushRequest(request_id="push", pubsub_topic=SHARD, message_bytes=cls.message(size).encoded)
        answer = await cls.request(host, node, LIGHTPUSH_PROTOCOL, encode_lightpush_request(asked))
        return decode_lightpush_response(answer).status_code

    @classmethod
    async def serves(cls, node, count=10):
        """An honest peer comes, and all that it pushes is taken."""
        async with cls.client(node) as honest:
            codes = [await cls.push(honest, node) for _ in range(count)]
        assert codes == [200] * count

    until = staticmethod(until)

    @staticmethod
    def report(what, **figures):
        print(what, " ".join(f"{name}={value}" for name, value in figures.items()))  # noqa: T201 - figures of the run

    run = staticmethod(run)


@pytest.fixture
def crowd(monkeypatch):
    # A peer that reads nothing keeps its streams all the same, also when this machine is slow.
    monkeypatch.setattr("fairway.libp2p.connection.SLOW_READER_TIMEOUT_S", 600.0)
    monkeypatch.setattr("fairway.libp2p.connection.WRITE_STALL_TIMEOUT_S", 600.0)
    return Crowd
