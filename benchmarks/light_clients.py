"""Light clients at one node: memory, latency and CPU of ``fairway node`` at 10 and at 1,000 of them, in one run.

``python -m benchmarks.light_clients --seconds 3600`` starts a node as users do, in a process of its own with an archive
in SQLite, and for each number of clients the same mixed load: messages of 200 bytes to 100 KB to topics with ten
subscribers each, store queries for pages and for what was sent, filter pings, and clients that come, talk and leave.
All clients are in this process, so that one clock takes the times; they include the clients' own work.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from benchmarks.child_process import child

from fairway.errors import FairwayError
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.http_client import HttpClient
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage

_CLUSTER, _SHARDS = 16, 8
_ON_A_TOPIC: Final = 10
"""Subscribers of each topic."""
_SIZES: Final = (200,) * 70 + (2_000,) * 25 + (20_000,) * 4 + (100_000,)
_AT_ONCE: Final = 25
"""Clients that connect at the same time."""
_VISIT_EVERY_S: Final = 5.0
"""How often a client comes for one message and leaves."""
_QUERY_EVERY_S: Final = 0.5
_LATE_S: Final = 30.0
"""Time for the last messages to arrive."""
_LOOK_EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Run:
    """What was seen with one number of clients."""

    clients: int
    latencies_ms: list[float] = field(default_factory=list)
    expected: int = 0
    sent: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    queries: int = 0
    failed_queries: int = 0
    visits: int = 0
    connected_s: float = 0.0
    lasted_s: float = 0.0
    cpu_s: float = 0.0
    start_bytes: float = 0.0
    peak_bytes: float = 0.0
    end_bytes: float = 0.0


class _Node:
    """The node's process: its address and its metrics."""

    def __init__(self, introduction: dict[str, Any]) -> None:
        self.address: Final[str] = introduction["multiaddrs"][0]
        self._http: Final = HttpClient(RestAddress.parse(introduction["rest"]), timeout_s=60.0, max_connections=1)

    async def metrics(self) -> dict[str, float]:
        text = (await self._http.request("GET", "/metrics")).body.decode()
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    async def close(self) -> None:
        await self._http.close()


@asynccontextmanager
async def _node() -> AsyncIterator[_Node]:
    with TemporaryDirectory() as folder:
        options = ["--json", "--until-stdin-closes", "--state", folder, "--archive", f"sqlite:{folder}/messages.db"]
        options += ["--cluster", str(_CLUSTER), "--shards", str(_SHARDS), "--max-connections-per-ip", "2000"]
        async with child("fairway", "node", *options) as process:
            node = _Node(await process.says("the address of the node"))
            yield node
            await node.close()


async def _light(address: str) -> LightNode:
    return await LightNode.start([address], LightOptions(cluster_id=_CLUSTER, peers_to_use=1), connect_timeout_s=120.0)


