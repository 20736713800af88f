"""A channel whose node says that no store has what it sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import fairway
from fairway.nodes.local import LocalNetwork, LocalNode
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.testing import virtual_time

TOPIC = "/fairway/1/harbour/proto"


class Node:
    """A node that accepts messages without relaying them, and some seconds later says what stores have."""

    def __init__(self, node: LocalNode, *, stored: bool | None) -> None:
        self.sent_s: list[float] = []
        self._stored = stored
        self._node, self._send = node, node.send
        node.send = self.send  # type: ignore[method-assign]

    async def send(self, message: RoutedMessage) -> SendResult:
        loop = asyncio.get_running_loop()
        self.sent_s.append(loop.time())
        stored: asyncio.Future[bool | None] = loop.create_future()
        loop.call_later(4, stored.set_result, self._stored)
        return replace(SendResult(accepted=True), stored=stored)


@pytest.mark.parametrize(("stored", "first_s", "second_s"), [(False, 4, 34), (None, 30, 60), (True, 30, 60)])
def test_a_message_that_no_store_has_is_retransmitted_at_once_and_then_as_usual(
    stored: bool | None, first_s: int, second_s: int
) -> None:
    @virtual_time(seed=1)
    async def work() -> None:
        with LocalNetwork() as network:
            node = network.node("alice")
            options = fairway.ReliableChannelOptions(sync_min_interval_ms=3_600_000)
            async with await fairway.create_reliable_channel(
                node, "harbour", "alice", TOPIC, options=options
            ) as channel:
                sending = Node(node, stored=stored)
                await channel.send(b"hello")
                await asyncio.sleep(65)
                began_s, *retries_s = sending.sent_s
                assert [round(at_s - began_s) for at_s in retries_s[:2]] == [first_s, second_s]

    work()
