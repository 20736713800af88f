"""Handing transmissions to the node.

The protocol lets no more leave than the node is to have at once, so that nothing stamped waits here, except ephemeral
messages. What a node does not take is no error: the protocol is told so and sends it again. A node that raises or does
not answer in time counts as one that did not take it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from fairway.protocol.effects import Publish
from fairway.waku.node import RoutedMessage, SendResult, WakuNode
from fairway.waku.owned_tasks import OwnedTasks

_ANSWER_TIMEOUT_S: Final = 20.0
_FULL: Final = 1_000
"""Transmissions waiting for the node from which on new sends wait, too."""


class Publisher:
    """Sends what the protocol wants published, roughly in order."""

    def __init__(self, node: WakuNode, max_concurrent: int, answered: Callable[[Publish, SendResult], None]) -> None:
        self._node = node
        self._max_concurrent = max_concurrent
        self._answered = answered
        self._waiting: deque[Publish] = deque()
        self._active = 0
        """Workers that will look for more; one that is about to end is none of them, though its task is not done."""
        self._workers = OwnedTasks()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        """Return how many transmissions the node has not answered, or not got yet."""
        return len(self._waiting) + len(self._workers)

    def put(self, publication: Publish) -> None:
        """Send something as soon as possible."""
        self._waiting.append(publication)
        if self._active < self._max_concurrent:
            self._active += 1
            self._workers.spawn(self._work())

    async def room(self) -> None:
        """Wait while far more is to be sent than the node takes."""
        while len(self._waiting) >= _FULL:
            self._room.clear()
            await self._room.wait()

    async def idle(self) -> None:
        """Wait until the node has answered everything."""
        await self._workers.wait()

    async def stop(self) -> None:
        """Abandon what is under way; the protocol sends it again after a restart."""
        self._waiting.clear()
        self._room.set()
        await self._workers.close()

    async def _work(self) -> None:
        try:
            while self._waiting:
                publication = self._waiting.popleft()
                self._room.set()
                result = await self._send(publication)
                self._answered(publication, result)
        finally:
            self._active -= 1

    async def _send(self, publication: Publish) -> SendResult:
        routed = RoutedMessage(
            pubsub_topic=publication.pubsub_topic,
            message=publication.message,
            encoded=publication.encoded,
            message_hash=publication.message_hash,
        )
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await self._node.send(routed)
        except TimeoutError:
            return SendResult(accepted=False, detail=f"the node did not answer within {_ANSWER_TIMEOUT_S:.0f} s")
        except Exception as error:  # noqa: BLE001 - whatever ails a node, the message is sent again later
            return SendResult(accepted=False, detail=f"the node raised {error!r}")
