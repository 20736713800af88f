"""Programs on several machines talk by TCP under virtual time: in order, slowly, and with whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import fairway
from fairway.environment import time_ns
from fairway.nodes.node import RoutedMessage
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.testing import Machine, Process, SimulatedInternet, VirtualLoop, run, virtual_time
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"
PORT = 7000
TOPIC = "/harbour/1/team/proto"


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


def internet() -> SimulatedInternet:
    return loop().internet


def on(address: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run a program on a machine of its own."""
    return Process(address, Machine(loop(), address=address)).spawn(work)


class Echo(asyncio.Protocol):
    """Sends back what it receives, and reads no faster than it can write."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


async def serve(address: str = SERVER, port: int = PORT) -> asyncio.AbstractServer:
    return await loop().create_server(Echo, address, port)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect one machine to an echo server on another one."""
    server = await on(SERVER, serve())
    reader, writer = await on(CLIENT, asyncio.open_connection(SERVER, PORT))
    yield reader, writer
    writer.close()
    server.close()


@virtual_time(seed=3)
async def test_bytes_arrive_in_order_after_a_delay():
    async with connected() as (reader, writer):
        began_s = loop().time()
        pieces = [bytes([number]) * (number + 1) for number in range(200)]
        writer.writelines(pieces)
        assert await reader.readexactly(sum(map(len, pieces))) == b"".join(pieces)
        assert 0.02 <= loop().time() - began_s <= 0.2


@virtual_time(seed=3)
async def test_a_megabyte_is_echoed_whole_while_readers_pause():
    async with connected() as (reader, writer):
        data = bytes(range(256)) * 4096

        async def send() -> None:
            writer.write(data)
            await writer.drain()

        sending = asyncio.ensure_future(send())
        await asyncio.sleep(5)
        assert not sending.done()  # nobody reads the echo, so that in the end the writer has to wait
        assert await reader.readexactly(len(data)) == data
        await sending


@virtual_time(seed=3)
async def test_a_reset_raises_at_both_ends():
    async with connected() as (reader, _):
        assert internet().reset(SERVER) == 1
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert internet().connections == 0


@virtual_time(seed=3)
async def test_a_killed_program_resets_its_connections_and_a_lost_machine_does_not():
    async with connected() as (reader, writer):
        internet().kill(SERVER)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionRefusedError):
            await on(CLIENT, asyncio.open_connection(SERVER, PORT))
    async with connected() as (reader, writer):
        internet().power_off(SERVER)
        writer.write(b"are you there?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 3_600)
        internet().power_on(SERVER)
        writer.write(b"and now?")
        with pytest.raises(ConnectionResetError):
            await reader.read()  # the machine is back and knows nothing of the connection


@virtual_time(seed=3)
async def test_a_split_network_delivers_nothing_across_until_it_is_healed():
    async with connected() as (reader, writer):
        internet().part({SERVER})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(on("10.0.0.3", asyncio.open_connection(SERVER, PORT)), 10)
        writer.write(b"late")
        internet().heal()
        assert await reader.readexactly(4) == b"late"


async def a_quarter_of_an_hour_of_light_clients() -> tuple[list[str], float]:
    """Let two light clients talk over a service node, with which all connections break every five minutes."""
    shard = autoshard(TOPIC, 1, 8)
    node = await on(SERVER, ServiceNode.start(ServiceOptions(host=SERVER, tcp_port=60_000, ws_port=None)))
    alice, bob = [await on(address, fairway.connect(str(node.addresses[0]))) for address in ("10.0.1.1", "10.0.1.2")]
    heard = await bob.subscribe(shard, [TOPIC])
    for minute in range(15):
        if minute % 5 == 4:
            internet().reset(SERVER)
            await asyncio.sleep(10)
        message = WakuMessage(payload=f"minute {minute}".encode(), content_topic=TOPIC, timestamp_ns=time_ns())
        assert (await alice.send(RoutedMessage.of(shard, message))).accepted
        await asyncio.sleep(60)
    payloads = [message.message.payload.decode() for message in heard.take()]
    for each in (alice, bob, node):
        await each.close()
    return payloads, loop().time()


def test_light_clients_and_a_service_node_run_under_virtual_time():
    heard, seconds = run(a_quarter_of_an_hour_of_light_clients(), seed=5)
    assert heard == [f"minute {minute}" for minute in range(15)]
    assert seconds > 900
    assert run(a_quarter_of_an_hour_of_light_clients(), seed=5) == (heard, seconds)
