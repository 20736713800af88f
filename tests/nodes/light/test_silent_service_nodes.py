"""A service node that goes away without a word, freezes, or comes back as somebody else: the client says so."""

from __future__ import annotations

import asyncio
import contextlib
import time

from fairway.libp2p.host import Host
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.light import LightNode, liveness
from fairway.nodes.node import RoutedMessage
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run

SHARD = "/waku/2/rs/16/0"
TOPIC = "/fairway-test/1/room/proto"


def service(**changes):
    return ServiceNode.start(ServiceOptions(cluster_id=16, shards=(0,), shard_count=1, **changes))


class Wire:
    """What lies between a client and a node, and can be cut without either of them being told."""

    def __init__(self):
        self.whole = asyncio.Event()
        self.whole.set()

    @contextlib.asynccontextmanager
    async def to(self, address):
        async def carry(reader, writer):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", address.port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, there_writer))
                group.create_task(self._pass_on(there_reader, writer))

        server = await asyncio.start_server(carry, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}").with_peer_id(address.peer_id)
        finally:
            self.whole.set()
            server.close()

    async def _pass_on(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self.whole.wait()
                writer.write(data)
        writer.transport.abort()


async def status(light, condition):
    """Wait for a status that is so."""
    async with asyncio.timeout(PATIENCE_S):
        async for one in light.status_changes():
            if condition(one):
                return one
    raise AssertionError("the node was closed instead")


def message(number):
    return RoutedMessage.of(
        SHARD, WakuMessage(payload=b"%d" % number, content_topic=TOPIC, timestamp_ns=time.time_ns())
    )


def test_a_node_that_froze_is_noticed_and_messages_come_again_when_it_thaws(monkeypatch):
    monkeypatch.setattr(liveness, "BEAT_S", 0.05)
    monkeypatch.setattr(liveness, "GONE_AFTER", 10_000)

    async def work():
        wire = Wire()
        async with contextlib.AsyncExitStack() as exits:
            node = await exits.enter_async_context(await service())
            address = await exits.enter_async_context(wire.to(node.addresses[0]))
            light = await LightNode.start([address], connect_timeout_s=60.0)
            async with light:
                subscription = await light.subscribe(SHARD, [TOPIC])
                wire.whole.clear()
                away = await status(light, lambda now: not now.connected)
                assert away.detail == f"{node.peer_id} does not answer"
                wire.whole.set()
                assert (await status(light, lambda now: now.connected)).detail == ""
                await node.send(message(1))
                async with asyncio.timeout(PATIENCE_S):
                    assert (await anext(subscription)).message.payload == b"1"

    run(work())


def test_a_node_that_stays_silent_is_dialled_anew(monkeypatch):
    monkeypatch.setattr(liveness, "BEAT_S", 0.05)

    async def work():
        wire = Wire()
        async with contextlib.AsyncExitStack() as exits:
            node = await exits.enter_async_context(await service())
            address = await exits.enter_async_context(wire.to(node.addresses[0]))
            light = await LightNode.start([address], connect_timeout_s=60.0)
            async with light:
                first = light.host.connections()[0]
                wire.whole.clear()
                async with asyncio.timeout(PATIENCE_S):
                    await first.wait_closed()
                wire.whole.set()
                await status(light, lambda now: now.connected)
                assert first not in light.host.connections()

    run(work())


def test_a_node_that_came_back_with_another_key_is_called_by_its_name():
    async def work():
        async with await service() as node:
            address = node.addresses[0]
            light = await LightNode.start([address], connect_timeout_s=60.0)
        async with light:
            assert str(address) in (await status(light, lambda now: not now.connected)).detail
            changed = await ServiceNode.start(
                ServiceOptions(cluster_id=16, shards=(0,), shard_count=1, tcp_port=address.port),
                key=IdentityKey.generate(),
            )
            async with changed:
                told = await status(light, lambda now: "found" in now.detail)
                assert f"expected {node.peer_id}, found {changed.peer_id}" in told.detail
                assert "give its present address" in told.detail

    run(work())


def test_silence_is_counted_in_looks_and_not_in_time_so_that_a_client_that_was_stopped_blames_nobody():
    async def work():
        changes = []
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as there, await Host.start() as host:
            connection = await host.connect(there.addresses[0])
            looks = liveness.Liveness(host, changed=lambda: changes.append(looks.silent))
            # Neither host gets a turn between two looks, as when the whole program is held up.
            for _ in range(liveness.SILENT_AFTER):
                await looks.look()
            assert (looks.is_alive(there.peer_id), changes) == (True, [])
            await looks.look()
            assert changes == [frozenset({there.peer_id})]
            async with asyncio.timeout(PATIENCE_S):
                while not looks.is_alive(there.peer_id):
                    await asyncio.sleep(0)
                    await looks.look()
            await connection.close()
            await looks.look()
            assert changes == [frozenset({there.peer_id}), frozenset()]
            await looks.close()

    run(work())
