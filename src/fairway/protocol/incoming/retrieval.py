"""Store queries for missing messages: for which messages, when, and how often at most.

RELIABLE-CHANNEL-API, "Missing message retrieval" and "Security/Privacy Considerations". `Retrieval` plans the queries,
and `QueryBudget` bounds their rate.

Most missing messages are only late. So the first query for a message follows after the lateness that others had
(`fairway.protocol.network_times`). One query names all messages that are due. A query without an answer is repeated
after the time that answers take, with back-off. If a store answers without the message, the next query follows after
`_VAIN_MS`; this wait doubles each time. ``retrieve_frequency_ms`` replaces all of these times.

A retrieval hint is the hash of the WakuMessage, so a query by hash is preferred. A hint may be wrong; js-waku's hints
for own messages nearly always are. Without a hint, or after three unsuccessful queries by hash, `Retrieval` also plans
a query by time. It covers the hour before the message was noticed to be missing, and everything since. The number of
hashes in a query and the rate of queries by time are bounded. If the budget is exhausted, the messages that were
requested least often have priority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import groupby
from typing import Final, NamedTuple

from fairway.errors import ConfigurationError
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.protocol.network_times import NetworkTimes
from fairway.protocol.sds.incoming_buffer import MissingDependency
from fairway.units import NS_PER_MS

MAX_HASHES_PER_QUERY: Final = 50
"""Message hashes in one store query."""
_TRIES_BY_HASH: Final = 3
"""Answered queries by hash before a query by time."""
_VAIN_MS: Final = 1_000
"""Wait after the first answer without the message; a store may get it later."""
_LONGEST_VAIN_MS: Final = 160_000
_LONGEST_ROUND_MS: Final = 10_000
"""Longest interval between two looks at the missing messages, wait before a query by time, and longest pause after
queries without an answer."""
_PATIENCE: Final = 4
"""Times that answers take after which an answer counts as lost."""
_LEAST_PATIENCE_MS: Final = 2_000
_LONGEST_PATIENCE_MS: Final = 30_000
_MAX_DOUBLINGS: Final = 20
_UNREPORTED_MS: Final = 60_000
"""Time after which a query is repeated whose end was not reported."""
_RANGE_BEFORE_MS: Final = 3_600_000
"""Time before a message was noticed to be missing that a query by time covers."""
_RANGE_EVERY_MS: Final = 60_000
_MAX_RANGE_DOUBLINGS: Final = 4
"""Doublings of the interval between queries by time at most. A participant can cite messages that do not exist, and
each answer by time may contain all messages of several hours."""
_MINUTE_MS: Final = 60_000


class _Asked(NamedTuple):
    """The queries for a missing message."""

    hint: bytes | None
    tries: int
    """Answered queries that did not return it."""
    at_ms: int
    """When to query again."""


class Retrieval:
    """The schedule of store queries for missing messages."""

    def __init__(self, options: ReliableChannelOptions, times: NetworkTimes) -> None:
        self._fixed_ms = options.retrieve_frequency_ms
        """Interval of the queries; None if it follows ``times``, 0 without queries."""
        self._times = times
        self._budget = QueryBudget(options.advanced.max_store_queries_per_minute)
        self._asked: dict[str, _Asked] = {}
        self._noticed = 0
        self._not_before_ms = 0
        """End of the pause after queries without an answer."""
        self._failures = 0
        """Consecutive queries without an answer."""
        self._next_range_at = 0
        self._ranges = 0
        self.at_ms: int | None = None
        """When the next round is due; None while no message is missing."""

    def plan(self, missing: Collection[str], noticed: int, now_ms: int) -> None:
        """Schedule a round if a message is missing, and cancel it if none is.

        ``noticed`` is `IncomingBuffer.noticed`; if it changed, the round is soon.
        """
        if not missing or self._fixed_ms == 0:
            self.at_ms = None
            self._ranges = 0
        elif self.at_ms is None or noticed != self._noticed:
            self._look_at(now_ms + self._first_wait_ms)
        self._noticed = noticed

    def due(self, missing: Collection[MissingDependency], now_ms: int) -> list[QueryStore]:
        """Return the queries of a due round, and schedule the next one."""
        if self.at_ms is None or self.at_ms > now_ms:
            return []
        not_before_ms = max(self._not_before_ms, self._budget.paced_at(now_ms))
        if not_before_ms > now_ms:
            self.at_ms = not_before_ms
            return []
        hashes: dict[bytes, int] = {}
        by_time: list[int] = []
        asked: dict[str, _Asked] = {}
        self.at_ms = now_ms + (self._fixed_ms or _LONGEST_ROUND_MS)
        for message in missing:
            if message.blocked_on is not None:
                # It was refused and is requested again once the message that it waits for arrived.
                continue
            message_id, hint, _ = message.entry
            since_ms = min(message.since_ms, now_ms)
            known = self._asked.get(message_id)
            if known is None:
                known = _Asked(hint, 0, since_ms + (self._first_wait_ms if hint else self._range_wait_ms))
            elif known.hint is None and hint is not None:
                # Unsuccessful queries by time do not count against a new hint.
                known = _Asked(hint, 0, now_ms)
            _, tries, at_ms = known
            if at_ms <= now_ms:
                at_ms = now_ms + _UNREPORTED_MS
                if hint is not None:
                    hashes[hint] = min(tries, hashes.get(hint, tries))
                if since_ms + self._range_wait_ms <= now_ms and (hint is None or tries >= _TRIES_BY_HASH):
                    by_time.append(since_ms)
                if hint is None:
                    # An answer to a query by time names no message, so the query itself counts as a try.
                    tries, at_ms = tries + 1, now_ms + self._spacing(tries + 1, self._range_wait_ms)
            asked[message_id] = _Asked(hint, tries, at_ms)
            self._look_at(at_ms)
        self._asked = asked
        queries = [
            QueryStore(message_hashes=alike[start : start + MAX_HASHES_PER_QUERY], tries=tries)
            for tries, group in groupby(sorted(hashes, key=hashes.__getitem__), key=hashes.__getitem__)
            for alike in (tuple(group),)
            for start in range(0, len(alike), MAX_HASHES_PER_QUERY)
        ]
        # The channel joins the hashes of these queries.
        spent = -(-len(hashes) // MAX_HASHES_PER_QUERY)
        if by_time and now_ms >= self._next_range_at:
            self._next_range_at = now_ms + self._range_spacing
            self._ranges += 1
            start_ms = min(by_time) - _RANGE_BEFORE_MS
            queries.append(QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS))
            spent += 1
        for _ in range(spent):
            self._budget.spend(now_ms)
        return queries

    def answered(self, query: QueryStore, now_ms: int) -> None:
        """Note that a store answered a query by hash: messages that are still missing are queried less often."""
        self._failures = 0
        self._plan_again(query, now_ms, is_answered=True)

    def unanswered(self, query: QueryStore, now_ms: int) -> None:
        """Note that no store answered a query by hash: it is repeated after a pause, and all others wait for that."""
        self._failures += 1
        # The pauses do not double: with random losses a lost answer says little about the next one.
        pause_ms = self._fixed_ms or min(self._times.answer_ms * self._failures, _LONGEST_ROUND_MS)
        self._not_before_ms = now_ms + pause_ms
        self._plan_again(query, now_ms + pause_ms, is_answered=False)

    def store_connected(self, now_ms: int) -> None:
        """End the pause after queries without an answer, because another store may answer."""
        self._failures, self._not_before_ms = 0, 0
        for message_id, (hint, tries, _) in self._asked.items():
            if not tries:
                self._asked[message_id] = _Asked(hint, tries, now_ms)
        if self.at_ms is not None:
            self.at_ms = now_ms

    @property
    def patience_ms(self) -> int:
        """Longest wait for the answer to a query by hash."""
        if self._fixed_ms:
            return _LONGEST_PATIENCE_MS
        usual_ms = max(_LEAST_PATIENCE_MS, _PATIENCE * self._times.answer_ms)
        return min(usual_ms << min(self._failures, _MAX_DOUBLINGS), _LONGEST_PATIENCE_MS)

    def _plan_again(self, query: QueryStore, now_ms: int, *, is_answered: bool) -> None:
        hashes = frozenset(query.message_hashes)
        for message_id, (hint, tries, _) in self._asked.items():
            if hint in hashes:
                at_ms = now_ms + (self._spacing(tries + 1, self._fixed_ms or _VAIN_MS) if is_answered else 0)
                self._asked[message_id] = _Asked(hint, tries + is_answered, at_ms)
                self._look_at(at_ms)

    def _look_at(self, at_ms: int) -> None:
        self.at_ms = at_ms if self.at_ms is None else min(self.at_ms, at_ms)

    @property
    def _first_wait_ms(self) -> int:
        """Wait before the first query by hash."""
        return self._fixed_ms or self._times.reordering_ms

    @property
    def _range_wait_ms(self) -> int:
        """Wait before the first query by time, which costs more than one by hash and finds several messages."""
        return self._fixed_ms or _LONGEST_ROUND_MS

    @property
    def _range_spacing(self) -> int:
        return _RANGE_EVERY_MS << min(self._ranges, _MAX_RANGE_DOUBLINGS)

    def _spacing(self, tries: int, first_ms: int) -> int:
        return max(first_ms, min(first_ms << min(tries - 1, _MAX_DOUBLINGS), _LONGEST_VAIN_MS))


class QueryBudget:
    """Limits store queries to a number within any 60 seconds; a query waits only at that limit."""

    def __init__(self, per_minute: int) -> None:
        """Begin with nothing spent; ``per_minute`` is at least 1."""
        if per_minute < 1:
            raise ConfigurationError(f"per_minute must be at least 1, not {per_minute}")
        self.per_minute = per_minute
        self._spent: deque[int] = deque(maxlen=per_minute)

    def next_at(self, now_ms: int) -> int:
        """Return when the next query may be made, in milliseconds since the Unix epoch; ``now_ms`` if at once."""
        if len(self._spent) < self.per_minute:
            return now_ms
        # If the clock was set back, a query still waits at most a minute.
        return max(now_ms, min(self._spent[0], now_ms) + _MINUTE_MS)

    def paced_at(self, now_ms: int) -> int:
        """Return when to make the next query, so that the rest of the minute's queries is not used up at once.

        The wait after a query grows with the used share of the minute's queries.
        """
        used = sum(now_ms - _MINUTE_MS < at_ms <= now_ms for at_ms in self._spent)
        if used >= self.per_minute:
            return self.next_at(now_ms)
        wait_ms = _MINUTE_MS * used**2 // (self.per_minute**2 * (self.per_minute - used))
        return max(now_ms, min(self._spent[-1], now_ms) + wait_ms) if used else now_ms

    def spend(self, now_ms: int) -> None:
        """Note that a query is made now."""
        self._spent.append(now_ms)
