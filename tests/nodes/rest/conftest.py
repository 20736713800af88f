"""Nodes with a REST API for its client to talk to: real ones of ours, and one that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager
from pathlib import Path

import h11
import pytest

from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest import RestNode, RestNodeOptions
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestServer
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

VECTORS = Path(__file__).parents[2] / "vectors" / "nwaku_rest"
ANSWERS = json.loads((VECTORS / "answers.json").read_text(encoding="utf-8"))


PACES = {
    "health_interval_s": ("node.HEALTH_INTERVAL_S",),
    "first_pause_s": ("node.FIRST_PAUSE_S", "feed.FIRST_PAUSE_S"),
    "longest_pause_s": ("feed.LONGEST_PAUSE_S",),
    "check_interval_s": ("feed.CHECK_INTERVAL_S",),
    "busy_poll_interval_s": ("feed.BUSY_POLL_INTERVAL_S",),
}
"""The times of a client that tests shorten, and the constants with them."""


class ScriptedServer:
    """Answers each request with what ``script`` gives for its method, path and body: a status and a body or bytes."""

    def __init__(self, script):
        self.script = script
        self.requests = []
        self.headers = []
        self.writers = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, h11.ProtocolError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def _one(self, reader, writer):
        http, body, request = h11.Connection(h11.SERVER), b"", None
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                data = await reader.read(65_536)
                if not data:
                    return False
                http.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
        method, path = request.method.decode(), request.target.decode()
        self.requests.append((method, path, bytes(body)))
        self.headers.append({name.decode(): value.decode() for name, value in request.headers})
        answer = self.script(method, path, bytes(body))
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer is None:
            return False
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
            return True
        status, said = answer
        kind = "text/plain" if isinstance(said, str) else "application/json"
        content = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        return True


class Rest:
    """What these tests share."""

    shard = "/waku/2/rs/16/0"
    topic = "/fairway-test/1/room/proto"
    answers = ANSWERS
    scripted = ScriptedServer
    patch: pytest.MonkeyPatch

    @staticmethod
    def answer(name):
        """Return an answer of nwaku as a script gives it."""
        said = ANSWERS[name]
        return said["status"], said.get("json", said.get("text"))

    @classmethod
    def message(cls, number=0, *, topic=None, time_ns=None, payload=None):
        return RoutedMessage.of(
            cls.shard,
            WakuMessage(
                payload=payload or b"message %d" % number,
                content_topic=topic or cls.topic,
                timestamp_ns=time_ns or time.time_ns(),
            ),
        )

    @staticmethod
    @asynccontextmanager
    async def node(**changes):
        options = {"cluster_id": 16, "shards": (0,), "shard_count": 1, **changes}
        async with await ServiceNode.start(ServiceOptions(**options)) as node:
            yield node

    @classmethod
    @asynccontextmanager
    async def served(cls, options=None, **changes):
        async with cls.node(**changes) as node, await RestServer.start(node, options) as server:
            yield node, server

    @staticmethod
    async def client(url, **options):
        options = {"shard_count": 1, "health_interval_s": 0.2, "request_timeout_s": PATIENCE_S, **options}
        return await RestNode.start(url, Rest.options(**options), connect_timeout_s=PATIENCE_S)

    @staticmethod
    def options(**options):
        """Return options of a client; the others of `PACES` hold for all clients of the test."""
        for name in PACES.keys() & options.keys():
            seconds = options.pop(name)
            for constant in PACES[name]:
                Rest.patch.setattr(f"fairway.nodes.rest.{constant}", seconds)
        return RestNodeOptions(**options)

    @staticmethod
    async def received(subscription, count):
        got = []
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < count:
                got += await subscription.next_batch()
        return got

    until = staticmethod(until)

    run = staticmethod(run)


@pytest.fixture
def rest(monkeypatch):
    Rest.patch = monkeypatch
    return Rest


@pytest.fixture
def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
