"""The store of a local network: what was published, by time or by hash, a page at a time (13/WAKU2-STORE).

Invariant: messages have one order, (timestamp, hash), as in a nwaku node; a page is a run of it, oldest first, and the
cursor that leads on is the hash of the message at the end that was reached. A page has at most 100 messages and ends
early once it has `PAGE_BYTES`, so that an answer fits into one frame. What is kept in memory is bounded by count and
by bytes; beyond that the oldest messages give way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
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
    """Keeps messages and answers queries."""

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
    """Keeps messages in memory, the newest ones if there are too many."""

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

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: RoutedMessage, received_ns: int) -> bool:
        """Keep a message; the oldest ones give way if the bounds are crossed."""
        if message.message_hash in self._messages:
            return False
        timestamp_ns = message.message.timestamp_ns or received_ns
        self._messages[message.message_hash] = (timestamp_ns, message)
        insort(self._order, (timestamp_ns, message.message_hash))
        self._bytes += len(message.encoded)
        excess = 0
        while self._bytes > self._max_bytes or len(self._messages) > self._max_messages:
            _, evicted = self._messages.pop(self._order[excess][1])
            self._bytes -= len(evicted.encoded)
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
        self._bytes = 0

    def _matching(self, query: StoreQuery, cursor: bytes | None) -> Iterable[RoutedMessage]:
        """Yield what answers a query behind its cursor, in the direction of the query."""
        order = self._order
        if query.message_hashes:
            wanted = {message_hash for message_hash in query.message_hashes if message_hash in self._messages}
            order = sorted((self._messages[message_hash][0], message_hash) for message_hash in wanted)
        first, end = _range(order, query)
        if cursor is not None:
            if cursor not in self._messages:
                raise unknown_cursor(cursor)
            place = (self._messages[cursor][0], cursor)
            if query.newest_first:
                end = min(end, bisect_left(order, place))
            else:
                first = max(first, bisect_right(order, place))
        places = range(end - 1, first - 1, -1) if query.newest_first else range(first, end)
        for index in places:
            _, message = self._messages[order[index][1]]
            if query.message_hashes or (
                (not query.pubsub_topic or message.pubsub_topic == query.pubsub_topic)
                and (not query.content_topics or message.message.content_topic in query.content_topics)
            ):
                yield message


def _range(order: list[_Key], query: StoreQuery) -> tuple[int, int]:
    """Return where the query's times begin and end; a look-up by hash has none."""
    first, end = 0, len(order)
    if not query.message_hashes:
        if query.start_ns is not None:
            first = bisect_left(order, (query.start_ns, b""))
        if query.end_ns is not None:
            end = bisect_left(order, (query.end_ns, b""))
    return first, end
