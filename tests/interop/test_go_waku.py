"""go-waku, which nobody here wrote: as the node of our clients, as the client of our node, and as a relay between ours.

All of it runs where no network is reached but loopback. go-waku 0.10 has light push in version 2 and no store of
version 3, so what is lost on the way through it comes again by retransmission alone.
"""

import asyncio
import base64
import hashlib
import json
import random
import secrets
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import fairway
from bookkeeping import Bookkeeping
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.light import LightNode
from fairway.nodes.node import RoutedMessage
from fairway.options import ReliableChannelOptions
from fairway.service.node import ServiceNode, parts_of
from fairway.service.options import ServiceOptions
from fairway.wire.waku_message import WakuMessage
from fairway_processes import ParticipantProcess, ProcessGroup, fairway_command
from patience import PATIENCE_S, run, until

pytestmark = [pytest.mark.full, pytest.mark.enclosed, pytest.mark.xdist_group("go-waku")]

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-interop/1/go/proto"
SIZES = (10, 1_000, 50_000, 95_000)
OPTIONS = ReliableChannelOptions(
    cluster_id=16,
    shard_count=1,
    sync_min_interval_ms=1_000,
    retry_interval_ms=4_000,
    max_retry_attempts=100,
)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def service(*peers, **changes):
    return ServiceNode.start(
        ServiceOptions(
            **{"cluster_id": 16, "shards": (0,), "shard_count": 1, "request_rate": None, "peers": peers, **changes}
        )
    )


def payloads(who, seed, count, sizes=SIZES):
    rng = random.Random(f"{who}/{seed}")
    return [rng.randbytes(sizes[number % len(sizes)]) for number in range(count)]


def routed(payload):
    return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=time.time_ns()))


def text(payload):
    return base64.b64encode(payload).decode()


def payloads_of(events):
    return [base64.b64decode(event["payload"]) for event in events]


def address_of(peer, transport="tcp"):
    """The address at which a go-waku node is reached."""
    (ready,) = peer.of("ready")
    return next(one for one in ready["multiaddrs"] if ("/ws" in one) == (transport == "ws"))


async def received(subscription, count):
    got = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            got += [one.message.payload for one in await subscription.next_batch()]
    return got


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_what_one_light_client_sends_through_go_waku_another_one_gets(go_peer, seed, transport):
    async def work():
        async with (
            go_peer("go", ws_port=free_port()) as go,
            await LightNode.start([address_of(go, transport)], connect_timeout_s=PATIENCE_S) as alice,
            await LightNode.start([address_of(go)], connect_timeout_s=PATIENCE_S) as bob,
        ):
            subscription = await bob.subscribe(SHARD, [TOPIC])
            sent = payloads("alice", seed, 40)
            for payload in sent:
                result = await alice.send(routed(payload))
                assert result.accepted, result.detail
            assert sorted(await received(subscription, len(sent))) == sorted(sent)
            await go.wait("relayed", len(sent))
            assert not go.of("failed"), go.state()

    run(work())


async def converse(alice, bob, count, seed):
    """Both send; each must get all of the other, once, in the other's order, and have all of its own acknowledged."""
    sizes = (*SIZES, 120_000)
    said = {name: payloads(name, seed, count, sizes) for name in ("alice", "bob")}
    got = {"alice": [], "bob": []}

    async def read(name, channel):
        async for message in channel:
            got[name].append(bytes(message))

    readers = [asyncio.create_task(read(name, channel)) for name, channel in (("alice", alice), ("bob", bob))]
    try:
        receipts = []
        for ours, theirs in zip(said["alice"], said["bob"], strict=True):
            receipts += [await alice.send(ours), await bob.send(theirs)]
        acknowledged = asyncio.gather(*(receipt.delivered() for receipt in receipts))
        await until(
            lambda: acknowledged.done() and len(got["alice"]) >= count and len(got["bob"]) >= count,
            lambda: (
                f"seed {seed}; alice got {len(got['alice'])} of {count}, bob {len(got['bob'])}; "
                f"all acknowledged: {acknowledged.done()}; {alice.statistics()}; {bob.statistics()}"
            ),
        )
        await acknowledged
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert (got["alice"], got["bob"]) == (said["bob"], said["alice"]), f"seed {seed}"


@asynccontextmanager
async def channel_at(address, name, options=OPTIONS):
    async with await fairway.connect(address, connect_timeout_s=PATIENCE_S) as node:
        channel = await fairway.create_reliable_channel(node, "go", name, TOPIC, options=options)
        async with channel:
            yield channel


