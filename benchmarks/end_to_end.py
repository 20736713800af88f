"""js-waku to fairway through our service node, beside js-waku to js-waku through the same node.

A js-waku light node pushes messages at a steady pace. A fairway light client and a second js-waku light node receive
the same messages at the same time. The sender stamps a message in whole milliseconds of the machine's clock, so times
are exact to a millisecond.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.js_waku import PeerUnavailableError, install
from benchmarks.session import Benchmark, Session

from fairway.nodes.light import LightNode
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions

_SCRIPTS = Path(__file__).parents[1] / "tests" / "interop" / "js"
_SHARD = "/waku/2/rs/16/0"
_TOPIC = "/fairway-bench/1/end-to-end/proto"
_PACE_S = 0.03
_PATIENCE_S = 60
_LINE_BYTES = 4_194_304


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    return [
        Benchmark(name=f"end to end: js-waku to fairway, {label}, p50", measure=partial(_measure, size=size))
        for label, size in (("1 KiB", 1_024), ("100 KB", 100_000))
    ]


def _measure(session: Session, *, size: int) -> Figure:
    messages = 50 if session.quick else 300
    try:
        folder = install(_SCRIPTS, session.build / "interop-js")
        ours, theirs = asyncio.run(_converse(folder, messages=messages, size=size))
    except PeerUnavailableError as error:
        return Figure(ours=float("nan"), unit="ms", peer_name="js-waku", remark=str(error))
    p99 = [sorted(times)[len(times) * 99 // 100] for times in (ours, theirs)]
    remark = f"p99 {p99[0]:.0f} ms, js-waku to js-waku {p99[1]:.0f} ms; {messages} messages"
    return Figure(ours=median(ours), unit="ms", peer=median(theirs), peer_name="js-waku", remark=remark)


async def _converse(folder: Path, *, messages: int, size: int) -> tuple[list[float], list[float]]:
    options = ServiceOptions(cluster_id=16, shards=(0,), shard_count=1, request_rate=None)
    async with await ServiceNode.start(options) as node:
        address = str(node.addresses[0])
        async with (
            _js(folder, address) as sender,
            _js(folder, address) as receiver,
            await LightNode.start([address]) as client,
        ):
            subscription = await client.subscribe(_SHARD, [_TOPIC])
            await receiver.ask("subscribe", "subscribed")
            ours: list[float] = []

            async def read() -> None:
                while len(ours) < messages:
                    batch = await subscription.next_batch()
                    now_ms = time.time() * 1_000
                    ours.extend(now_ms - (heard.message.timestamp_ns or 0) / 1e6 for heard in batch)

            reading = asyncio.create_task(read())
            for number in range(messages):
                payload = number.to_bytes(4, "big") * (size // 4)
                sender.tell("push", payload=base64.b64encode(payload).decode())
                await asyncio.sleep(_PACE_S)
            async with asyncio.timeout(_PATIENCE_S):
                await reading
                heard = [await receiver.next("filtered") for _ in range(messages)]
            return ours, [event["receivedAt"] - event["sentAt"] for event in heard]


class _Js:
    """A js-waku light node that takes commands and tells events as JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, command: str, **fields: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **fields}).encode() + b"\n")

    async def ask(self, command: str, answer: str) -> dict[str, Any]:
        self.tell(command)
        return await self.next(answer)

    async def next(self, wanted: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE_S):
            while line := await self._process.stdout.readline():
                if line.startswith(b"{"):
                    event: dict[str, Any] = json.loads(line)
                    if event["event"] == wanted:
                        return event
        raise PeerUnavailableError("the js-waku process ended")


@asynccontextmanager
async def _js(folder: Path, address: str) -> AsyncIterator[_Js]:
    settings = {"cluster": 16, "shard": 0, "contentTopic": _TOPIC, "peers": [address]}
    process = await asyncio.create_subprocess_exec(
        *(shutil.which("node") or "node", "--import", "./polyfill.mjs", "light.mjs", json.dumps(settings)),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES,
    )
    peer = _Js(process)
    try:
        await peer.next("ready")
        yield peer
    finally:
        process.kill()
        await process.wait()