class _Load:
    """The load of one run."""

    def __init__(self, node: _Node, run: _Run, *, rate: float, seed: int) -> None:
        self._node: Final = node
        self._run: Final = run
        self._rate: Final = rate
        self._rng: Final = random.Random(seed)
        self._clients: dict[int, LightNode] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._sent_s: dict[bytes, tuple[int, float]] = {}
        """Message hash -> number of the sender, and when it sent."""

    async def carry_out(self, seconds: float) -> None:
        run, began_s = self._run, time.monotonic()
        run.start_bytes = (await self._node.metrics())["process_resident_memory_bytes"]
        async with AsyncExitStack() as exits:
            exits.push_async_callback(self._leave)
            door = asyncio.Semaphore(_AT_ONCE)

            async def join(number: int) -> None:
                async with door:
                    client = self._clients[number] = await _light(self._node.address)
                    subscription = await client.subscribe(*_place(self._topic(number)))
                    exits.callback(subscription.close)
                    hearing.append(asyncio.create_task(self._hear(number, subscription)))

            hearing: list[asyncio.Task[None]] = []
            await asyncio.gather(*map(join, range(run.clients)))
            run.connected_s = time.monotonic() - began_s
            print(f"{run.clients} clients are connected after {run.connected_s:.1f} s", file=sys.stderr)
            before = await self._node.metrics()
            began_s = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(self._send(), self._query(), self._visit(), self._look())
            run.lasted_s = time.monotonic() - began_s
            await asyncio.gather(*self._sending)
            after = await self._node.metrics()
            run.cpu_s = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
            run.end_bytes = after["process_resident_memory_bytes"]
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATE_S):
                    while len(run.latencies_ms) < run.expected:
                        await asyncio.sleep(0.1)
            for task in hearing:
                task.cancel()
            await asyncio.gather(*hearing, return_exceptions=True)

    async def _leave(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    def _topic(self, number: int) -> str:
        return f"/fairway-bench/1/group-{number // _ON_A_TOPIC}/proto"

    async def _hear(self, number: int, subscription: Any) -> None:
        while batch := await subscription.next_batch():
            now_s = time.monotonic()
            for message in batch:
                sender, sent_s = self._sent_s.get(message.message_hash, (number, 0.0))
                if sender != number:
                    self._run.latencies_ms.append(1_000 * (now_s - sent_s))

    async def _send(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(self._rate))
            self._sending.add(asyncio.create_task(self._send_one(self._rng.randrange(len(self._clients)))))

    async def _send_one(self, number: int) -> None:
        topic = self._topic(number)
        message = WakuMessage(
            payload=self._rng.randbytes(self._rng.choice(_SIZES)), content_topic=topic, timestamp_ns=time.time_ns()
        )
        routed = RoutedMessage.of(_place(topic)[0], message)
        first = number // _ON_A_TOPIC * _ON_A_TOPIC
        others = len(range(first, min(first + _ON_A_TOPIC, len(self._clients)))) - 1
        self._sent_s[routed.message_hash] = (number, time.monotonic())
        result = await self._clients[number].send(routed)
        if result.accepted:
            self._run.sent += 1
            self._run.expected += others
        else:
            self._run.refused[result.detail] += 1

    async def _query(self) -> None:
        while True:
            await asyncio.sleep(_QUERY_EVERY_S)
            number = self._rng.randrange(len(self._clients))
            shard, topics = _place(self._topic(number))
            query = StoreQuery(pubsub_topic=shard, content_topics=tuple(topics), newest_first=True, page_size=20)
            self._run.queries += 1
            try:
                await self._clients[number].query(query)
            except FairwayError:
                self._run.failed_queries += 1

    async def _visit(self) -> None:
        topic = "/fairway-bench/1/visitors/proto"
        while True:
            await asyncio.sleep(_VISIT_EVERY_S)
            async with await _light(self._node.address) as visitor:
                subscription = await visitor.subscribe(*_place(topic))
                message = WakuMessage(payload=b"I was here", content_topic=topic, timestamp_ns=time.time_ns())
                await visitor.send(RoutedMessage.of(_place(topic)[0], message))
                subscription.close()
            self._run.visits += 1

    async def _look(self) -> None:
        while True:
            now = (await self._node.metrics())["process_resident_memory_bytes"]
            self._run.peak_bytes = max(self._run.peak_bytes, now)
            await asyncio.sleep(_LOOK_EVERY_S)


def _place(topic: str) -> tuple[str, list[str]]:
    return autoshard(topic, _CLUSTER, _SHARDS), [topic]


async def _measure(clients: list[int], seconds: float, rate: float, seed: int) -> list[_Run]:
    runs = []
    for count in clients:
        async with _node() as node:
            run = _Run(clients=count)
            await _Load(node, run, rate=rate, seed=seed).carry_out(seconds)
        runs.append(run)
        print(f"{count} clients: {run.sent} sent, {len(run.latencies_ms)} of {run.expected} heard", file=sys.stderr)
    return runs


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def _table(runs: list[_Run]) -> str:
    mib = 2**20
    rows: list[tuple[str, list[str]]] = [
        ("seconds of load", [f"{run.lasted_s:.0f}" for run in runs]),
        ("all connected and subscribed after, s", [f"{run.connected_s:.1f}" for run in runs]),
        ("messages sent", [f"{run.sent:,}" for run in runs]),
        ("refused", [f"{run.refused.total():,}" for run in runs]),
        ("heard, of those to be heard", [f"{len(run.latencies_ms):,} of {run.expected:,}" for run in runs]),
        ("from send to receipt, p50, ms", [f"{_percentile(run.latencies_ms, 0.5):.1f}" for run in runs]),
        ("p99, ms", [f"{_percentile(run.latencies_ms, 0.99):.1f}" for run in runs]),
        ("queries for pages, failed", [f"{run.queries:,}, {run.failed_queries:,}" for run in runs]),
        ("visits of other clients", [f"{run.visits:,}" for run in runs]),
        ("memory of the node before, MiB", [f"{run.start_bytes / mib:.0f}" for run in runs]),
        ("at most, MiB", [f"{run.peak_bytes / mib:.0f}" for run in runs]),
        ("at the end, MiB", [f"{run.end_bytes / mib:.0f}" for run in runs]),
        ("CPU of the node, share of a core", [f"{run.cpu_s / max(run.lasted_s, 1e-9):.0%}" for run in runs]),
    ]
    lines = [f"| light clients | {' | '.join(f'{run.clients:,}' for run in runs)} |", "|---|" + "--:|" * len(runs)]
    lines += [f"| {name} | {' | '.join(values)} |" for name, values in rows]
    return "\n".join(lines)


def command(
    *,
    clients: Annotated[list[int] | None, typer.Option(help="Numbers of clients; 10 and 1,000.")] = None,
    seconds: Annotated[float, typer.Option(help="Time of load for each number.")] = 3_600.0,
    rate: Annotated[float, typer.Option(help="Messages a second, of all clients together.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of the load.")] = 1,
) -> None:
    """Measure a node under the same load of 10 and of 1,000 light clients, and print a table."""
    load = os.getloadavg()[0]
    runs = asyncio.run(_measure(clients or [10, 1_000], seconds, rate, seed))
    print(_table(runs))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"\n{time.strftime('%Y-%m-%d', time.gmtime())}, {machine}, load {load:.1f} before")
    for run in runs:
        for detail, count in run.refused.most_common(3):
            print(f"{run.clients} clients, refused {count} times: {detail}")


if __name__ == "__main__":
    typer.run(command)
