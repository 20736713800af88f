r"""The workloads of `benchmarks.network`: ``python -m benchmarks.network_workloads NAME JSON``, the clients' process.

A service node runs in a further process, as ``fairway node`` does for a user, so that its CPU time is its own; and so
does the receiver of a reliable channel. Memory over ten minutes:

    python -m benchmarks.network_workloads channel \
        '{"messages": 180000, "size": 1024, "per_second": 300, "sample_s": 30, "archive": "archive.db"}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.child_process import Child, Process, at_most, child

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._until_stopped import stop_event
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import RoutedMessage
from fairway.options import ReliableChannelOptions
from fairway.wire.waku_message import WakuMessage

_SHARD = "/waku/2/rs/16/0"
_TOPIC = "/fairway-bench/1/room/proto"
_OPTIONS = LightOptions(peers_to_use=1)
_PATIENCE_S = 300
_SLOWEST_PER_S = 50
"""A workload that does less in a second has a fault, and is given up."""


@asynccontextmanager
async def _service_node(archive: str) -> AsyncIterator[tuple[Child, str]]:
    """Run a node; yield it and its address."""
    options = ("--cluster", "16", "--shards", "1", "--archive", archive, "--requests-per-second", "0")
    async with child("fairway", "node", "--json", "--until-stdin-closes", *options) as node:
        introduction = await node.says("the address of the node")
        yield node, introduction["multiaddrs"][0]


def _message(number: int, size: int) -> RoutedMessage:
    payload = number.to_bytes(8, "big") + os.urandom(size - 8)
    return RoutedMessage.of(
        _SHARD, WakuMessage(payload=payload, content_topic=_TOPIC, timestamp_ns=time.time_ns() + number)
    )


async def lightpush(*, clients: int, messages: int, size: int, archive: str = "memory:") -> dict[str, Any]:
    """Push messages from clients that each wait for the answer before the next; return rate, times and CPU."""
    async with _service_node(archive) as (node, address), AsyncExitStack() as exits:
        nodes = [await exits.enter_async_context(await LightNode.start([address], _OPTIONS)) for _ in range(clients)]
        for client in nodes:
            assert (await client.send(_message(0, size))).accepted
        times_ms: list[float] = []

        async def push(client: LightNode, share: int) -> None:
            for number in range(share):
                message = _message(number, size)
                began = time.perf_counter()
                result = await client.send(message)
                times_ms.append((time.perf_counter() - began) * 1_000)
                assert result.accepted, result.detail

        cpu_s, began = node.cpu_s(), time.perf_counter()
        async with at_most(_PATIENCE_S, "the answers to all pushes"):
            await asyncio.gather(*(push(client, messages // clients) for client in nodes))
        elapsed_s = time.perf_counter() - began
        times_ms.sort()
        return {
            "rate": len(times_ms) / elapsed_s,
            "p50_ms": median(times_ms),
            "p99_ms": times_ms[len(times_ms) * 99 // 100],
            "node_cpu_ms": (node.cpu_s() - cpu_s) * 1_000 / len(times_ms),
            "node_rss_mib": node.rss_mib(),
        }


async def channel(
    *,
    messages: int,
    size: int,
    per_second: float = 0,
    side_by_side: int = 64,
    archive: str = "memory:",
    sample_s: float = 0,
) -> dict[str, Any]:
    """Let a reliable channel speak to another one through the node, each of the three in a process of its own.

    With ``per_second``, messages are offered at that rate, whatever becomes of them. Without it, so many senders send
    side by side, each as soon as its last message was sent. Times reach from the call of `send` to the message in the
    other application. With ``sample_s`` the options are the defaults, so that the receiver speaks, too, and what is
    sent is acknowledged; and the memory of the processes is noted once in so many seconds.
    """
    speaks = sample_s > 0
    limit_s = _PATIENCE_S + messages / (per_second or _SLOWEST_PER_S)

    async def send(alice: ReliableChannel, number: int) -> None:
        stamp = number.to_bytes(8, "big") + time.perf_counter_ns().to_bytes(8, "big")
        await (await alice.send(stamp.ljust(size, b"\7"))).sent()

    async def send_in_turn(alice: ReliableChannel, numbers: Iterator[int]) -> None:
        for number in numbers:
            await send(alice, number)

    async with (
        _service_node(archive) as (node, address),
        _receiver(address, messages, speaks=speaks) as receiver,
        await LightNode.start([address], _OPTIONS) as light,
        _member(light, "alice", speaks=speaks) as alice,
    ):
        processes = {"sender": Process(os.getpid()), "node": node, "receiver": receiver}
        curve: list[dict[str, float]] = []

        async def watch() -> None:
            while True:
                curve.append({name: round(process.rss_mib(), 1) for name, process in processes.items()})
                await asyncio.sleep(sample_s)

        cpu_s = {name: process.cpu_s() for name, process in processes.items()}
        watching = asyncio.create_task(watch()) if sample_s else None
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            if per_second:
                for number in range(messages):
                    await asyncio.sleep(began + number / per_second - time.perf_counter())
                    group.create_task(send(alice, number))
            else:
                numbers = iter(range(messages))
                for _ in range(side_by_side):
                    group.create_task(send_in_turn(alice, numbers))
            times = await receiver.says(f"the last of {messages:,} messages at the receiver", limit_s)
        elapsed_s = time.perf_counter() - began
        if watching is not None:
            watching.cancel()
        return {
            "rate": messages / elapsed_s,
            **times,
            "cpu_ms": {name: (processes[name].cpu_s() - cpu_s[name]) * 1_000 / messages for name in processes},
            "rss_mib": {name: process.rss_mib() for name, process in processes.items()},
            "curve_mib": curve,
        }


async def receive(*, address: str, messages: int, speaks: bool) -> None:
    """Receive the messages of `channel`; print the times that they took in milliseconds, and end with the parent."""

    async def read(bob: ReliableChannel) -> None:
        times_ms: list[float] = []
        stream = aiter(bob)
        for _ in range(messages):
            began_ns = int.from_bytes((await anext(stream)).payload[8:16], "big")
            times_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        times_ms.sort()
        print(json.dumps({"p50_ms": median(times_ms), "p99_ms": times_ms[len(times_ms) * 99 // 100]}), flush=True)

    async with (
        stop_event(until_stdin_closes=True) as stopped,
        await LightNode.start([address], _OPTIONS) as light,
        _member(light, "bob", speaks=speaks) as bob,
    ):
        print(json.dumps("ready"), flush=True)
        reading, ending = asyncio.create_task(read(bob)), asyncio.create_task(stopped.wait())
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        else:
            reading.cancel()
        await ending


def _member(light: LightNode, name: str, *, speaks: bool) -> AbstractAsyncContextManager[ReliableChannel]:
    """Return a channel, which sends nothing but its messages unless it ``speaks``."""
    options = ReliableChannelOptions(cluster_id=16, shard_count=1)
    if not speaks:
        options = replace(options, sync_min_interval_ms=0, retry_interval_ms=600_000)
    return create_reliable_channel(light, channel_id="bench", sender_id=name, content_topic=_TOPIC, options=options)


@asynccontextmanager
async def _receiver(address: str, messages: int, *, speaks: bool) -> AsyncIterator[Child]:
    """Run `receive` in a process of its own; yield it when it is ready."""
    parameters = {"address": address, "messages": messages, "speaks": speaks}
    async with child("benchmarks.network_workloads", "receive", json.dumps(parameters)) as receiver:
        assert await receiver.says("the start of the receiver") == "ready"
        yield receiver


async def fanout(*, subscribers: int, messages: int, size: int) -> dict[str, Any]:
    """Push messages to a node with many filter subscribers; return how fast they got them all."""
    async with _service_node("memory:") as (node, address), AsyncExitStack() as exits:
        sender = await exits.enter_async_context(await LightNode.start([address], _OPTIONS))
        subscriptions = []
        for _ in range(subscribers):
            client = await exits.enter_async_context(await LightNode.start([address], _OPTIONS))
            subscriptions.append(await client.subscribe(_SHARD, [_TOPIC]))
        cpu_s, began = node.cpu_s(), time.perf_counter()

        async def read(subscription: Any) -> int:
            got = 0
            while got < messages:
                got += len(await subscription.next_batch())
            return got

        readers = asyncio.gather(*map(read, subscriptions))
        for number in range(messages):
            assert (await sender.send(_message(number, size))).accepted
        async with at_most(_PATIENCE_S, "all messages at all subscribers"):
            delivered = sum(await readers)
        elapsed_s = time.perf_counter() - began
        return {
            "deliveries_per_s": delivered / elapsed_s,
            "messages_per_s": messages / elapsed_s,
            "node_cpu_us": (node.cpu_s() - cpu_s) * 1e6 / delivered,
            "node_rss_mib": node.rss_mib(),
        }


def main() -> None:
    """Run one workload and print what it measured."""
    workloads: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
        work.__name__: work for work in (lightpush, channel, receive, fanout)
    }
    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    measured = asyncio.run(workloads[name](**parameters))
    if measured is not None:
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
