"""Asking a store for what is missing: for which messages, when, and how often at most.

RELIABLE-CHANNEL-API, "Missing message retrieval" and "Security/Privacy Considerations". `Retrieval` plans the queries,
and `QueryBudget` bounds how often a store is asked at all.

A hint names the WakuMessage, so that the first choice is a query by hash. A hint may be wrong, and js-waku's hints for
own messages nearly always are: after three vain tries, or without a hint, the question becomes "what was sent around
the time when it was noticed?". Questions about one message that were answered in vain are spaced ever further; how many
messages are asked about at once, and how often by time, is bounded. Where a store may not be asked as often as all
that takes, what was asked for least often goes first.
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
"""How far before it was noticed a missing message is looked for by time."""
_RANGE_EVERY_MS: Final = 60_000
_MAX_RANGE_DOUBLINGS: Final = 4
"""Anybody can invent messages that we miss, and each such question may be answered by all that was said for hours."""
_MINUTE_MS: Final = 60_000


class _Asked(NamedTuple):
    """What was asked about a message."""

    hint: bytes | None
    tries: int
    """Questions that were answered, and did not bring it."""
    at_ms: int
    """When to ask again."""


class Retrieval:
    """The schedule of store queries for missing messages."""

    def __init__(self, options: ReliableChannelOptions) -> None:
        self._frequency_ms = options.retrieve_frequency_ms
        self._asked: dict[str, _Asked] = {}
        self._next_range_at = 0
        self._ranges = 0
        self.at_ms: int | None = None
        """When to ask next; None while nothing is missing."""

    def plan(self, missing: Collection[MissingDependency], now_ms: int) -> None:
        """Begin to wait for the next round when something is missing, and cease when nothing is."""
        if not missing or not self._frequency_ms:
            self.at_ms = None
            self._ranges = 0
        elif self.at_ms is None:
            # Most gaps close by themselves a moment later: whatever is missing may just be late.
            self.at_ms = now_ms + self._frequency_ms

    def due(self, missing: Collection[MissingDependency], now_ms: int) -> list[QueryStore]:
        """Return the queries to make now, if a round is due, and plan the next one."""
        if self.at_ms is None or self.at_ms > now_ms:
            return []
        self.at_ms = now_ms + self._frequency_ms
        hashes: dict[bytes, int] = {}
        by_time: list[int] = []
        asked: dict[str, _Asked] = {}
        for message in missing:
            if message.blocked_on is not None:
                # It came, and could not be taken in before something else. Then it is asked for anew.
                continue
            message_id, hint, _ = message.entry
            known = self._asked.get(message_id)
            if known is not None and known.at_ms > now_ms and known.hint == hint:
                # Mostly so of many: anybody can invent messages that we miss.
                asked[message_id] = known
                continue
            if known is None or (known.hint is None and hint is not None):
                # A first hint is news, of which questions by time in vain say nothing.
                known = _Asked(hint, 0, now_ms)
            _, tries, at_ms = known
            if at_ms <= now_ms:
                at_ms = now_ms + self._frequency_ms
                if hint is not None:
                    hashes[hint] = min(tries, hashes.get(hint, tries))
                if hint is None or tries >= _TRIES_BEFORE_SPACING:
                    by_time.append(min(message.since_ms, now_ms))
                if hint is None:
                    # An answer by time does not say which of them it is about.
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
        """Note that a store answered a query by hash: what it did not bring is asked for less often from now on."""
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
    """How often a store may be asked: the queries of the last minute.

    Within any 60 seconds no more queries are made than allowed, and while there are fewer none waits.
    """

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
        # When a clock was set back, waits become a minute at most.
        return max(now_ms, min(self._spent[0], now_ms) + _MINUTE_MS)

    def spend(self, now_ms: int) -> None:
        """Note that a query is made now."""
        self._spent.append(now_ms)
