"""js-waku's light node at our service node: every protocol, both transports, both muxers."""

import asyncio
import base64
import time
from contextlib import asynccontextmanager

import pytest

from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.waku.libp2p.keys import PrivateKey
from fairway.waku.node import RoutedMessage, StoreQuery
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-interop/1/room/proto"


def options(**changes):
    return ServiceOptions(**{"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, **changes})


@asynccontextmanager
async def service(key=None, **changes):
    node = await ServiceNode.start(options(**changes), key=key)
    try:
        yield node
    finally:
        await node.close()


def settings(node, transport="ws", muxer="mplex"):
    address = next(str(one) for one in node.addresses if ("/ws" in str(one)) == (transport == "ws"))
    return {"cluster": 16, "shard": 0, "contentTopic": TOPIC, "peers": [address], "muxer": muxer}


def text(payload):
    return base64.b64encode(payload).decode()


def routed(number, size=20):
    payload = number.to_bytes(4, "big") * (size // 4)
    return RoutedMessage.of(
        SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns() + number)
    )


def run(work, timeout_s=120):
    asyncio.run(asyncio.wait_for(work, timeout_s))


@pytest.mark.parametrize(("transport", "muxer"), [("ws", "mplex"), ("tcp", "mplex"), ("ws", "yamux"), ("tcp", "yamux")])
def test_a_js_client_pushes_filters_and_queries(js_peer, transport, muxer):
    async def work():
        async with service() as node, js_peer("light.mjs", "js", settings(node, transport, muxer)) as js:
            assert js.of("ready")[0]["muxers"] == [{"mplex": "/mplex/6.7.0", "yamux": "/yamux/1.0.0"}[muxer]]
            own = await node.subscribe(SHARD, [TOPIC])
            js.tell("push", payload=text(b"from js"))
            assert (await js.wait("pushed"))[0] == {"event": "pushed", "successes": 1, "failures": []}
            async with asyncio.timeout(10):
                assert (await own.next_batch())[0].message.payload == b"from js"
            js.tell("subscribe")
            assert (await js.wait("subscribed"))[0]["subscribed"]
            for number in range(300):
                await node.send(routed(number))
            filtered = await js.wait("filtered", 300)
            assert len({event["hash"] for event in filtered}) == 300
            js.tell("query", pageSize=50)
            hashes = (await js.wait("queried"))[0]["hashes"]
            assert len(hashes) == len(set(hashes)) == 301

    run(work())


def test_a_js_client_pages_through_200_messages_of_100_kb(js_peer):
    async def work():
        async with service() as node, js_peer("light.mjs", "js", settings(node)) as js:
            messages = [routed(number, 100_000) for number in range(200)]
            for message in messages:
                await node.send(message)
            js.tell("query", pageSize=100)
            hashes = (await js.wait("queried", timeout_s=60))[0]["hashes"]
            assert hashes == [message.message_hash.hex() for message in messages]

    run(work())


def test_a_js_client_comes_back_to_a_node_that_was_killed_and_started_again(js_peer):
    async def work():
        key = PrivateKey.generate()
        node = await ServiceNode.start(options(), key=key)
        port = next(one.port for one in node.addresses if one.transport == "ws")
        try:
            async with js_peer("light.mjs", "js", settings(node)) as js:
                js.tell("subscribe")
                await js.wait("subscribed")
                await node.close()
                node = await ServiceNode.start(options(ws_port=port), key=key)
                # js-waku redials and subscribes again at its next ping, a minute later at most.
                async with asyncio.timeout(100):
                    while not node.filters.subscribers_of(SHARD, TOPIC):  # noqa: ASYNC110 - a table, no event
                        await asyncio.sleep(0.2)
                await node.send(routed(1))
                await js.wait("filtered")
                js.tell("push", payload=text(b"still here"))
                assert (await js.wait("pushed"))[0]["successes"] == 1
                assert len((await node.query(StoreQuery())).messages) == 2
        finally:
            await node.close()

    run(work(), 180)
