"""`Publisher`: hands transmissions to the node.

The protocol releases only as many transmissions as the node may have at once; only ephemeral messages wait here. If the
node refuses a transmission, raises, or does not answer in time, the protocol learns that and sends it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from fairway.foreign_code import ForeignCode
from fairway.nodes.node import SEND_TIMEOUT_S, RoutedMessage, SendResult, WakuNode
from fairway.owned_tasks import OwnedTasks
from fairway.protocol.effects import Publish

ANSWER_TIMEOUT_S: Final = SEND_TIMEOUT_S + 2.0
"""Longest wait for a node; a node that keeps its own limit answers before."""
_FULL: Final = 1_000
"""Waiting transmissions at which new sends wait, too."""


class Publisher:
    """Sends transmissions, roughly in order."""

    def __init__(
        self,
        node: WakuNode,
        max_concurrent: int,
        answered: Callable[[Publish, SendResult], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``answered`` takes the result of each transmission, ``failed`` the exception of one without a result."""
        self._node = node
        self._max_concurrent = max_concurrent
        self._answered = answered
        self._waiting: deque[Publish] = deque()
        self._active = 0
        """Workers that will take further transmissions."""
        self._workers = OwnedTasks(failed=failed)
        self._room = asyncio.Event()
        self.refusal = ""
        """Why the node did not take the latest transmission; empty if it did."""

    def __len__(self) -> int:
        """Return how many transmissions wait for the node or for its answer."""
        return len(self._waiting) + len(self._workers)

    def put(self, publication: Publish) -> None:
        """Send a transmission as soon as possible."""
        self._waiting.append(publication)
        if self._active < self._max_concurrent:
            self._active += 1
            self._workers.spawn(self._work())

    async def room(self) -> None:
        """Wait while too many transmissions wait for the node."""
        while len(self._waiting) >= _FULL:
            self._room.clear()
            await self._room.wait()

    async def idle(self) -> None:
        """Wait until the node has answered everything."""
        await self._workers.wait()

    async def stop(self) -> None:
        """Cancel transmissions under way; the protocol sends them again after a restart."""
        self._waiting.clear()
        self._room.set()
        await self._workers.close()

    async def _work(self) -> None:
        try:
            while self._waiting:
                publication = self._waiting.popleft()
                self._room.set()
                result = await self._send(publication)
                self.refusal = "" if result.accepted else result.detail
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
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                with ForeignCode("the node's send"):
                    return await self._node.send(routed)
        except TimeoutError:
            return SendResult(accepted=False, detail=f"the node did not answer within {ANSWER_TIMEOUT_S:.0f} s")
        except Exception as error:  # noqa: BLE001 - after any failure of a node the message is sent again
            return SendResult(accepted=False, detail=f"the node raised {error!r}")
