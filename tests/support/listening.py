"""Read the messages of a channel beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import FairwayError
from fairway.events import MessageReceived

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
