"""`MemoryMessageStore`: keeps Waku messages, and returns pages of them by time or by message hash (13/WAKU2-STORE).

Messages are ordered by (timestamp, message hash), as in nwaku. A page is a run of this order, oldest first; its cursor
is the message hash at its end. A page has at most 100 messages, and ends early at `PAGE_BYTES`, so that an answer fits
into one frame. The store is bounded by count and by bytes, and drops the oldest messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final

from fairway.errors import StoreQueryError
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.storage.archive import ArchivedId

MAX_PAGE_SIZE: Final = 100
"""Most messages in a page; other implementations have the same limit."""
PAGE_BYTES: Final = 1_048_576
"""Encoded bytes after which a page ends; the message that exceeds this is its last."""

_Key = tuple[int, bytes]

Visible = Callable[[bytes], bool]
"""Returns whether the asking node may see the message with this hash."""


def page_size(query: StoreQuery) -> int:
    """Return how many messages a page of the answer may have."""
    return min(max(1, query.page_size), MAX_PAGE_SIZE)


def unknown_cursor(cursor: bytes) -> StoreQueryError:
    """Return the error for an unknown cursor; its message may have been dropped."""
    return StoreQueryError(f"cursor not found: the store has no message {cursor.hex()}; ask again without a cursor")


class MemoryMessageStore:
    """Keeps the newest messages in memory.

    The cost of a query does not depend on the number of messages that do not match it.
    """

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: dict[bytes, tuple[int, RoutedMessage]] = {}
        self._order: list[_Key] = []
        # By pubsub topic, and within it by content topic; None means all topics.
        self._orders: dict[str, dict[str | None, list[_Key]]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[RoutedMessage]:
        """Yield all messages, oldest first."""
        return (self._messages[message_hash][1] for _, message_hash in tuple(self._order))

    def put(self, message: RoutedMessage, received_ns: int) -> bool:
        """Keep a message, and return whether it is kept and new; beyond the bounds the oldest ones are dropped.

        ``received_ns`` dates a message that has no timestamp of its own.
        """
        if message.message_hash in self._messages:
            return False
        timestamp_ns = message.message.timestamp_ns or received_ns
        self._messages[message.message_hash] = (timestamp_ns, message)
        key = (timestamp_ns, message.message_hash)
        insort(self._order, key)
        of_pubsub_topic = self._orders.setdefault(message.pubsub_topic, {})
        for topic in (None, message.message.content_topic):
            insort(of_pubsub_topic.setdefault(topic, []), key)
        self._bytes += len(message.encoded)
        excess = 0
        while self._bytes > self._max_bytes or len(self._messages) > self._max_messages:
            _, evicted = self._messages.pop(self._order[excess][1])
            self._bytes -= len(evicted.encoded)
            self._leave_orders(evicted)
            excess += 1
        del self._order[:excess]
        return message.message_hash in self._messages

    def page(self, query: StoreQuery, cursor: bytes | None, visible: Visible = lambda _: True) -> StorePage:
        """Return one page of the answer to a query; raise `StoreQueryError` for an unknown cursor."""
        found: list[RoutedMessage] = []
        size_bytes, more, most = 0, False, page_size(query)
        for message in self._matching(query, cursor):
            if not visible(message.message_hash):
                continue
            if len(found) >= most or size_bytes >= PAGE_BYTES:
                more = True
                break
            found.append(message)
            size_bytes += len(message.encoded)
        reached = found[-1].message_hash if more else None
        return StorePage(messages=tuple(reversed(found) if query.newest_first else found), cursor=reached)

    def newest_ids(self, start_ns: int, count: int) -> list[ArchivedId]:
        """Return the ids of the newest ``count`` messages dated ``start_ns`` or later, in order."""
        keys = self._order[max(bisect_left(self._order, (start_ns, b"")), len(self._order) - count) :]
        found = (self._messages[message_hash][1] for _, message_hash in keys)
        return [
            ArchivedId(*key, message.pubsub_topic, message.message.content_topic)
            for key, message in zip(keys, found, strict=True)
        ]

    def _leave_orders(self, message: RoutedMessage) -> None:
        """Remove the oldest message from the orders, where it is always the first."""
        of_pubsub_topic = self._orders[message.pubsub_topic]
        for topic in (None, message.message.content_topic):
            order = of_pubsub_topic[topic]
            del order[0]
            if not order:
                del of_pubsub_topic[topic]
        if not of_pubsub_topic:
            del self._orders[message.pubsub_topic]

    def _matching(self, query: StoreQuery, cursor: bytes | None) -> Iterable[RoutedMessage]:
        """Yield the messages that answer a query after its cursor, in its direction."""
        if cursor is not None and cursor not in self._messages:
            raise unknown_cursor(cursor)
        place = None if cursor is None else (self._messages[cursor][0], cursor)
        runs = [_run(order, query, place) for order in self._orders_of(query)]
        for _, message_hash in merge(*runs, reverse=query.newest_first):
            yield self._messages[message_hash][1]

    def _orders_of(self, query: StoreQuery) -> list[list[_Key]]:
        """Return the orders that hold exactly the messages with the topics of a query."""
        if query.message_hashes:
            wanted = {message_hash for message_hash in query.message_hashes if message_hash in self._messages}
            return [sorted((self._messages[message_hash][0], message_hash) for message_hash in wanted)]
        if not query.pubsub_topic and not query.content_topics:
            return [self._order]
        pubsub_topics = [query.pubsub_topic] if query.pubsub_topic else self._orders
        topics: Iterable[str | None] = dict.fromkeys(query.content_topics) or (None,)
        known = [self._orders[pubsub_topic] for pubsub_topic in pubsub_topics if pubsub_topic in self._orders]
        return [of_pubsub_topic[topic] for of_pubsub_topic in known for topic in topics if topic in of_pubsub_topic]


def _run(order: list[_Key], query: StoreQuery, place: _Key | None) -> Iterator[_Key]:
    """Yield the keys within the query's times and after ``place``, in the query's direction."""
    first, end = _range(order, query)
    if place is not None and query.newest_first:
        end = min(end, bisect_left(order, place))
    elif place is not None:
        first = max(first, bisect_right(order, place))
    places = range(end - 1, first - 1, -1) if query.newest_first else range(first, end)
    return (order[index] for index in places)


def _range(order: list[_Key], query: StoreQuery) -> tuple[int, int]:
    """Return the first and last index of the query's times; a query by hash has all."""
    first, end = 0, len(order)
    if not query.message_hashes:
        if query.start_ns is not None:
            first = bisect_left(order, (query.start_ns, b""))
        if query.end_ns is not None:
            end = bisect_left(order, (query.end_ns, b""))
    return first, end
