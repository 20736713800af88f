"""What tests of service nodes share.

`Rest`: a node with its REST API, and a client of it that is nothing but the standard library's.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from patience import PATIENCE_S, run

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