def test_a_channel_runs_over_go_waku_by_tcp_and_websocket(go_peer, seed):
    async def work():
        async with (
            go_peer("go", ws_port=free_port()) as go,
            channel_at(address_of(go), "alice") as alice,
            channel_at(address_of(go, "ws"), "bob") as bob,
        ):
            await converse(alice, bob, 20, seed)

    run(work())


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_messages_are_relayed_to_go_waku_and_from_it(go_peer, seed, transport):
    async def work():
        async with (
            go_peer("go", ws_port=free_port()) as go,
            await service(address_of(go, transport)) as node,
        ):
            subscription = await node.subscribe(SHARD, [TOPIC])
            (ready,) = go.of("ready")
            await until(lambda: parts_of(node).relay.peers_of(SHARD), lambda: f"no relay with {ready['peerId']}")
            ours, theirs = payloads("ours", seed, 20), payloads("theirs", seed, 20)
            for payload in ours:
                result = await node.send(routed(payload))
                assert result.accepted, result.detail
            assert sorted(payloads_of(await go.wait("relayed", len(ours)))) == sorted(ours)
            for payload in theirs:
                go.tell("publish", payload=text(payload), topic=TOPIC)
            await go.wait("published", len(theirs))
            got = await received(subscription, len(ours) + len(theirs))
            assert sorted(got) == sorted(ours + theirs)

    run(work())


def test_a_go_waku_client_pushes_subscribes_pings_and_asks_the_store_at_our_node(go_peer, seed):
    async def work():
        async with await service() as node, go_peer("client", client=True) as client:
            peer = str(node.peer_id)
            client.tell("dial", peer=str(node.addresses[0]))
            await client.wait("dialled")
            client.tell("subscribe", peer=peer, topic=TOPIC)
            await client.wait("subscribed")
            subscription = await node.subscribe(SHARD, [TOPIC])
            # One message alone, and a burst: go-waku reads one of a stream, and 15 a second beyond the first 20.
            ours = payloads("ours", seed, 31, sizes=(10, 3_000))
            await node.send(routed(ours[0]))
            await client.wait("filtered", 1)
            for payload in ours[1:]:
                await node.send(routed(payload))
            await client.wait("filtered", len(ours))
            theirs = payloads("theirs", seed, 30)
            for payload in theirs:
                client.tell("push", peer=peer, payload=text(payload), topic=TOPIC)
            await client.wait("pushed", len(theirs))
            assert sorted(await received(subscription, len(ours) + len(theirs))) == sorted(ours + theirs)
            filtered = payloads_of(await client.wait("filtered", len(ours) + len(theirs)))
            assert sorted(filtered) == sorted(ours + theirs)
            client.tell("ping", peer=peer)
            await client.wait("ponged")
            client.tell("query", peer=peer, topic=TOPIC, pageSize=20)
            (queried,) = await client.wait("queried")
            assert (len(set(queried["hashes"])), queried["pages"]) == (len(ours) + len(theirs), 4)
            assert not client.of("failed"), client.state()

    run(work())


@asynccontextmanager
async def stock_waku(go_folder, folder):
    """go-waku's own program as its makers ship it: the addresses of its libp2p port and of its REST API."""
    port, rest_port, secret = free_port(), free_port(), secrets.token_bytes(32)
    given = {
        "address": "127.0.0.1",
        "tcp-port": port,
        "nodekey": secret.hex(),
        "cluster-id": 16,
        "pubsub-topic": SHARD,
        "min-relay-peers-to-publish": 0,
        "ip-colocation-limit": 0,
        "rest-port": rest_port,
    }
    words = ["--relay", "--filter", "--lightpush", "--rest"]
    words += [word for name, value in given.items() for word in (f"--{name}", str(value))]
    with (folder / "waku.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            go_folder / "waku",
            "--relay",
            "--filter",
            "--lightpush",
            "--rest",
            *words,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    rest = f"http://127.0.0.1:{rest_port}"
    peer_id = PeerId.from_public_key(IdentityKey.from_secret(secret, KeyType.SECP256K1).public_key)
    try:
        yield f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer_id}", rest
    finally:
        process.kill()
        await process.wait()


def test_a_channel_runs_over_the_rest_api_of_go_waku(go_folder, tmp_path, seed):
    async def work():
        async with stock_waku(go_folder, tmp_path) as (address, rest), await service(address) as node:
            await until(
                lambda: parts_of(node).relay.peers_of(SHARD), lambda: (tmp_path / "waku.log").read_text()[-2000:]
            )
            async with channel_at(rest, "alice") as alice, channel_at(str(node.addresses[0]), "bob") as bob:
                await converse(alice, bob, 10, seed)

    run(work())


def test_a_node_that_takes_one_push_a_second_is_used_at_that_pace(go_folder, tmp_path, seed):
    """go-waku's program takes no more of a client, and says so in version 2 under the request id N/A."""
    # Nothing is lost here. What is sent again before it can have been acknowledged would only be in the way.
    options = replace(OPTIONS, retry_interval_ms=30_000)

    async def work():
        async with (
            stock_waku(go_folder, tmp_path) as (address, _),
            channel_at(address, "alice", options) as alice,
            channel_at(address, "bob", options) as bob,
        ):
            await converse(alice, bob, 8, seed)
            for channel in (alice, bob):
                counted = channel.statistics().protocol
                assert sum(counted.transmissions.values()) >= 8
                assert counted.not_taken <= 20, counted

    run(work())


