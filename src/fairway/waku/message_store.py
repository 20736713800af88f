"""What keeps Waku messages and gives pages of them, by time or by hash (13/WAKU2-STORE).

Invariant: messages have one order, (timestamp, hash), as in a nwaku node; a page is a run of it, oldest first, and the
cursor that leads on is the hash of the message at the end that was reached. A page has at most 100 messages and ends
early once it has `PAGE_BYTES`, so that an answer fits into one frame. What is kept in memory is bounded by count and
by bytes; beyond that the oldest messages give way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final

from fairway.errors import ConfigurationError, StoreQueryError
from fairway.waku.node import RoutedMessage, StorePage, StoreQuery

MAX_PAGE_SIZE: Final = 100
"""Most messages on a page, whatever the query asks for; node software has the same limit."""
PAGE_BYTES: Final = 1_048_576
"""Encoded bytes after which a page ends early; the message that crosses this still belongs to it."""

_Key = tuple[int, bytes]

Visible = Callable[[bytes], bool]
"""Whether who asks may see the message with this hash."""


class MessageStore(ABC):
    """Keeps messages and answers queries, at once; `fairway.service.archives.NodeArchive` does so for many askers."""

    @abstractmethod
    def put(self, message: RoutedMessage, received_ns: int) -> bool:
        """Keep a message that is not ephemeral, and return whether it is kept and, as far as is known, new.

        ``received_ns`` dates a message that has no timestamp of its own. Raises `StorageError` if it cannot be kept.
        """

    @abstractmethod
    def page(self, query: StoreQuery, cursor: bytes | None, visible: Visible) -> StorePage:
        """Return one page of the answer to a query, or raise `StoreQueryError`."""

    @abstractmethod
    def close(self) -> None:
        """Make durable what this store promises to keep. May be called twice."""


def page_size(query: StoreQuery) -> int:
    """Return how many messages a page of the answer may have."""
    return min(max(1, query.page_size), MAX_PAGE_SIZE)


def unknown_cursor(cursor: bytes) -> StoreQueryError:
    """Return the error for a cursor that leads nowhere, for instance because its message gave way to newer ones."""
    return StoreQueryError(f"the store has no message {cursor.hex()} to go on from; ask again without a cursor")


class MemoryStore(MessageStore):
    """Keeps messages in memory, the newest ones if there are too many.

    What a query costs does not depend on how many messages there are that it does not ask for.
    """

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        if max_messages < 1 or max_bytes < 1:
            raise ConfigurationError(
                f"a store needs room for at least 1 message and 1 byte, not {max_messages} and {max_bytes}"
            )
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: dict[bytes, tuple[int, RoutedMessage]] = {}
        self._order: list[_Key] = []
        # By pubsub topic, and within it by content topic; None stands for all of them.
        self._orders: dict[str, dict[str | None, list[_Key]]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: RoutedMessage, received_ns: int) -> bool:
        """Keep a message; the oldest ones give way if the bounds are crossed."""
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

    def page(self, query: StoreQuery, cursor: bytes | None, visible: Visible) -> StorePage:
        """Return one page of the answer to a query."""
        found: list[RoutedMessage] = []
        size_bytes, more = 0, False
        for message in self._matching(query, cursor):
            if not visible(message.message_hash):
                continue
            if len(found) >= page_size(query) or size_bytes >= PAGE_BYTES:
                more = True
                break
            found.append(message)
            size_bytes += len(message.encoded)
        reached = found[-1].message_hash if more else None
        return StorePage(messages=tuple(reversed(found) if query.newest_first else found), cursor=reached)

    def close(self) -> None:
        """Nothing is promised beyond the life of the process."""
        self._messages.clear()
        self._order.clear()
        self._orders.clear()
        self._bytes = 0

    def _leave_orders(self, message: RoutedMessage) -> None:
        """Take the oldest message out of the orders, each of which it is the first of."""
        of_pubsub_topic = self._orders[message.pubsub_topic]
        for topic in (None, message.message.content_topic):
            order = of_pubsub_topic[topic]
            del order[0]
            if not order:
                del of_pubsub_topic[topic]
        if not of_pubsub_topic:
            del self._orders[message.pubsub_topic]

    def _matching(self, query: StoreQuery, cursor: bytes | None) -> Iterable[RoutedMessage]:
        """Yield what answers a query behind its cursor, in the direction of the query."""
        if cursor is not None and cursor not in self._messages:
            raise unknown_cursor(cursor)
        place = None if cursor is None else (self._messages[cursor][0], cursor)
        runs = [_run(order, query, place) for order in self._orders_of(query)]
        for _, message_hash in merge(*runs, reverse=query.newest_first):
            yield self._messages[message_hash][1]

    def _orders_of(self, query: StoreQuery) -> list[list[_Key]]:
        """Return orders that together have what a query asks for, whatever its times, and nothing else."""
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
    """Yield the part of an order that lies within the query's times and behind a place, in the query's direction."""
    first, end = _range(order, query)
    if place is not None and query.newest_first:
        end = min(end, bisect_left(order, place))
    elif place is not None:
        first = max(first, bisect_right(order, place))
    places = range(end - 1, first - 1, -1) if query.newest_first else range(first, end)
    return (order[index] for index in places)


def _range(order: list[_Key], query: StoreQuery) -> tuple[int, int]:
    """Return where the query's times begin and end; a look-up by hash has none."""
    first, end = 0, len(order)
    if not query.message_hashes:
        if query.start_ns is not None:
            first = bisect_left(order, (query.start_ns, b""))
        if query.end_ns is not None:
            end = bisect_left(order, (query.end_ns, b""))
    return first, end
