"""Store queries for missing messages: for which messages, when, and how often at most.

RELIABLE-CHANNEL-API, "Missing message retrieval" and "Security/Privacy Considerations". `Retrieval` plans the queries,
and `QueryBudget` bounds their rate.

A retrieval hint is the hash of the WakuMessage, so a query by hash is preferred. A hint may be wrong; js-waku's hints
for own messages nearly always are. Without a hint, or after three unsuccessful queries by hash, `Retrieval` also plans
a query by time. It covers the hour before the message was noticed to be missing, and everything since. The interval
between queries for a message grows after each unsuccessful one. The number of hashes in a query and the rate of queries
by time are bounded. If the budget is exhausted, the messages that were requested least often have priority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import groupby
from typing import Final, NamedTuple

from fairway.errors import ConfigurationError
from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.protocol.sds.incoming_buffer import MissingDependency
from fairway.units import NS_PER_MS

MAX_HASHES_PER_QUERY: Final = 50
"""Message hashes in one store query."""
_TRIES_BEFORE_SPACING: Final = 3
_MAX_DOUBLINGS: Final = 4
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

    def __init__(self, options: ReliableChannelOptions) -> None:
        self._frequency_ms = options.retrieve_frequency_ms
        self._asked: dict[str, _Asked] = {}
        self._next_range_at = 0
        self._ranges = 0
        self.at_ms: int | None = None
        """When the next round is due; None while no message is missing."""

    def plan(self, missing: Collection[MissingDependency], now_ms: int) -> None:
        """Schedule a round if a message is missing, and cancel it if none is."""
        if not missing or not self._frequency_ms:
            self.at_ms = None
            self._ranges = 0
        elif self.at_ms is None:
            # Most missing messages are only late and arrive without a query.
            self.at_ms = now_ms + self._frequency_ms

    def due(self, missing: Collection[MissingDependency], now_ms: int) -> list[QueryStore]:
        """Return the queries of a due round, and schedule the next one."""
        if self.at_ms is None or self.at_ms > now_ms:
            return []
        self.at_ms = now_ms + self._frequency_ms
        hashes: dict[bytes, int] = {}
        by_time: list[int] = []
        asked: dict[str, _Asked] = {}
        for message in missing:
            if message.blocked_on is not None:
                # It was refused and is requested again once the message that it waits for arrived.
                continue
            message_id, hint, _ = message.entry
            known = self._asked.get(message_id)
            if known is not None and known.at_ms > now_ms and known.hint == hint:
                # The fast path, for many missing messages that do not exist.
                asked[message_id] = known
                continue
            if known is None or (known.hint is None and hint is not None):
                # Unsuccessful queries by time do not count against a new hint.
                known = _Asked(hint, 0, now_ms)
            _, tries, at_ms = known
            if at_ms <= now_ms:
                at_ms = now_ms + self._frequency_ms
                if hint is not None:
                    hashes[hint] = min(tries, hashes.get(hint, tries))
                if hint is None or tries >= _TRIES_BEFORE_SPACING:
                    by_time.append(min(message.since_ms, now_ms))
                if hint is None:
                    # An answer to a query by time names no message, so the query itself counts as a try.
                    tries, at_ms = tries + 1, now_ms + self._spacing(tries + 1)
            asked[message_id] = _Asked(hint, tries, at_ms)
        self._asked = asked
        queries = [
            QueryStore(message_hashes=alike[start : start + MAX_HASHES_PER_QUERY], tries=tries)
            for tries, group in groupby(sorted(hashes, key=hashes.__getitem__), key=hashes.__getitem__)
            for alike in (tuple(group),)
            for start in range(0, len(alike), MAX_HASHES_PER_QUERY)
        ]
        if by_time and now_ms >= self._next_range_at:
            self._next_range_at = now_ms + self._range_spacing
            self._ranges += 1
            start_ms = min(by_time) - _RANGE_BEFORE_MS
            queries.append(QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS))
        return queries

    def answered(self, query: QueryStore, now_ms: int) -> None:
        """Note that a store answered a query by hash: messages that are still missing are queried less often."""
        hashes = frozenset(query.message_hashes)
        for message_id, (hint, tries, at_ms) in self._asked.items():
            if hint in hashes:
                self._asked[message_id] = _Asked(hint, tries + 1, max(at_ms, now_ms + self._spacing(tries + 1)))

    @property
    def _range_spacing(self) -> int:
        return _RANGE_EVERY_MS << min(self._ranges, _MAX_RANGE_DOUBLINGS)

    def _spacing(self, tries: int) -> int:
        return self._frequency_ms << min(max(0, tries - _TRIES_BEFORE_SPACING), _MAX_DOUBLINGS)


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

    def spend(self, now_ms: int) -> None:
        """Note that a query is made now."""
        self._spent.append(now_ms)