class Line:
    """Four processes in a line: alice, go-waku, our node, bob; what the participants say, and who was killed when."""

    names = ("alice", "bob")

    def __init__(self, folder, go, *, loss, seed):
        self.folder = folder
        self.random = random.Random(seed)
        self.books = Bookkeeping(self.names)
        self.commands = {}
        self.addresses = {}
        self.ready = {name: asyncio.Event() for name in ("go", "node", *self.names)}
        self.errors = []
        (folder / "options.json").write_text(
            json.dumps(
                {
                    "cluster_id": 16,
                    "shard_count": 1,
                    "sync_min_interval_ms": 1_000,
                    "retry_interval_ms": 2_000,
                    "max_retry_attempts": 1_000,
                    "sds": {"repair": {"t_min_ms": 1_000, "t_max_ms": 3_000}},
                }
            )
        )
        go_settings = {"cluster": 16, "shard": 0, "port": free_port(), "key": secrets.token_hex(32)}
        self.go = [go / "peer", json.dumps(go_settings)]
        self.node = ["node", "--json", "--until-stdin-closes", "--no-rest", "--cluster", 16, "--shard", 0]
        self.node += ["--tcp-port", free_port(), "--key-file", folder / "node.key", "--requests-per-second", 0]
        self.node += ["--archive", f"sqlite:{folder / 'archive.sqlite'}", "--loss", loss, "--seed", seed]
        self.processes = {}

    async def begin(self, group):
        self.group = group
        await self._add("go", self.go)
        await self._add("node", fairway_command(*map(str, [*self.node, "--peer", self.addresses["go"]])))
        for name, at in (("alice", "go"), ("bob", "node")):
            words = ["participant", "--node", self.addresses[at], "--channel", "line", "--sender", name]
            words += ["--store", self.folder / f"{name}.db", "--options", self.folder / "options.json"]
            await self._add(name, fairway_command(*map(str, words)))

    async def _add(self, name, command):
        log = self.folder / f"{name}.log"
        self.processes[name] = self.group.add(
            ParticipantProcess(name, tuple(map(str, command)), log, lambda line: self._hear(name, line))
        )
        await self._start(name)

    async def _start(self, name):
        self.ready[name].clear()
        await self.processes[name].start()
        await until(lambda: self._is_ready(name), lambda: f"{name} is not ready; {self.story()}")

    def _is_ready(self, name):
        self.processes[name].check()
        return self.ready[name].is_set()

    def _hear(self, name, line):
        if "multiaddrs" in line:
            self.addresses[name] = next(one for one in line["multiaddrs"] if "/tcp/" in one and "/ws" not in one)
            self.ready[name].set()
        elif name not in self.names:
            return
        elif line["event"] == "ready":
            self.ready[name].set()
            for request_id, message in self.books.messages.items():
                if message.sender == name and not message.has_ended:
                    self.processes[name].tell(**self.commands[request_id])
        elif line["event"] == "error":
            self.errors.append((name, line))
        else:
            self.books.line(name, line, life=self.processes[name].lives)

    def say(self, name, size):
        """Have a participant send something new."""
        request_id = f"{name}-{len(self.books.messages)}"
        payload = request_id.encode() + self.random.randbytes(size)
        content = {"base64": base64.b64encode(payload).decode(), "request_id": request_id}
        self.commands[request_id] = {"command": "send", **content, "by": self.books.others(name)}
        self.books.command(name, request_id, hashlib.sha256(payload).hexdigest())
        self.processes[name].tell(**self.commands[request_id])

    async def kill(self, name):
        """End a process in the middle of whatever it does, and start it again."""
        self.processes[name].kill()
        await self.processes[name].gone()
        await self._start(name)

    def story(self):
        return f"unfinished: {self.books.unfinished()}; errors: {self.errors}; faults: {self.books.faults()}"


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_with_go_waku_in_the_middle_and_every_process_killed_once_nothing_is_lost(go_folder, tmp_path, seed, loss):
    async def work():
        line = Line(tmp_path, go_folder, loss=loss, seed=seed)
        async with ProcessGroup() as group:
            await line.begin(group)
            for victim in ("bob", "go", "alice", "node", None):
                for size in (20, 3_000, 60_000, 20):
                    for name in line.names:
                        line.say(name, size)
                    await asyncio.sleep(line.random.uniform(0.0, 0.3))
                if victim is not None:
                    await line.kill(victim)
            await until(lambda: not line.books.unfinished(), line.story)
        assert line.books.faults() == [], line.story()
        assert line.errors == []

    run(work())
