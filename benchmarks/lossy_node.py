"""How soon messages arrive through a node that loses some: fairway beside js-waku's ReliableChannel.

``python -m benchmarks.lossy_node`` starts ``fairway node --loss 0.3``. Three processes of fairway take part in a
channel through it, then three of js-waku. Each participant sends a message every five seconds. A time
is from the command that sends a message to the line of the last participant that received it, or of the first
acknowledgement. Each side is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.js_waku import install

_ROOT = Path(__file__).parents[1]
_SCRIPTS = _ROOT / "tests" / "interop" / "js"
_SIDES = ("fairway", "js-waku")
_NAMES = ("alice", "bob", "carol")
_PACE_S = 5.0
_WAIT_S = 90.0
"""Time for the last messages, after the last one was sent."""
_READY_S = 60.0
_LINE_BYTES = 4_194_304
_SHARES = (0.5, 0.9)
_S = 5.0
"""S of the FURPS of SDS."""


class _Process:
    """A participant that takes commands and prints events as JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def tell(self, command: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.startswith(b"{"):
                yield json.loads(line)

    async def ready(self) -> dict[str, Any]:
        async with asyncio.timeout(_READY_S):
            async for event in self.events():
                return event
        raise SystemExit("a process ended before it was ready")


@asynccontextmanager
async def _started(*command: str, cwd: Path = _ROOT) -> AsyncIterator[_Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES,
    )
    try:
        yield _Process(process)
    finally:
        process.kill()
        await process.wait()


def _node(loss: float, seed: int) -> Sequence[str]:
    place = ("--cluster", "16", "--shards", "1")
    return (sys.executable, "-m", "fairway", "node", "--json", *place, "--loss", str(loss), "--seed", str(seed))


def _fairway(address: str, name: str) -> Sequence[str]:
    place = ("--cluster", "16", "--shards", "1", "--channel", "lossy", "--topic", "/bench/1/lossy/proto")
    command = (sys.executable, "-m", "fairway", "participant", "--payloads", *place)
    return (*command, "--node", address, "--sender", name)


def _js_waku(address: str, name: str) -> Sequence[str]:
    settings = {"cluster": 16, "shard": 0, "contentTopic": "/bench/1/lossy/proto", "peers": [address]}
    settings |= {"channel": "lossy", "sender": name}
    return (shutil.which("node") or "node", "--import", "./polyfill.mjs", "light.mjs", json.dumps(settings))


class _Record:
    """Times of messages by message id, in seconds."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.known: dict[str, float] = {}
        """The first acknowledgement."""
        self.received: dict[tuple[str, str], float] = {}
        """The first time at a participant, by message id and name."""
        self.repeated = 0

    def note(self, name: str, event: Mapping[str, Any]) -> None:
        """Note an event of a participant; both programs use the SHA-256 of the payload as message id."""
        now = time.monotonic()
        if event["event"] == "message-acknowledged":
            self.known.setdefault(event.get("message_id") or event["id"], now)
        elif event["event"] == "message-received":
            payload = base64.b64decode(event.get("payload_base64") or event["payload"])
            key = sha256(payload).hexdigest(), name
            self.repeated += key in self.received
            self.received.setdefault(key, now)

    def figures(self) -> dict[str, Any]:
        """Return the figures of all messages; a time is None if the message had not arrived."""
        others = len(_NAMES) - 1
        everywhere, known = [], []
        for message, sent in self.sent.items():
            times = [at - sent for (number, _), at in self.received.items() if number == message]
            everywhere.append(max(times) if len(times) == others else math.inf)
            known.append(self.known.get(message, math.inf) - sent)
        return {
            "messages": len(self.sent),
            "known_s": [_quantile(known, share) for share in _SHARES],
            "known_within_s": _within(known, _S),
            "everywhere_s": [_quantile(everywhere, share) for share in _SHARES],
            "everywhere_within_6_s": _within(everywhere, 6 * _S),
            "not_everywhere": sum(map(math.isinf, everywhere)),
            "repeated": self.repeated,
        }


def _quantile(times: Sequence[float], share: float) -> float | None:
    found = sorted(times)[min(int(len(times) * share), len(times) - 1)]
    return None if math.isinf(found) else round(found, 2)


def _within(times: Sequence[float], limit_s: float) -> float:
    return round(sum(one <= limit_s for one in times) / len(times), 3)


async def _measured(side: str, loss: float, seed: int, messages: int, folder: Path) -> dict[str, Any]:
    record = _Record()
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(_started(*_node(loss, seed)))
        address = (await node.ready())["multiaddrs"][0]
        command, cwd = (_fairway, _ROOT) if side == "fairway" else (_js_waku, folder)
        peers = {name: await stack.enter_async_context(_started(*command(address, name), cwd=cwd)) for name in _NAMES}
        for peer in peers.values():
            await peer.ready()

        async def read(name: str) -> None:
            async for event in peers[name].events():
                record.note(name, event)

        reading = [asyncio.create_task(read(name)) for name in _NAMES]
        for number in range(messages):
            for name, peer in peers.items():
                payload = f"{name} {number}".encode()
                encoded = base64.b64encode(payload).decode()
                record.sent[sha256(payload).hexdigest()] = time.monotonic()
                if side == "fairway":
                    peer.tell({"command": "send", "base64": encoded})
                else:
                    peer.tell({"do": "send", "payload": encoded})
                await asyncio.sleep(_PACE_S / len(_NAMES))
        ends = time.monotonic() + _WAIT_S
        while len(record.received) < len(record.sent) * (len(_NAMES) - 1) and time.monotonic() < ends:
            await asyncio.sleep(1.0)
        for task in reading:
            task.cancel()
    return record.figures()


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=24, help="messages of each participant; default 24")
    parser.add_argument("--loss", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", nargs="*", choices=_SIDES, default=_SIDES)
    chosen = parser.parse_args()
    folder = install(_SCRIPTS, _ROOT / "build" / "interop-js") if "js-waku" in chosen.sides else _ROOT
    for side in chosen.sides:
        print(
            json.dumps(
                {"side": side, **asyncio.run(_measured(side, chosen.loss, chosen.seed, chosen.messages, folder))}
            )
        )


if __name__ == "__main__":
    main()
