"""The workloads of `benchmarks.network`: ``python -m benchmarks.network_workloads NAME JSON``, the clients' process.

A service node runs in a further process, as ``fairway node`` does for a user, so that its CPU time is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.options import ReliableChannelOptions
from fairway.waku.light import LightNode, LightOptions
from fairway.waku.node import RoutedMessage
from fairway.wire.waku_message import WakuMessage

_SHARD = "/waku/2/rs/16/0"
_TOPIC = "/fairway-bench/1/room/proto"
_TICKS = os.sysconf("SC_CLK_TCK")
_LONG_S = 1e6
_OPTIONS = LightOptions(presence_first_s=_LONG_S, ping_interval_s=60.0, peers_to_use=1)
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class _Node:
    address: str
    pid: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def _service_node(archive: str) -> AsyncIterator[_Node]:
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
        yield _Node(told["multiaddrs"][0], process.pid)
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


async def channel(*, messages: int, size: int, per_second: float = 0, side_by_side: int = 64) -> dict[str, Any]:
    """Let a reliable channel speak to another one through the node; both are in this process, their states in memory.

    With ``per_second``, messages are offered at that rate, whatever becomes of them. Without it, so many senders send
    side by side, each as soon as its last message was sent. Times reach from the call of `send` to the message in the
    other application.
    """
    options = ReliableChannelOptions(cluster_id=16, shard_count=1, sync_min_interval_ms=0, retry_interval_ms=600_000)
    began_at: dict[int, float] = {}
    times_ms: list[float] = []

    async def send(alice: ReliableChannel, number: int) -> None:
        began_at[number] = time.perf_counter()
        await (await alice.send(number.to_bytes(8, "big").ljust(size, b"\7"))).sent()

    async def send_in_turn(alice: ReliableChannel, numbers: Iterator[int]) -> None:
        for number in numbers:
            await send(alice, number)

    async def receive(bob: ReliableChannel) -> None:
        stream = bob.messages()
        for _ in range(messages):
            number = int.from_bytes((await anext(stream)).payload[:8], "big")
            times_ms.append((time.perf_counter() - began_at.pop(number)) * 1_000)

    async with _service_node("memory:") as node, AsyncExitStack() as exits:
        channels = []
        for name in ("alice", "bob"):
            light = await exits.enter_async_context(await LightNode.start([node.address], _OPTIONS))
            made = await create_reliable_channel(
                light, channel_id="bench", sender_id=name, content_topic=_TOPIC, options=options
            )
            channels.append(await exits.enter_async_context(made))
        alice, bob = channels
        cpu_s, began = node.cpu_s(), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            receiving = group.create_task(receive(bob))
            if per_second:
                for number in range(messages):
                    await asyncio.sleep(began + number / per_second - time.perf_counter())
                    group.create_task(send(alice, number))
            else:
                numbers = iter(range(messages))
                for _ in range(side_by_side):
                    group.create_task(send_in_turn(alice, numbers))
            await receiving
            elapsed_s = time.perf_counter() - began
        times_ms.sort()
        return {
            "rate": messages / elapsed_s,
            "p50_ms": median(times_ms),
            "p99_ms": times_ms[len(times_ms) * 99 // 100],
            "node_cpu_ms": (node.cpu_s() - cpu_s) * 1_000 / messages,
            "rss_mib": _Node("", os.getpid()).rss_mib(),
        }


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
        work.__name__: work for work in (lightpush, channel, fanout)
    }
    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(asyncio.run(workloads[name](**parameters))))


if __name__ == "__main__":
    main()
