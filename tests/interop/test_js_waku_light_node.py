"""js-waku's light node at our service node: every protocol, both transports, both muxers."""

import asyncio
import base64
import itertools
import json
import random
import sys
import time
from contextlib import asynccontextmanager

import pytest

from certificates import Authority
from fairway.nodes.node import RoutedMessage
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

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


def routed(number, payload):
    return RoutedMessage.of(
        SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns() + number)
    )


@asynccontextmanager
async def node_process(folder, ws_port=0):
    """Run ``fairway node`` with a key and an archive that outlive it; yield it and what it says of itself."""
    shard = ["--cluster", "16", "--shards", "1", "--shard", "0"]
    kept = ["--key-file", folder / "node.key", "--archive", f"sqlite:{folder / 'node.db'}"]
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "fairway", "node", "--json", "--until-stdin-closes", "--no-rest", *shard, *kept],
        *["--ws-port", str(ws_port)],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process, json.loads(await process.stdout.readline())["multiaddrs"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # no public name has it


async def nobody_subscribed(node):
    """js-waku does not wait for the answer when it unsubscribes."""
    await until(lambda: not parts_of(node).filters.subscribers_of(SHARD, TOPIC))


WAYS = pytest.mark.parametrize(
    ("transport", "muxer"),
    [
        ("ws", "mplex"),
        pytest.param("tcp", "mplex", marks=pytest.mark.full),
        pytest.param("ws", "yamux", marks=pytest.mark.full),
        pytest.param("tcp", "yamux", marks=pytest.mark.full),
    ],
)


@WAYS
def test_a_js_client_asks_for_metadata_pushes_filters_and_queries(js_peer, transport, muxer, seed):
    async def work():
        async with service() as node, js_peer("light.mjs", "js", settings(node, transport, muxer)) as js:
            assert js.of("ready")[0]["muxers"] == [{"mplex": "/mplex/6.7.0", "yamux": "/yamux/1.0.0"}[muxer]]
            js.tell("metadata")
            assert (await js.wait("told"))[0]["told"] == [{"clusterId": 16, "shards": [0], "error": None}]
            own = await node.subscribe(SHARD, [TOPIC])
            js.tell("push", payload=text(b"from js"))
            assert (await js.wait("pushed"))[0] == {"event": "pushed", "successes": 1, "failures": []}
            async with asyncio.timeout(PATIENCE_S):
                assert (await own.next_batch())[0].message.payload == b"from js"
            js.tell("subscribe")
            assert (await js.wait("subscribed"))[0]["subscribed"]
            rng = random.Random(f"{transport}/{muxer}/{seed}")
            sent = [routed(number, rng.randbytes(rng.choice([1, 20, 1_000]))) for number in range(300)]
            for message in sent:
                await node.send(message)
            filtered = await js.wait("filtered", 300)
            assert [event["hash"] for event in filtered] == [message.message_hash.hex() for message in sent]
            js.tell("query", pageSize=50)
            hashes = (await js.wait("queried"))[0]["hashes"]
            assert len(hashes) == 301
            assert hashes[1:] == [message.message_hash.hex() for message in sent]
            js.tell("unsubscribe")
            assert (await js.wait("unsubscribed"))[0]["unsubscribed"]
            await nobody_subscribed(node)
            await node.send(routed(300, b"to nobody"))
            js.tell("query", pageSize=50)
            assert len((await js.wait("queried", 2))[1]["hashes"]) == 302
            assert len(js.of("filtered")) == 300

    run(work())


@pytest.mark.full
def test_a_js_client_uses_a_node_over_tls(js_peer, tmp_path):
    async def work():
        authority = Authority(tmp_path)
        issued = authority.issue()
        async with service(tls_cert=issued.certificate, tls_key=issued.key, tcp_port=None) as node:
            address = f"/dns4/localhost/tcp/{node.addresses[0].port}/tls/ws/p2p/{node.peer_id}"
            given = {"cluster": 16, "shard": 0, "contentTopic": TOPIC, "peers": [address]}
            async with js_peer("light.mjs", "js", given, NODE_EXTRA_CA_CERTS=str(authority.file)) as js:
                own = await node.subscribe(SHARD, [TOPIC])
                js.tell("push", payload=text(b"through TLS"))
                assert (await js.wait("pushed"))[0]["successes"] == 1
                async with asyncio.timeout(PATIENCE_S):
                    assert (await own.next_batch())[0].message.payload == b"through TLS"
                js.tell("subscribe")
                assert (await js.wait("subscribed"))[0]["subscribed"]
                sent = [routed(number, bytes(1_000)) for number in range(20)]
                for message in sent:
                    await node.send(message)
                filtered = await js.wait("filtered", len(sent))
                assert [event["hash"] for event in filtered] == [message.message_hash.hex() for message in sent]

    run(work())


@pytest.mark.full
@WAYS
def test_a_js_client_pages_through_200_messages_of_100_kb(js_peer, tmp_path, transport, muxer, seed):
    # A page of the file holds more than js-waku reads in one piece, one of the memory less.
    archive = {"mplex": f"sqlite:{tmp_path / 'node.db'}", "yamux": "memory:"}[muxer]

    async def work():
        async with service(archive=archive) as node, js_peer("light.mjs", "js", settings(node, transport, muxer)) as js:
            rng = random.Random(seed)
            messages = [routed(number, rng.randbytes(100_000)) for number in range(200)]
            for message in messages:
                await node.send(message)
            js.tell("query", pageSize=100)
            hashes = (await js.wait("queried"))[0]["hashes"]
            assert hashes == [message.message_hash.hex() for message in messages]

    run(work())


@pytest.mark.full
def test_a_js_client_comes_back_to_a_node_that_was_killed_and_started_again(js_peer, tmp_path):
    async def work():
        async with node_process(tmp_path) as (process, addresses):
            (address,) = (one for one in addresses if "/ws/" in one)
            said = {"cluster": 16, "shard": 0, "contentTopic": TOPIC, "peers": [address]}
            async with js_peer("light.mjs", "js", said) as js:
                js.tell("subscribe")
                await js.wait("subscribed")
                js.tell("push", payload=text(b"before"))
                assert [event["payload"] for event in await js.wait("filtered")] == [text(b"before")]
                js.tell("query", pageSize=50)
                ((kept,),) = [event["hashes"] for event in await js.wait("queried")]
                process.kill()
                await process.wait()
                async with node_process(tmp_path, int(address.split("/tcp/")[1].split("/")[0])) as (_, again):
                    assert address in again
                    # What is pushed comes back once js has dialled and has subscribed again.
                    async with asyncio.timeout(PATIENCE_S):
                        for number in itertools.count(1):
                            js.tell("push", payload=text(b"after %d" % number))
                            await js.wait("pushed", number + 1)
                            await asyncio.sleep(0.5)
                            if len(js.of("filtered")) > 1:
                                break
                    js.tell("query", pageSize=50)
                    hashes = (await js.wait("queried", 2))[1]["hashes"]
                    assert hashes[0] == kept
                    assert {event["hash"] for event in js.of("filtered")} <= set(hashes)
                    assert len(hashes) == sum(event["successes"] for event in js.of("pushed"))

    run(work())
