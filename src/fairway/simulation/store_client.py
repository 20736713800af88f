"""A participant's questions to the store under virtual time: one at a time, page after page.

It does what the live channel does (`fairway.channel.retrieving`): the time away is read oldest first, each page only
once the one before was taken in whole, with other questions in between; any other query by time goes backwards and
stops after a page with which the channel reached ground that it knows. A query for the time away that got no answer is
asked again. An answer that holds nothing looks like one that was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from fairway.protocol.effects import Effect, QueryStore
from fairway.protocol.query_budget import QueryBudget
from fairway.protocol.stack import Stack
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash

_PAGE: Final = 100
_FIRST_RETRY_MS: Final = 1_000
_LAST_RETRY_MS: Final = 60_000
_MAX_WAITING: Final = 1_000


class StoreClient:
    """What one life of a participant asks a store; it ends with that life."""

    def __init__(
        self,
        stack: Stack,
        *,
        ask: Callable[[QueryStore], Iterable[WakuMessage]],
        carry_out: Callable[[tuple[Effect, ...]], None],
        later: Callable[[int, Callable[[int], None]], None],
        hop_ms: Callable[[], int],
    ) -> None:
        """``later(delay_ms, action)`` does something after a while, with the time, if the participant still lives."""
        self._stack = stack
        self._ask = ask
        self._carry_out = carry_out
        self._later = later
        self._hop_ms = hop_ms
        self._budget = QueryBudget(stack.options.max_store_queries_per_minute)
        self._waiting: deque[QueryStore] = deque()
        options = stack.options
        self._pubsub_topic = autoshard(stack.content_topic, options.cluster_id, options.shard_count)
        self._busy = False
        self._retry_ms = _FIRST_RETRY_MS

    def put(self, query: QueryStore, now_ms: int) -> None:
        """Ask something, after what waits already; a newer question about the time away replaces an older one."""
        if query.catch_up:
            self._waiting = deque(waiting for waiting in self._waiting if not waiting.catch_up)
            self._waiting.appendleft(query)
        elif query not in self._waiting and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(query)
        if not self._busy:
            self._next(now_ms)

    def _next(self, now_ms: int) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            query = self._waiting.popleft()
            at_ms = self._budget.next_at(now_ms)
            self._budget.spend(at_ms)
            self._later(at_ms - now_ms + self._hop_ms(), lambda now: self._answered(query, now))

    def _answered(self, query: QueryStore, now_ms: int) -> None:
        found = list(self._ask(query))
        if not query.message_hashes and not query.catch_up:
            found.reverse()
        if found:
            self._read(query, found, now_ms)
        elif query.catch_up:
            # Of everything else the protocol keeps track itself, and asks again.
            self._ask_again(query)
        else:
            self._next(now_ms)

    def _read(self, query: QueryStore, found: list[WakuMessage], now_ms: int) -> None:
        """Take a page in, and go on with the next one if it is worth it."""
        stack = self._stack
        heard, page, rest = stack.history_heard, found[:_PAGE], found[_PAGE:]
        for message in page:
            self._carry_out(stack.receive(message, now_ms))
        if query.catch_up and page:
            if any(stack.was_turned_away(message_hash(self._pubsub_topic, message)) for message in page):
                self._ask_again(query)
                return
            query = replace(query, start_ns=max(query.start_ns or 0, page[-1].timestamp_ns or 0))
            self._carry_out(stack.catch_up_progressed(query.start_ns or 0, now_ms))
        self._retry_ms = _FIRST_RETRY_MS
        known = stack.history_heard > heard and not stack.has_gaps
        if query.catch_up and rest and self._waiting:
            self._go_on_later(query)
        elif page and (query.message_hashes or query.catch_up or not known):
            at_ms = self._budget.next_at(now_ms)
            self._budget.spend(at_ms)
            self._later(at_ms - now_ms + self._hop_ms(), lambda now: self._read(query, rest, now))
            return
        elif query.catch_up:
            self._carry_out(stack.caught_up(query.end_ns or 0, now_ms))
        self._next(now_ms)

    def _ask_again(self, query: QueryStore) -> None:
        """Go on after a pause with what was not answered, or could not be taken in."""
        self._go_on_later(query)
        self._later(self._retry_ms, self._next)
        self._retry_ms = min(_LAST_RETRY_MS, 2 * self._retry_ms)

    def _go_on_later(self, query: QueryStore) -> None:
        """Go on after what else waits, unless a newer question about the time away came."""
        if not any(waiting.catch_up for waiting in self._waiting):
            self._waiting.append(query)
