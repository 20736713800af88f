"""`SentConfirmation`: looks in stores for messages that service nodes accepted.

WAKU-P2P-RELIABILITY, "Store-based reliability": light push confirms that a node accepted a message, a store that the
network has it. A message that no store has is pushed once more at once, through other nodes first. If no store has it
afterwards either, `SendResult.stored` becomes False, and the sender of the message decides whether it retransmits.
Ephemeral messages are not looked for, because no store keeps them. At most `MAX_WATCHED` messages are watched.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fairway.environment import monotonic_s
from fairway.errors import StoreQueryError
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.owned_tasks import OwnedTasks

MAX_WATCHED: Final = 1_000
"""Messages that are watched at once; for further ones the oldest are dropped."""
CONFIRM_AFTER_S: Final = 1.5
"""Time from sending a message to the first store query for it; the second one follows after twice that time."""
_LOG: Final = logging.getLogger(__name__)
_MAX_HASHES: Final = 100
"""Messages in one store query."""
_TICK_S: Final = 0.5


@dataclass(slots=True)
class _Watched:
    message: RoutedMessage
    due_s: float
    """Time of the next store query; infinite while a query is under way."""
    stored: asyncio.Future[bool | None]
    is_second: bool = False
    """Whether the next query is the second one, which is the last."""


class SentConfirmation:
    """Watches the sent messages of one node while `run` runs."""

    def __init__(
        self,
        present: Callable[[tuple[bytes, ...]], Awaitable[frozenset[bytes]]],
        push: Callable[[RoutedMessage], Awaitable[SendResult]],
        tasks: OwnedTasks,
    ) -> None:
        """``present`` returns which hashes a store has; ``tasks`` are those of the node, for queries and pushes."""
        self._present: Final = present
        self._push: Final = push
        self._tasks: Final = tasks
        self._watched: OrderedDict[bytes, _Watched] = OrderedDict()
        self.confirmed = 0
        """Messages that a store has."""
        self.resent = 0
        """Messages that were pushed once more."""

    def watch(self, message: RoutedMessage) -> asyncio.Future[bool | None]:
        """Watch a message that a node accepted, and return the future for `SendResult.stored`."""
        stored: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._end(message.message_hash, None)
        self._watched[message.message_hash] = _Watched(message, monotonic_s() + CONFIRM_AFTER_S, stored)
        if len(self._watched) > MAX_WATCHED:
            self._end(next(iter(self._watched)), None)
        return stored

    async def run(self) -> None:
        """Query stores for messages that are due, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = monotonic_s()
            due = [watched for watched in self._watched.values() if watched.due_s <= now_s][:_MAX_HASHES]
            if due:
                # Each query has its own task: a silent store delays no other message.
                self._tasks.spawn(self._look(due))

    def close(self) -> None:
        """Stop to watch all messages. Can be called twice."""
        for message_hash in list(self._watched):
            self._end(message_hash, None)

    async def _look(self, due: list[_Watched]) -> None:
        for watched in due:
            watched.due_s = math.inf
        try:
            found: frozenset[bytes] | None = await self._present(tuple(each.message.message_hash for each in due))
        except StoreQueryError as error:
            _LOG.debug("no store node answers whether sent messages arrived: %s", error)
            found = None
        for watched in due:
            message_hash = watched.message.message_hash
            if self._watched.get(message_hash) is not watched:
                continue
            if found is not None and message_hash in found:
                self.confirmed += 1
                self._end(message_hash, True)
            elif watched.is_second:
                self._end(message_hash, None if found is None else False)
            else:
                watched.is_second, watched.due_s = True, monotonic_s() + 2 * CONFIRM_AFTER_S
                if found is not None:
                    self.resent += 1
                    self._tasks.spawn(self._push_again(watched.message))

    async def _push_again(self, message: RoutedMessage) -> None:
        await self._push(message)

    def _end(self, message_hash: bytes, stored: bool | None) -> None:
        watched = self._watched.pop(message_hash, None)
        if watched is not None and not watched.stored.done():
            watched.stored.set_result(stored)
