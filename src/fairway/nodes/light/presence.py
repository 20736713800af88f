"""`PresenceKeeper`: looks for sent messages in stores, and sends them again if no store has them.

WAKU-P2P-RELIABILITY, "Store-based reliability": light push confirms that a node accepted a message, a store that the
network has it. Each message is looked for at most ``presence_attempts`` times, with growing pauses; at most
``max_presence`` messages are watched. Ephemeral messages are not, because no store keeps them. No message waits for
what was asked about others, since service nodes refuse one that is some seconds old.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fairway.errors import StoreQueryError
from fairway.nodes.light.options import LightOptions
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.owned_tasks import OwnedTasks

_LOG: Final = logging.getLogger(__name__)
_MAX_HASHES: Final = 100
_TICK_S: Final = 0.5


@dataclass(slots=True)
class _Outstanding:
    message: RoutedMessage
    due_s: float
    """When it is looked for next; infinite meanwhile."""
    attempts: int = 0


class PresenceKeeper:
    """Watches the sent messages of one node while `run` runs."""

    def __init__(
        self,
        *,
        present: Callable[[tuple[bytes, ...]], Awaitable[frozenset[bytes]]],
        push: Callable[[RoutedMessage], Awaitable[SendResult]],
        options: LightOptions,
        clock: Callable[[], float],
        tasks: OwnedTasks,
    ) -> None:
        """``tasks`` are those of the node, in which it looks for messages."""
        self._present: Final = present
        self._push: Final = push
        self._options: Final = options
        self._clock: Final = clock
        self._tasks: Final = tasks
        self._outstanding: OrderedDict[bytes, _Outstanding] = OrderedDict()
        self.confirmed = 0
        """Messages that a store node has."""
        self.resent = 0
        """Times a message was sent again."""

    def __len__(self) -> int:
        """Return how many messages are watched."""
        return len(self._outstanding)

    def add(self, message: RoutedMessage) -> None:
        """Watch a message that a node accepted."""
        if message.message.ephemeral:
            return
        due_s = self._clock() + self._options.presence_first_s
        self._outstanding[message.message_hash] = _Outstanding(message, due_s)
        if len(self._outstanding) > self._options.max_presence:
            self._outstanding.popitem(last=False)

    async def run(self) -> None:
        """Look for messages, and send them again, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            if self._due():
                # In a task of its own: a store or a node that does not answer holds up no other message.
                self._tasks.spawn(self.look())

    async def look(self) -> None:
        """Query stores for messages that are due, and send missing ones again."""
        now_s = self._clock()
        due = self._due()
        if not due:
            return
        for digest in due:
            self._outstanding[digest].due_s = math.inf
        try:
            found = await self._present(tuple(due))
        except StoreQueryError as error:
            _LOG.debug("no store node answers whether sent messages arrived: %s", error)
            found = None
        again: list[RoutedMessage] = []
        for digest in due:
            outstanding = self._outstanding.get(digest)
            if outstanding is None:
                continue
            if found is not None and digest in found:
                del self._outstanding[digest]
                self.confirmed += 1
                continue
            outstanding.attempts += 1
            outstanding.due_s = now_s + self._options.presence_first_s * 2**outstanding.attempts
            if outstanding.attempts >= self._options.presence_attempts:
                del self._outstanding[digest]
            if found is not None:
                self.resent += 1
                again.append(outstanding.message)
        # At once: a node that does not answer would hold up each of them in turn.
        await asyncio.gather(*map(self._push, again))

    def _due(self) -> list[bytes]:
        """Return the hashes of messages to look for now."""
        now_s = self._clock()
        return [digest for digest, message in self._outstanding.items() if message.due_s <= now_s][:_MAX_HASHES]
