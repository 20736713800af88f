"""Store queries: page after page, newest first, no more often than allowed.

The protocol says what it misses; this asks. A query by time goes backwards and stops after a page with which the
channel reached ground that it knows: a message of it with causal history came, and nothing that was cited is missing
(seed 000, "Query on connect": queries SHOULD stop when finding a message with causal history from the same channel, and
go on while all retrieved messages are from different channels). While something is missing it goes on as far as the
window reaches, because a page brings a hundred messages and a query by hash only those that were named.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from fairway.channel.clock import Clock
from fairway.errors import NetworkError
from fairway.events import Limit, LimitReached
from fairway.protocol.effects import QueryStore
from fairway.protocol.query_budget import QueryBudget
from fairway.waku.node import RoutedMessage, StoreQuery, WakuNode

_ANSWER_TIMEOUT_S: Final = 30.0
_MAX_PAGES: Final = 100_000
"""A store that never comes to an end is not asked for ever."""
_MAX_WAITING: Final = 1_000
_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 60.0


class Reading(Protocol):
    """What retrieval needs to know of the channel that it reads for."""

    @property
    def history_heard(self) -> int:
        """Messages of the channel with causal history that were received so far."""

    @property
    def has_gaps(self) -> bool:
        """Whether messages are known to be missing."""


class Retriever:
    """Asks the store for what the protocol misses, one query at a time."""

    def __init__(
        self,
        node: WakuNode,
        content_topic: str,
        pubsub_topic: str,
        budget: QueryBudget,
        clock: Clock,
        *,
        reading: Reading,
        found: Callable[[RoutedMessage], None],
        settled: Callable[[], Awaitable[None]],
        caught_up: Callable[[QueryStore], object],
        limited: Callable[[LimitReached], None],
    ) -> None:
        """``found`` takes each message, ``settled`` waits until all of them are processed."""
        self.queries = 0
        """Pages asked for."""
        self.failures = 0
        """Queries that the store did not answer."""
        self.retrieved = 0
        """Messages that came back, known ones included."""
        self._node = node
        self._content_topic = content_topic
        self._pubsub_topic = pubsub_topic
        self._budget = budget
        self._clock = clock
        self._reading = reading
        self._found = found
        self._settled = settled
        self._caught_up = caught_up
        self._limited = limited
        self._is_limited = False
        self._waiting: deque[QueryStore] = deque()
        self._arrived = asyncio.Event()
        self._reachable = asyncio.Event()
        """Set when a store node became reachable anew, for whoever pauses after a failure."""

    def put(self, query: QueryStore) -> None:
        """Ask something, after what waits already; a newer question about the time away replaces an older one."""
        if query.catch_up:
            self._waiting = deque(waiting for waiting in self._waiting if not waiting.catch_up)
            self._waiting.appendleft(query)
            self._reachable.set()
        elif query not in self._waiting and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(query)
        self._arrived.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            query = self._waiting.popleft()
            try:
                await self._ask(query)
            except (NetworkError, TimeoutError):
                self.failures += 1
                if query.catch_up and not any(waiting.catch_up for waiting in self._waiting):
                    # Of everything else the protocol keeps track itself, and asks again.
                    self._waiting.append(query)
                self._reachable.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(retry_s):
                        await self._reachable.wait()
                retry_s = _FIRST_RETRY_S if self._reachable.is_set() else min(_LAST_RETRY_S, 2 * retry_s)
            else:
                retry_s = _FIRST_RETRY_S
                if query.catch_up:
                    self._caught_up(query)

    async def _ask(self, query: QueryStore) -> None:
        by_time = not query.message_hashes
        question = StoreQuery(
            message_hashes=query.message_hashes,
            pubsub_topic=self._pubsub_topic if by_time else "",
            content_topics=(self._content_topic,) if by_time else (),
            start_ns=query.start_ns,
            end_ns=query.end_ns,
            newest_first=by_time,
        )
        cursor: bytes | None = None
        for _ in range(_MAX_PAGES):
            await self._permission()
            heard = self._reading.history_heard
            self.queries += 1
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                page = await self._node.query(question, cursor)
            for message in page.messages:
                self.retrieved += 1
                self._found(message)
            await self._settled()
            known = self._reading.history_heard > heard and not self._reading.has_gaps
            if page.cursor is None or page.cursor == cursor or (by_time and known):
                return
            cursor = page.cursor

    async def _permission(self) -> None:
        """Wait until another query is allowed (seed 000, "Resource exhaustion": frequency of store queries)."""
        now_ms = self._clock()
        at_ms = self._budget.next_at(now_ms)
        if at_ms > now_ms:
            if not self._is_limited:
                self._is_limited = True
                self._limited(LimitReached(limit=Limit.STORE_QUERIES, bound=self._budget.per_minute))
            await asyncio.sleep((at_ms - now_ms) / 1_000)
        else:
            self._is_limited = False
        self._budget.spend(self._clock())
