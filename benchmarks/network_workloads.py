"""The workloads of `benchmarks.network`: ``python -m benchmarks.network_workloads NAME JSON``, the clients' process.

A service node runs in a further process, as ``fairway node`` does for a user, so that its CPU time is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

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
    workloads: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"lightpush": lightpush, "fanout": fanout}
    name, parameters = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(asyncio.run(workloads[name](**parameters))))


if __name__ == "__main__":
    main()
