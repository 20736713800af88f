"""``/events?statistics=true``: what the node does, with bounds on everything that strangers name."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from fairway.errors import StorageError
from fairway.libp2p.host import Host
from fairway.nodes.node import RoutedMessage
from fairway.service.archives import MemoryArchive
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from fairway.service.rest.statistics import MAX_AGENTS
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S

HOSTILE = "/<script>x</script>\u202e/1/a/proto"


@pytest.fixture(autouse=True)
def _quick_events(monkeypatch):
    monkeypatch.setattr("fairway.service.rest.statistics.EVERY_S", 0.05)


def told(rest, number, topic=None):
    message = WakuMessage(payload=b"x", content_topic=topic or rest.topic, timestamp_ns=number)
    return RoutedMessage.of(rest.shard, message)


@asynccontextmanager
async def reading(server):
    """Yield a function that returns the next event's figures."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**22)
    writer.write(b"GET /events?statistics=true HTTP/1.1\r\nHost: localhost\r\n\r\n")

    async def following():
        while not (line := await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"data: "):
            assert line, "the stream ended"
        return json.loads(line.removeprefix(b"data: "))

    try:
        yield following
    finally:
        writer.close()


async def seen(following, wanted):
    """Return the first figures that are as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while not wanted(figures := await following()):
            continue
    return figures


def test_the_figures_are_those_of_the_node_and_follow_it(rest):
    async def work():
        async with rest.serving() as (node, server), reading(server) as following:
            before = await following()
            assert before["peerId"] == str(node.peer_id)
            assert before["health"]["nodeHealth"] == "READY"
            assert before["loss"] == {"share": 0.0, "messages": 0}
            assert before["archive"] == {
                "messages": 0,
                "sizeBytes": 0,
                "waiting": 0,
                "dropped": 0,
                "queries": 0,
                "notWritten": None,
            }
            assert before["refusals"] == []
            assert before["proofs"] is None
            for number in range(1, 41):
                await node.send(told(rest, number))
            await rest.call(server, "GET", "/nothing")
            await rest.call(server, "GET", "/relay/v1/messages/x")
            figures = await seen(following, lambda each: each["traffic"]["messages"] == 40)
            assert figures["traffic"]["messageBytes"] >= 40 * len(told(rest, 1).encoded)
            assert figures["archive"]["messages"] == 40
            assert figures["shards"][0]["messages"] == 40
            assert {"service": "rest", "reason": "status_404", "count": 1} in figures["refusals"]
            assert figures["rest"]["eventStreams"] == 1

    rest.run(work())


def test_refusals_have_their_service_and_their_reason(rest):
    async def work():
        async with rest.serving(max_message_bytes=1_000) as (node, server), reading(server) as following:
            big = {"payload": "AAAA" * 1_000, "contentTopic": rest.topic}
            await rest.call(server, "POST", "/lightpush/v3/message", {"message": big})
            other = {"message": {**big, "payload": "AAAA"}, "pubsubTopic": "/waku/2/rs/16/5"}
            await rest.call(server, "POST", "/lightpush/v3/message", other)
            figures = await seen(following, lambda each: len(each["refusals"]) >= 4)
            counts = {(each["service"], each["reason"]): each["count"] for each in figures["refusals"]}
            assert counts == {
                ("lightpush", "payload_too_large"): 1,
                ("lightpush", "unsupported_pubsub_topic"): 1,
                ("rest", "status_413"): 1,
                ("rest", "status_421"): 1,
            }
            assert parts_of(node).relay.refused == {}

    rest.run(work())


def test_agents_are_bounded_cut_and_visible(rest):
    async def work():
        async with rest.serving() as (node, server), reading(server) as following:
            hosts = [await Host.start(agent=f"<b>{number}\x1b" + "x" * 500) for number in range(MAX_AGENTS + 3)]
            for host in hosts:
                await host.connect(node.addresses[0])
            enough = len(hosts)
            figures = await seen(
                following,
                lambda each: (
                    "" not in [agent["agent"] for agent in each["peers"]["agents"]]  # one not identified yet
                    and [agent["peers"] for agent in each["peers"]["agents"]]
                    == [1] * MAX_AGENTS + [enough - MAX_AGENTS]
                ),
            )
            agents = figures["peers"]["agents"]
            assert agents[0]["agent"].startswith("<b>")
            assert "\\x1b" in agents[0]["agent"]
            assert max(len(each["agent"] or "") for each in agents) <= 110
            assert agents[-1]["agent"] is None
            for host in hosts:
                await host.close()

    rest.run(work())


def test_figures_of_a_missing_archive_are_null_and_those_of_a_failing_one_have_the_reason(rest):
    class Broken(MemoryArchive):
        async def statistics(self):
            raise StorageError("the disk is \x1b gone")

    async def work():
        async with rest.serving(archive=None) as (_, server), reading(server) as following:
            assert (await following())["archive"] is None
        options = ServiceOptions(cluster_id=16, shards=(0,), shard_count=1)
        async with (
            await ServiceNode.start(options, archive=Broken()) as node,
            await RestServer.start(node, RestOptions()) as server,
            reading(server) as following,
        ):
            assert (await following())["archive"] == {"problem": "the disk is \\x1b gone"}

    rest.run(work())


def test_messages_and_statistics_are_two_streams(rest):
    async def work():
        async with rest.serving() as (_, server):
            both = await rest.call(server, "GET", "/events?statistics=true&contentTopics=/a/1/b/c")
            assert both.status == 400
            assert both.text == "ask for contentTopics or for statistics=true, each on a stream of its own"

    rest.run(work())
