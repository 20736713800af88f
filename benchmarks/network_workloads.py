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
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.storage.memory_store import MemoryStore
from fairway.waku.light import LightNode, LightOptions
from fairway.waku.node import RoutedMessage
from fairway.wire.waku_message import WakuMessage

_SHARD = "/waku/2/rs/16/0"
_TOPIC = "/fairway-bench/1/room/proto"
_TICKS = os.sysconf("SC_CLK_TCK")
_LONG_S = 1e6
_OPTIONS = LightOptions(presence_first_s=_LONG_S, ping_interval_s=60.0, peers_to_use=1)
_PATIENCE_S = 300
_SHORT = 10_000


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    address: str = ""
    """Where it listens, if it is a node."""

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def _service_node(archive: str) -> AsyncIterator[_Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairway", "node", "--json", "--until-stdin-closes"),
        *("--cluster", "16", "--shards", "1", "--archive", archive, "--requests-per-second", "0"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        told = json.loads(await process.stdout.readline())
        yield _Process(process.pid, told["multiaddrs"][0])
    finally:
        process.stdin.close()
        await process.wait()


def _message(number: int, size: int) -> RoutedMessage:
    payload = number.to_bytes(8, "big") + os.urandom(size - 8)
    return RoutedMessage.of(
        _SHARD, WakuMessage(payload=payload, content_topic=_TOPIC, timestamp_ns=time.time_ns() + number)
    )


async def lightpush(*, clients: int, messages: int, size: int, archive: str = "memory:") -> dict[str, Any]:
    """Push messages from clients that each wait for the answer before the next; return rate, times and CPU."""
    async with _service_node(archive) as node, AsyncExitStack() as exits:
        nodes = [
            await exits.enter_async_context(await LightNode.start([node.address], _OPTIONS)) for _ in range(clients)
        ]
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
    other application. With ``sample_s`` the receiver speaks, too, so that what is sent is acknowledged, and the memory
    of the processes is noted once in so many seconds; both keep 10,000 messages of history and requests, and 20,000
    points of the trace.
    """
    speaks = sample_s > 0

    async def send(alice: ReliableChannel, number: int) -> None:
        stamp = number.to_bytes(8, "big") + time.perf_counter_ns().to_bytes(8, "big")
        await (await alice.send(stamp.ljust(size, b"\7"))).sent()

    async def send_in_turn(alice: ReliableChannel, numbers: Iterator[int]) -> None:
        for number in numbers:
            await send(alice, number)

    async with (
        _service_node(archive) as node,
        _receiver(node.address, messages, speaks=speaks) as (receiver, lines),
        await LightNode.start([node.address], _OPTIONS) as light,
        _member(light, "alice", speaks=speaks) as alice,
    ):
        processes = {"sender": _Process(os.getpid()), "node": node, "receiver": receiver}
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
            times = json.loads(await lines.readline())
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


async def receive(*, address: str, messages: int, speaks: bool) -> dict[str, Any]:
    """Receive the messages of `channel`; return the times that they took in milliseconds."""
    times_ms: list[float] = []
    async with (
        await LightNode.start([address], _OPTIONS) as light,
        _member(light, "bob", speaks=speaks) as bob,
    ):
        print("ready", flush=True)
        stream = bob.messages()
        for _ in range(messages):
            began_ns = int.from_bytes((await anext(stream)).payload[8:16], "big")
            times_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        times_ms.sort()
        print(json.dumps({"p50_ms": median(times_ms), "p99_ms": times_ms[len(times_ms) * 99 // 100]}), flush=True)
        # It is asked what it used before it ends.
        await asyncio.to_thread(sys.stdin.read)
    return {}


def _member(light: LightNode, name: str, *, speaks: bool) -> AbstractAsyncContextManager[ReliableChannel]:
    """Return a channel, which sends nothing but its messages unless it ``speaks``."""
    options, store = ReliableChannelOptions(cluster_id=16, shard_count=1), MemoryStore()
    if speaks:
        # The bounds are reached early, and not only after the workload.
        options = replace(options, sds=SdsConfig(max_history=_SHORT))
        store = MemoryStore(kept_requests=_SHORT, kept_trace_points=2 * _SHORT)
    else:
        options = replace(options, sync_min_interval_ms=0, retry_interval_ms=600_000)
    return create_reliable_channel(
        light, channel_id="bench", sender_id=name, content_topic=_TOPIC, options=options, store=store
    )


@asynccontextmanager
async def _receiver(
    address: str, messages: int, *, speaks: bool
) -> AsyncIterator[tuple[_Process, asyncio.StreamReader]]:
    """Start `receive` in a process of its own; give it, and what it prints."""
    parameters = {"address": address, "messages": messages, "speaks": speaks}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.network_workloads", "receive", json.dumps(parameters)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield _Process(process.pid), process.stdout
    finally:
        process.stdin.close()
        await process.wait()


async def fanout(*, subscribers: int, messages: int, size: int) -> dict[str, Any]:
    """Push messages to a node with many filter subscribers; return how fast they got them all."""
    async with _service_node("memory:") as node, AsyncExitStack() as exits:
        sender = await exits.enter_async_context(await LightNode.start([node.address], _OPTIONS))
        subscriptions = []
        for _ in range(subscribers):
            client = await exits.enter_async_context(await LightNode.start([node.address], _OPTIONS))
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
        async with asyncio.timeout(_PATIENCE_S):
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
    print(json.dumps(asyncio.run(workloads[name](**parameters))))


if __name__ == "__main__":
    main()
