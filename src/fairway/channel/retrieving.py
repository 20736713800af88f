"""Store queries: page after page, no more often than allowed.

The protocol says what it misses; this asks. The time away is read oldest first (`fairway.protocol.time_away`), each
page only once the one before was taken in whole: while there is no room for what it brought, it is asked for again.
Whatever else is to be asked goes between its pages, for that may be what makes room.

A query by time for what is missing goes backwards and stops after a page with which the channel reached ground that it
knows: a message of it with causal history came, and nothing that was cited is missing. While something is missing it
goes on as far as the window reaches, because a page brings a hundred messages and a query by hash only those named.

Invariant: nothing is taken in that was not asked for, or under a hash that is not its own: a store is not trusted.
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
from fairway.protocol.time_away import PageRead, Step, TimeAway
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery, WakuNode

_NS_PER_MS: Final = 1_000_000
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

    def was_turned_away(self, message_hash: bytes) -> bool:
        """Return whether a message was not taken in for want of room."""

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
        progressed: Callable[[int], object],
        caught_up: Callable[[QueryStore], object],
        limited: Callable[[LimitReached], None],
    ) -> None:
        """``found`` takes each message, ``settled`` waits until all of them are processed.

        ``progressed`` takes a time in nanoseconds up to which the time away was read.
        """
        self.queries = 0
        """Pages asked for."""
        self.failures = 0
        """Queries that the store did not answer."""
        self.retrieved = 0
        """Messages that came back, known ones included."""
        self.mismatches = 0
        """Messages that came back and were not asked for, or not what their hash is of."""
        self._node = node
        self._content_topic = content_topic
        self._pubsub_topic = pubsub_topic
        self._budget = budget
        self._clock = clock
        self._reading = reading
        self._found = found
        self._settled = settled
        self._progressed = progressed
        self._caught_up = caught_up
        self._limited = limited
        self._is_limited = False
        self._waiting: deque[QueryStore | TimeAway] = deque()
        self._arrived = asyncio.Event()
        self._reachable = asyncio.Event()
        """Set when a store node became reachable anew, for whoever pauses after a failure."""

    def put(self, query: QueryStore) -> None:
        """Ask something, after what waits already; a newer question about the time away replaces an older one."""
        if query.catch_up:
            self._waiting = deque(waiting for waiting in self._waiting if not isinstance(waiting, TimeAway))
            self._waiting.appendleft(TimeAway(query))
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
            step, got_on = Step.AGAIN, False
            try:
                if isinstance(query, TimeAway):
                    before_ns = query.start_ns
                    step = await self._catch_up(query)
                    got_on = step is Step.DONE or query.start_ns > before_ns
                else:
                    await self._ask(query)
                    step, got_on = Step.DONE, True
            except (NetworkError, TimeoutError):
                self.failures += 1
                if isinstance(query, TimeAway):
                    # Of everything else the protocol keeps track itself, and asks again.
                    query.failed()
                    self._go_on_later(query)
            if got_on:
                retry_s = _FIRST_RETRY_S
            if step is not Step.AGAIN:
                continue
            self._reachable.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._reachable.wait()
            retry_s = _FIRST_RETRY_S if self._reachable.is_set() else min(_LAST_RETRY_S, 2 * retry_s)

    async def _catch_up(self, reading: TimeAway) -> Step:
        """Read one page of the time away, and return what to do next."""
        question = StoreQuery(
            pubsub_topic=self._pubsub_topic,
            content_topics=(self._content_topic,),
            start_ns=reading.start_ns,
            end_ns=reading.end_ns,
        )
        before_ns = reading.start_ns
        page, is_doubtful = await self._page(question, reading.cursor)
        read = PageRead(
            found=[(message.message.timestamp_ns or 0, message.message_hash) for message in page.messages],
            cursor=page.cursor,
            is_doubtful=is_doubtful,
            was_taken_in=not any(self._reading.was_turned_away(message.message_hash) for message in page.messages),
        )
        step = reading.take(read, self._clock() * _NS_PER_MS)
        if step is Step.DONE:
            self._caught_up(reading.query)
            return step
        if reading.start_ns > before_ns:
            self._progressed(reading.start_ns)
        self._go_on_later(reading)
        return step

    def _go_on_later(self, reading: TimeAway) -> None:
        """Go on with the time away after what else waits, unless a newer question about it came."""
        if not any(isinstance(waiting, TimeAway) for waiting in self._waiting):
            self._waiting.append(reading)

    async def _page(self, question: StoreQuery, cursor: bytes | None) -> tuple[StorePage, bool]:
        """Ask for a page, when that is allowed, and take in what it brings.

        Return it without what does not belong there, and whether there was such a thing.
        """
        await self._permission()
        self.queries += 1
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            page = await self._node.query(question, cursor)
        messages = tuple(message for message in page.messages if _belongs(message, question))
        mismatches = len(page.messages) - len(messages)
        self.mismatches += mismatches
        for message in messages:
            self.retrieved += 1
            self._found(message)
        await self._settled()
        return StorePage(messages=messages, cursor=page.cursor), mismatches > 0

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
        followed: set[bytes | None] = {None}
        cursor: bytes | None = None
        while len(followed) < _MAX_PAGES:
            heard = self._reading.history_heard
            page, _ = await self._page(question, cursor)
            known = self._reading.history_heard > heard and not self._reading.has_gaps
            if page.cursor in followed or (by_time and known):
                return
            cursor = page.cursor
            followed.add(cursor)

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


def _belongs(message: RoutedMessage, question: StoreQuery) -> bool:
    """Return whether a message is one that was asked for, and is what its hash is of."""
    if question.message_hashes:
        asked_for = message.message_hash in question.message_hashes
    else:
        timestamp_ns = message.message.timestamp_ns
        asked_for = (
            message.pubsub_topic == question.pubsub_topic
            and message.message.content_topic in question.content_topics
            # One without a timestamp a store dates by when it came.
            and (not timestamp_ns or question.start_ns is None or timestamp_ns >= question.start_ns)
            and (not timestamp_ns or question.end_ns is None or timestamp_ns < question.end_ns)
        )
    return asked_for and message.is_genuine
