"""`Publisher`: hands transmissions to the node.

The protocol releases only as many transmissions as the node may have at once, except ephemeral ones (`room`). If the
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
from fairway.waiters import Waiters

ANSWER_TIMEOUT_S: Final = SEND_TIMEOUT_S + 2.0
"""Longest wait for a node. It exceeds the node's own limit."""


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
        """Transmissions that no task has taken; the tasks take them in order."""
        self._unanswered = 0
        self._tasks = OwnedTasks(failed=failed)
        self._idle: list[asyncio.Future[None]] = []
        """Each wakes a task that waits for transmissions."""
        self._is_starting = False
        """Whether a task was started or woken, and has not begun."""
        self._waiters = Waiters()
        self.refusal = ""
        """Reason of the node's refusal of the latest transmission; empty if the node took it."""

    def __len__(self) -> int:
        """Return how many transmissions wait for the node's answer."""
        return self._unanswered

    def put(self, publication: Publish) -> None:
        """Send a transmission."""
        self._waiting.append(publication)
        self._unanswered += 1
        self._start()

    async def room(self) -> None:
        """Wait, before an ephemeral transmission, until the node has fewer than ``max_concurrent`` transmissions."""
        await self._until_below(self._max_concurrent)

    async def idle(self) -> None:
        """Wait until the node has answered everything."""
        await self._until_below(1)

    async def stop(self) -> None:
        """Cancel transmissions under way; the protocol sends them again after a restart."""
        await self._tasks.close()

    async def _until_below(self, unanswered: int) -> None:
        while self._unanswered >= unanswered:
            await self._waiters.wait()

    def _start(self) -> None:
        """Let a task take the waiting transmissions: one that is idle, else a new one."""
        if self._is_starting or not self._waiting:
            return
        self._is_starting = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        self._tasks.spawn(self._work())

    async def _work(self) -> None:
        """Send the waiting transmissions, one after the other; the next task takes over when the node lets one wait."""
        while True:
            self._is_starting = False
            while self._waiting:
                publication = self._waiting.popleft()
                self._start()
                result = await self._send(publication)
                self.refusal = "" if result.accepted else result.detail
                self._unanswered -= 1
                self._waiters.wake()
                self._answered(publication, result)
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

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
