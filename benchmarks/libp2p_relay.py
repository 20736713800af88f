"""The relay of fairway for `benchmarks.libp2p`: ``python -m benchmarks.libp2p_relay MUXER serve``, or ``measure``.

Two processes form one mesh; ``peers/py_libp2p_relay.py`` has the same protocol. A message that begins with E is sent
back with an e. Every eighth message that begins with P is answered by an A. At most 24 messages are in flight, because
py-libp2p drops messages silently from 32 on.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.libp2p_streams import MUXERS

from fairway.libp2p.gossipsub.pubsub import PubSub
from fairway.libp2p.gossipsub.router import Deliver, ValidationResult
from fairway.libp2p.host import Host
from fairway.subscription import Subscription

_RELAY = "/vac/waku/relay/2.0.0"
_TOPIC = "/waku/2/rs/16/0"
_WINDOW = 24
_STEP = 8
_PATIENCE_S = 30


class _Relay:
    """A node in the mesh, and what it hears of one kind."""

    def __init__(self, pubsub: PubSub, heard: Subscription[Deliver]) -> None:
        self.heard = heard
        self._pubsub = pubsub
        self._waiting: list[bytes] = []

    async def publish(self, data: bytes) -> None:
        await self._pubsub.publish(_TOPIC, data)

    async def next(self, kind: bytes) -> bytes:
        """Return the next message that begins with a letter; others are left out."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                while not self._waiting:
                    self._waiting = [one.message.data for one in reversed(await self.heard.next_batch())]
                if (data := self._waiting.pop()).startswith(kind):
                    return data

    async def join(self) -> None:
        """Wait until the mesh carries messages both ways."""
        async with asyncio.timeout(_PATIENCE_S):
            while not self._pubsub.mesh_of(_TOPIC):
                await asyncio.sleep(0.05)  # a router's mesh changes without an event
        await self.publish(b"E" + random.randbytes(16))
        await self.next(b"e")


@asynccontextmanager
async def _relay(host: Host) -> AsyncIterator[_Relay]:
    async with PubSub(host, _RELAY, validator=lambda _: ValidationResult.ACCEPT, rng=random.Random(1)) as pubsub:
        yield _Relay(pubsub, pubsub.subscribe(_TOPIC))


async def _serve(muxer: str) -> None:
    """Be the other process, until standard input ends."""
    async with (
        await Host.start(listen=["/ip4/127.0.0.1/tcp/0"], muxers=[MUXERS[muxer]]) as host,
        _relay(host) as relay,
    ):
        answering = asyncio.create_task(_answer(relay))
        print(host.addresses[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        answering.cancel()


async def _answer(relay: _Relay) -> None:
    published = 0
    async for delivered in relay.heard:
        data = delivered.message.data
        if data.startswith(b"E"):
            await relay.publish(b"e" + data[1:])
        elif data.startswith(b"P"):
            published += 1
            if published % _STEP == 0:
                await relay.publish(b"A" + random.randbytes(16))


def _message(kind: bytes, size: int) -> bytes:
    return (kind + random.randbytes(16)).ljust(size, b".")


async def _echo(relay: _Relay, size: int, seconds: float) -> tuple[float, int]:
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        await relay.publish(_message(b"E", size))
        await relay.next(b"e")
        rounds += 1
    return (time.perf_counter() - begin) / rounds * 1_000, rounds


async def _publish(relay: _Relay, size: int, seconds: float) -> tuple[float, int]:
    begin, sent, known = time.perf_counter(), 0, 0
    while time.perf_counter() - begin < seconds or sent % _STEP:
        await relay.publish(_message(b"P", size))
        sent += 1
        if sent - known >= _WINDOW:
            await relay.next(b"A")
            known += _STEP
    while known < sent:
        await relay.next(b"A")
        known += _STEP
    return sent / (time.perf_counter() - begin), sent


_FIGURES = {"echo": _echo, "publish": _publish}


async def _measure(muxer: str, address: str, seconds: float, figure: str, size: int) -> None:
    async with await Host.start(muxers=[MUXERS[muxer]]) as host, _relay(host) as relay:
        await host.connect(address)
        await relay.join()
        cpu_s = time.process_time()
        value, rounds = await _FIGURES[figure](relay, size, seconds)
        print(json.dumps({figure: {"value": value, "rounds": rounds, "cpu_s": time.process_time() - cpu_s}}))


def main() -> None:
    """Serve, or measure."""
    muxer, what, *rest = sys.argv[1:]
    if what == "serve":
        asyncio.run(_serve(muxer))
    else:
        address, seconds, figure, size = rest
        asyncio.run(_measure(muxer, address, float(seconds), figure, int(size)))


if __name__ == "__main__":
    main()
