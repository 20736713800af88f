"""The workloads of `benchmarks.live`: ``python -m benchmarks.live_workloads WORKLOAD JSON`` prints a line of JSON.

Each figure has a process of its own, like those of js-waku, so that none inherits the heap of another.
``peers/js_waku_channel/bench.mjs`` has the twins of `throughput`, `latency` and `lossy`: as many messages of the same
size, sent by one participant and received by another in the same process, with the same options.

A profile of a workload: ``python -m cProfile -s tottime -m benchmarks.live_workloads throughput '{...}'``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.nodes.local.faults import NO_FAULTS, NetworkFaults
from fairway.nodes.local.network import LocalNetwork
from fairway.options import Advanced, RateLimitConfig, ReliableChannelOptions, SdsConfig

_CHANNEL = "bench-channel"
_CONTENT_TOPIC = "/bench/1/messages/proto"
_NEVER_MS = 600_000
"""The timer is set, as it would be, and the workload ends before it."""
_GROUP = 64
"""Sends that wait for the disk together."""

Pair = tuple[ReliableChannel, ReliableChannel]


async def throughput(
    *,
    messages: int,
    payload_bytes: int,
    history: int,
    durable: str = "",
    at_once: int = 1,
    batch_ms: int = 0,
    per_epoch: int = 0,
) -> Any:
    """Let A send, each message as soon as the one before it is sent; this ends when B has the last one.

    With ``at_once``, that many senders do so side by side, each waiting for its own messages only. With ``per_epoch``,
    A may publish so many WakuMessages in ten minutes; ``published`` counts them.
    """
    numbers = iter(range(messages))

    async def send_in_turn(alice: ReliableChannel) -> None:
        for number in numbers:
            receipt = await alice.send(_payload(number, payload_bytes))
            await receipt.sent()

    limit = RateLimitConfig(enabled=per_epoch > 0, messages_per_epoch=per_epoch)
    options = replace(_quiet(history), batch_ms=batch_ms, rate_limit=limit)
    network = LocalNetwork()
    async with _pair(options, durable=durable, network=network) as (alice, bob):
        gc.collect()
        start_cpu, start = process_time(), perf_counter()
        reading = asyncio.create_task(_read(bob, messages))
        await asyncio.gather(*(send_in_turn(alice) for _ in range(at_once)))
        await reading
        elapsed = perf_counter() - start
        cpu_ms = (process_time() - start_cpu) * 1e3 / messages
        return {"rate": messages / elapsed, "cpu_ms": cpu_ms, "published": network.statistics().published}


async def latency(*, messages: int, warming: int, payload_bytes: int, history: int, durable: str = "") -> Any:
    """Let A send one message after another, each once the one before it was received; times in milliseconds.

    ``times_ms`` reach from the call of `send` to the message in B's ``async for``, ``durable_ms`` to the return of
    `send`.
    """
    times: list[float] = []
    durable_times: list[float] = []
    arrivals: asyncio.Queue[float] = asyncio.Queue()

    async def read(bob: ReliableChannel) -> None:
        async for _ in bob:
            arrivals.put_nowait(perf_counter())

    async with _pair(_quiet(history), durable=durable) as (alice, bob):
        reading = asyncio.create_task(read(bob))
        for number in range(warming + messages):
            payload = _payload(number, payload_bytes)
            start = perf_counter()
            receipt = await alice.send(payload)
            durable_times.append((perf_counter() - start) * 1e3)
            times.append((await arrivals.get() - start) * 1e3)
            await receipt.sent()
        reading.cancel()
    return {"times_ms": times[warming:], "durable_ms": durable_times[warming:]}


async def lossy(
    *, messages: int, payload_bytes: int, history: int, loss: float, seed: int, faster: int, limit_s: float
) -> Any:
    """Let A send messages over a lossy network with a store; this ends when B's application has the last one.

    All timers run ``faster`` than those of RELIABLE-CHANNEL-API.
    """
    faults = NetworkFaults(loss=loss, min_delay_ms=0, max_delay_ms=0)
    async with _pair(_hasty(history, faster), faults=faults, seed=seed) as (alice, bob):
        start = perf_counter()
        reading = asyncio.create_task(_read(bob, messages))
        for number in range(messages):
            receipt = await alice.send(_payload(number, payload_bytes))
            await receipt.sent()
        await asyncio.wait_for(reading, limit_s)
        return {"seconds": perf_counter() - start}


async def transfer(*, messages: int, payload_bytes: int, loss: float, seed: int, faster: int, limit_s: float) -> Any:
    """Let A send large messages, each once the one before it was received; times in milliseconds.

    ``sent_bytes`` is what both participants published for a message, everything included.
    """
    times: list[float] = []
    faults = NetworkFaults(loss=loss, min_delay_ms=0, max_delay_ms=0)
    network = LocalNetwork(faults, seed=seed)
    payloads = [os.urandom(payload_bytes) for _ in range(messages)]
    async with _pair(_hasty(2, faster), network=network) as (alice, bob):
        stream = aiter(bob)
        start_cpu = process_time()
        for payload in payloads:
            start = perf_counter()
            await alice.send(payload)
            message = await asyncio.wait_for(anext(stream), limit_s)
            times.append((perf_counter() - start) * 1e3)
            assert message.payload == payload, "another message came"
        return {
            "times_ms": times,
            "cpu_ms": (process_time() - start_cpu) * 1e3 / messages,
            "sent_bytes": network.statistics().published_bytes / messages,
        }


async def fill(*, messages: int, payload_bytes: int, durable: str) -> Any:
    """Let B receive messages into the store ``bob.db`` of a folder, for `restart`.

    A waits for B, whose disk sets the pace; B's sync messages let A forget what was acknowledged.
    """
    start = perf_counter()
    options = ReliableChannelOptions(sync_min_interval_ms=500)
    numbers = iter(range(messages))
    room = asyncio.Semaphore(_GROUP)

    async def send_in_turn(alice: ReliableChannel) -> None:
        for number in numbers:
            await room.acquire()
            await alice.send(_payload(number, payload_bytes))

    async def read(bob: ReliableChannel) -> None:
        stream = aiter(bob)
        for _ in range(messages):
            await anext(stream)
            room.release()

    with LocalNetwork() as network:
        alice = await _create(network, "alice", options, None)
        bob = await _create(network, "bob", options, Path(durable) / "bob.db")
        reading = asyncio.create_task(read(bob))
        await asyncio.gather(*(send_in_turn(alice) for _ in range(_GROUP)))
        await reading
        await alice.close()
        await bob.close()
    return {"seconds": perf_counter() - start, "store_bytes": (Path(durable) / "bob.db").stat().st_size}


async def restart(*, durable: str) -> Any:
    """Start B from a store that `fill` made, in a process that has done nothing yet; times in milliseconds.

    ``started_ms`` is until `create_reliable_channel` returned, ``sent_ms`` until a first message was sent.
    """
    with LocalNetwork() as network:
        start, start_cpu = perf_counter(), process_time()
        bob = await _create(network, "bob", ReliableChannelOptions(), Path(durable) / "bob.db")
        started, started_cpu = perf_counter(), process_time()
        await (await bob.send(b"back again")).sent()
        sent = perf_counter()
        await bob.close()
    return {
        "started_ms": (started - start) * 1e3,
        "cpu_ms": (started_cpu - start_cpu) * 1e3,
        "sent_ms": (sent - start) * 1e3,
    }


async def sends(*, messages: int, payload_bytes: int, history: int, durable: str) -> Any:
    """Let A, alone on its network and with a store, send each message as soon as the `send` before it returned."""
    with LocalNetwork() as network, tempfile.TemporaryDirectory(dir=durable) as folder:
        alice = await _create(network, "alice", _quiet(history), Path(folder) / "alice.db")
        gc.collect()
        start_cpu, start = process_time(), perf_counter()
        for number in range(messages):
            await alice.send(_payload(number, payload_bytes))
        elapsed = perf_counter() - start
        cpu_ms = (process_time() - start_cpu) * 1e3 / messages
        await alice.close()
    return {"rate": messages / elapsed, "cpu_ms": cpu_ms}


async def commit(*, messages: int, payload_bytes: int, durable: str) -> Any:
    """Insert rows into a bare SQLite table, one durable transaction each: the least that durability costs here.

    ``times_ms`` are those of a program that does nothing else, ``awaited_ms`` those of one with an event loop, which
    must not stand still meanwhile: it has a thread commit, and awaits that.
    """
    times: list[float] = []
    awaited: list[float] = []
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(dir=durable) as folder, ThreadPoolExecutor(1) as writer:
        database = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, payload BLOB)")
        insert = partial(database.execute, "INSERT INTO message VALUES (?, ?)")
        for number in range(messages):
            row = (number, _payload(number, payload_bytes))
            start = perf_counter()
            insert(row)
            times.append((perf_counter() - start) * 1e3)
        for number in range(messages, 2 * messages):
            row = (number, _payload(number, payload_bytes))
            start = perf_counter()
            await loop.run_in_executor(writer, insert, row)
            awaited.append((perf_counter() - start) * 1e3)
        database.close()
    return {"times_ms": times, "awaited_ms": awaited}


@asynccontextmanager
async def _pair(
    options: ReliableChannelOptions,
    *,
    faults: NetworkFaults = NO_FAULTS,
    seed: int = 0,
    durable: str = "",
    network: LocalNetwork | None = None,
) -> AsyncIterator[Pair]:
    """Give two participants on a local network; with a folder, each with an SQLite store on its disk."""
    with network or LocalNetwork(faults, seed=seed) as joined, tempfile.TemporaryDirectory(dir=durable or None) as made:
        stores = [Path(made) / f"{name}.db" if durable else None for name in ("alice", "bob")]
        alice = await _create(joined, "alice", options, stores[0])
        bob = await _create(joined, "bob", options, stores[1])
        try:
            yield alice, bob
        finally:
            await alice.close()
            await bob.close()


async def _create(
    network: LocalNetwork, name: str, options: ReliableChannelOptions, store: Path | None
) -> ReliableChannel:
    return await create_reliable_channel(
        network.node(name),
        channel_id=_CHANNEL,
        sender_id=name,
        content_topic=_CONTENT_TOPIC,
        options=options,
        store=store,
    )


async def _read(channel: ReliableChannel, messages: int) -> None:
    """Read as an application does, until so many messages have come."""
    stream = aiter(channel)
    for _ in range(messages):
        await anext(stream)


def _quiet(history: int) -> ReliableChannelOptions:
    """Return options with which nothing but the messages themselves is sent."""
    return ReliableChannelOptions(
        sync_min_interval_ms=0, retry_interval_ms=_NEVER_MS, sds=SdsConfig(causal_history_size=history)
    )


def _hasty(history: int, faster: int) -> ReliableChannelOptions:
    """Return options whose timers all run so many times faster than those of RELIABLE-CHANNEL-API."""
    usual = ReliableChannelOptions()
    return ReliableChannelOptions(
        sync_min_interval_ms=30_000 // faster,
        retry_interval_ms=30_000 // faster,
        retrieve_frequency_ms=10_000 // faster,
        sweep_in_buf_interval_ms=usual.sweep_in_buf_interval_ms // faster,
        advanced=Advanced(max_store_queries_per_minute=usual.advanced.max_store_queries_per_minute * faster),
        sds=SdsConfig(causal_history_size=history),
    )


def _payload(number: int, size: int) -> bytes:
    """Return a payload that is unique for its number."""
    return number.to_bytes(4, "big").ljust(size, b"\7")


_WORKLOADS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    work.__name__: work for work in (throughput, latency, lossy, transfer, fill, restart, sends, commit)
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(_WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2])))))
