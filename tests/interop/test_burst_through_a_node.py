"""A burst through ``fairway node`` with default settings: programs of their own, one receiver killed twice on the way.

Everything must be delivered once and in order, nothing may be announced as lost, and every "delivered" must be true.
The size in ordinary runs is small; ``FAIRWAY_BURST`` (20000) and ``FAIRWAY_BURST_SEGMENTED`` (500) set others.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

SMALL = int(os.environ.get("FAIRWAY_BURST", "600"))
SEGMENTED = int(os.environ.get("FAIRWAY_BURST_SEGMENTED", "4"))
SEGMENTED_BYTES = 150_000
STALLED_S = 240
"""Without any news for so long, nothing more is expected."""


class Program:
    """A process of ``python -m fairway`` that speaks JSON lines."""

    def __init__(self, name):
        self.name = name
        self.lines = []
        self.process = None
        self.news = asyncio.Event()

    async def start(self, folder, *words):
        with (folder / f"{self.name}.err").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "fairway", *words],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=1 << 24,
            )
        self.reading = asyncio.ensure_future(self.read(self.process.stdout))

    async def read(self, stdout):
        async for line in stdout:
            if line.endswith(b"\n"):
                self.lines.append(json.loads(line))
                self.news.set()

    def of(self, *types):
        return [line for line in self.lines if line.get("type", line["event"]) in types]

    async def wait(self, is_enough):
        """Wait until enough was said; give up when nothing is said any more."""
        while not is_enough():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), STALLED_S)

    async def kill(self):
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self.process is not None:
            await self.process.wait()
            await self.reading
            self.process._transport.close()


def payloads_of(count, segmented, seed):
    rng = random.Random(seed)
    small = [b"%032d" % number for number in range(count)]
    large = [rng.randbytes(SEGMENTED_BYTES) for _ in range(segmented)]
    return small + large


async def burst(folder, payloads):
    order = {hashlib.sha256(payload).hexdigest(): place for place, payload in enumerate(payloads)}
    async with AsyncExitStack() as stack:

        async def program(name, *words):
            made = Program(name)
            stack.push_async_callback(made.kill)
            await made.start(folder, *words)
            return made

        node = await program(
            "node", "node", "--json", "--until-stdin-closes", "--no-rest", "--state", str(folder / "state")
        )
        await node.wait(lambda: node.lines)
        address = next(a for a in node.lines[0]["multiaddrs"] if "/ws" not in a)

        def words(name):
            taking_part = ["--node", address, "--channel", "burst", "--sender", name]
            return ["participant", *taking_part, "--store", str(folder / f"{name}.db")]

        alice, bob, carol = [await program(name, *words(name)) for name in ("alice", "bob", "carol")]
        for each in (alice, bob, carol):
            await each.wait(lambda each=each: each.of("ready"))
        began = time.monotonic()
        figures: dict[str, Any] = {}

        async def send():
            for payload in payloads:
                what = {"base64": base64.b64encode(payload).decode()}
                command = {"command": "send", "by": ["bob", "carol"], **what}
                alice.process.stdin.write(json.dumps(command).encode() + b"\n")
                await alice.process.stdin.drain()

        sending = asyncio.ensure_future(send())
        stack.callback(sending.cancel)
        for share in (1 / 3, 2 / 3):
            enough = int(len(payloads) * share)
            await carol.wait(
                lambda enough=enough: len({m["message_id"] for m in carol.of("MessageReceived")}) >= enough
            )
            await carol.kill()
            carol.process = None
            await carol.start(folder, *words("carol"))
        await sending
        for each in (bob, carol):
            await each.wait(lambda each=each: len({m["message_id"] for m in each.of("MessageReceived")}) == len(order))
        figures["received_s"] = round(time.monotonic() - began, 1)
        await alice.wait(lambda: len(alice.of("MessageDelivered", "DeliveryError")) >= len(payloads))
        figures["delivered_s"] = round(time.monotonic() - began, 1)
        for each in (alice, bob, carol):
            each.process.stdin.write(b'{"command":"statistics"}\n')
            await each.wait(lambda each=each: each.of("statistics"))
        figures["sent"] = alice.of("statistics")[-1]["protocol"]["transmissions"]
        figures["not_taken"] = alice.of("statistics")[-1]["protocol"]["not_taken"]
        figures["limits"] = {
            each.name: dict(Counter(line["limit"] for line in each.of("LimitReached"))) for each in (alice, bob, carol)
        }
    return alice, bob, carol, order, figures


@pytest.mark.full
def test_a_burst_is_delivered_once_in_order_and_nothing_is_announced_as_lost(tmp_path):
    payloads = payloads_of(SMALL, SEGMENTED, seed=1)
    alice, bob, carol, order, figures = asyncio.run(burst(tmp_path, payloads))
    sys.stdout.write(f"{SMALL} small and {SEGMENTED} segmented messages: {json.dumps(figures)}\n")
    for receiver in (bob, carol):
        received = receiver.of("MessageReceived")
        new = [message for message in received if not message["redelivered"]]
        again = [message["message_id"] for message in received if message["redelivered"]]
        places = [order[message["message_id"]] for message in received]
        first = list(dict.fromkeys(places))
        assert first == sorted(first), f"{receiver.name}: out of order"
        assert len({m["message_id"] for m in new}) == len(new), f"{receiver.name}: twice"
        assert len(again) <= 2 * 64 or receiver is not bob
        assert all(message["dependencies_met"] for message in received)
        assert not receiver.of("IrretrievableMessage")
    assert not alice.of("DeliveryError", "MessageSendError", "IrretrievableMessage")
    delivered = alice.of("MessageDelivered")
    assert len(delivered) == len(payloads)
    assert all({"bob", "carol"} <= set(event["delivered_to"]) for event in delivered)
