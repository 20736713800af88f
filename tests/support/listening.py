"""Make participants of one channel, and read their messages beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import FairwayError
from fairway.events import MessageReceived
from fairway.nodes.local import LocalNetwork
from fairway.opening import Opening

TOPIC = "/fairway/1/harbour/proto"

_READING: set[asyncio.Task[None]] = set()


def listen(channel: ReliableChannel, take: Callable[[MessageReceived], object]) -> None:
    """Call a function with every message of a channel, in a loop over its messages, until the channel closes."""

    async def read() -> None:
        try:
            async for message in channel:
                take(message)
        except FairwayError:
            return

    task = asyncio.ensure_future(read())
    _READING.add(task)
    task.add_done_callback(_READING.discard)


def heard_by(channel: ReliableChannel) -> list[bytes]:
    """Return a list that gets the payload of each message that a channel delivers."""
    payloads: list[bytes] = []
    listen(channel, lambda message: payloads.append(message.payload))
    return payloads


def join(network: LocalNetwork, name: str, **more: Any) -> Opening[ReliableChannel]:
    """Make a participant at its node; an existing node is used again."""
    node = next((node for node in network.nodes if node.name == name), None) or network.node(name)
    return create_reliable_channel(node, "harbour", name, TOPIC, **more)
