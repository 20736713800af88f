"""The caches of REST clients: `RestMessageCache`, `ReceivedMessages` and `SendEvents`. Pure.

`RestMessageCache` holds the messages for ``GET /relay/...`` and ``GET /filter/...`` as nwaku does
(``waku/rest_api/message_cache.nim``): one list for all topics (50 by default). When it is full, a new message replaces
the one with the oldest timestamp. A fetch removes the messages of a topic for all clients. A content topic is
subscribed to on one or more pubsub topics.

The other two hold the events for ``/messaging/v1/events`` (logos-delivery, ``messaging/rest_api`` and
``docs/api/rest-api.md``). A fetch removes them for all clients. Beyond a bound the oldest are evicted, and the next
answer has their number.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal

from msgspec import UNSET

from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest.shapes import ReceivedRecord, SendEvent, SendStatus, hex_of, relay_shape

MAX_SEND_REQUESTS: Final = 10_000
"""Sends whose events wait to be fetched."""
SendKind = Literal["propagated", "sent", "error"]


class RestMessageCache:
    """At most ``max_messages`` messages, of at most ``max_topics`` pubsub topics and as many content topics."""

    def __init__(self, *, max_messages: int, max_topics: int, pubsub_topics: Iterable[str] = ()) -> None:
        self._max_messages: Final = max_messages
        self._max_topics: Final = max_topics
        self._pubsub_topics = set(pubsub_topics)
        self._content_topics: dict[str, frozenset[str]] = {}
        self._messages: dict[bytes, RoutedMessage] = {}
        self._order: list[tuple[int, bytes]] = []
        """The timestamp and hash of each message, in order."""
        self.overflowed = 0
        """Messages that were replaced before a client fetched them."""

    def __len__(self) -> int:
        return len(self._messages)

    def wants(self, message: RoutedMessage) -> bool:
        """Return whether a message belongs to a subscribed topic."""
        return message.pubsub_topic in self._pubsub_topics or message.pubsub_topic in self._content_topics.get(
            message.message.content_topic, ()
        )

    def add(self, message: RoutedMessage) -> None:
        """Add a message of a subscribed topic; ignore others, and a known one."""
        if message.message_hash in self._messages or not self.wants(message):
            return
        if len(self._messages) >= self._max_messages:
            del self._messages[self._order.pop(0)[1]]
            self.overflowed += 1
        self._messages[message.message_hash] = message
        insort(self._order, _place(message))

    def subscribe_pubsub(self, topics: Iterable[str]) -> bool:
        """Subscribe to pubsub topics; return False, and change nothing, if there would be too many."""
        more = self._pubsub_topics.union(topics)
        fits = len(more) <= self._max_topics
        if fits:
            self._pubsub_topics = more
        return fits

    def subscribe_content(self, topics: dict[str, str]) -> bool:
        """Subscribe to content topics, each on its pubsub topic; return False, and change nothing, if too many."""
        held = self._content_topics
        more = held | {topic: held.get(topic, frozenset()) | {shard} for topic, shard in topics.items()}
        fits = sum(map(len, more.values())) <= self._max_topics
        if fits:
            self._content_topics = more
        return fits

    def unsubscribe_pubsub(self, topics: Iterable[str]) -> None:
        """Unsubscribe from pubsub topics, and remove their messages."""
        self._pubsub_topics.difference_update(topics)
        self._drop_unwanted()

    def unsubscribe_content(self, topics: Iterable[str], pubsub_topic: str | None = None) -> bool:
        """Unsubscribe from content topics, and remove their messages; return whether any was subscribed to.

        Without ``pubsub_topic`` from those of all pubsub topics.
        """
        found = False
        for topic in topics:
            shards = self._content_topics.get(topic, frozenset())
            left = frozenset() if pubsub_topic is None else shards - {pubsub_topic}
            if left:
                self._content_topics[topic] = left
            else:
                self._content_topics.pop(topic, None)
            found = found or left != shards
        self._drop_unwanted()
        return found

    def unsubscribe_all_content(self) -> bool:
        """Unsubscribe from all content topics; return whether there was one."""
        return self.unsubscribe_content(list(self._content_topics))

    def shards(self) -> frozenset[str]:
        """Return the pubsub topics of all subscriptions."""
        return frozenset().union(self._pubsub_topics, *self._content_topics.values())

    def has_shard(self, pubsub_topic: str) -> bool:
        """Return whether a subscription is on a pubsub topic."""
        return pubsub_topic in self._pubsub_topics or any(
            pubsub_topic in shards for shards in self._content_topics.values()
        )

    def content_topics(self) -> tuple[str, ...]:
        """Return the subscribed content topics."""
        return tuple(self._content_topics)

    def take_pubsub(self, topic: str) -> list[RoutedMessage] | None:
        """Return and remove the messages of a pubsub topic; None if it is not subscribed to."""
        if topic not in self._pubsub_topics:
            return None
        return self._take(lambda message: message.pubsub_topic == topic)

    def take_content(self, topic: str, pubsub_topic: str | None = None) -> list[RoutedMessage] | None:
        """Return and remove the messages of a content topic; None if it is not subscribed to.

        With ``pubsub_topic`` only those on this one.
        """
        if pubsub_topic is None:
            return self._take(lambda one: one.message.content_topic == topic) if topic in self._content_topics else None
        if pubsub_topic not in self._content_topics.get(topic, ()):
            return None
        return self._take(lambda one: (one.pubsub_topic, one.message.content_topic) == (pubsub_topic, topic))

    def _take(self, chosen: Callable[[RoutedMessage], bool]) -> list[RoutedMessage]:
        taken = [message for message in self._messages.values() if chosen(message)]
        for message in taken:
            del self._messages[message.message_hash]
        self._order = sorted(map(_place, self._messages.values()))
        return taken

    def _drop_unwanted(self) -> None:
        self._take(lambda message: not self.wants(message))


def _place(message: RoutedMessage) -> tuple[int, bytes]:
    return message.message.timestamp_ns or 0, message.message_hash


class ReceivedMessages:
    """The newest messages of the subscribed content topics."""

    def __init__(self, *, max_messages: int, max_topics: int) -> None:
        self._max_messages: Final = max_messages
        self._max_topics: Final = max_topics
        self._shards: dict[str, str] = {}
        self._records: deque[ReceivedRecord] = deque()
        self._evicted = 0
        self.received = 0
        """Messages since the start."""
        self.dropped = 0
        """Messages since the start that were evicted before a client fetched them."""

    def wants(self, message: RoutedMessage) -> bool:
        """Return whether a message belongs to a subscribed topic."""
        return self._shards.get(message.message.content_topic) == message.pubsub_topic

    def add(self, message: RoutedMessage) -> None:
        """Add a message of a subscribed topic; ignore others."""
        if not self.wants(message):
            return
        self.received += 1
        record = ReceivedRecord(
            seq=self.received, message_hash=hex_of(message.message_hash), message=relay_shape(message.message)
        )
        self._records.append(record)
        if len(self._records) > self._max_messages:
            self._records.popleft()
            self._evicted += 1
            self.dropped += 1

    def subscribe(self, shards: dict[str, str]) -> bool:
        """Subscribe to content topics, each on its pubsub topic; return False, and change nothing, if too many."""
        more = self._shards | shards
        fits = len(more) <= self._max_topics
        if fits:
            self._shards = more
        return fits

    def unsubscribe(self, topics: Iterable[str]) -> None:
        """Unsubscribe from content topics; messages that wait stay."""
        for topic in topics:
            self._shards.pop(topic, None)

    def shards(self) -> frozenset[str]:
        """Return the pubsub topics of all subscriptions."""
        return frozenset(self._shards.values())

    def take(self) -> tuple[list[ReceivedRecord], int]:
        """Return and remove the messages, oldest first, and the number of those evicted since the last call."""
        taken, evicted = list(self._records), self._evicted
        self._records.clear()
        self._evicted = 0
        return taken, evicted


class SendEvents:
    """The events of sends, by request id."""

    def __init__(self) -> None:
        self._statuses: dict[str, SendStatus] = {}
        self._evicted = 0
        self.dropped = 0
        """Sends since the start whose events were evicted before a client fetched them."""

    def record(self, request_id: str, kind: SendKind, message_hash: bytes, now_ns: int, error: str = "") -> None:
        """Add an event of a send."""
        status = self._statuses.setdefault(request_id, SendStatus(request_id=request_id, events=[]))
        status.events.append(
            SendEvent(kind=kind, message_hash=hex_of(message_hash), error=error or UNSET, timestamp=now_ns)
        )
        if len(self._statuses) > MAX_SEND_REQUESTS:
            del self._statuses[next(iter(self._statuses))]
            self._evicted += 1
            self.dropped += 1

    def take_all(self) -> tuple[list[SendStatus], int]:
        """Return and remove the events of all sends, and the number of sends evicted since the last call."""
        taken, evicted = list(self._statuses.values()), self._evicted
        self._statuses.clear()
        self._evicted = 0
        return taken, evicted

    def take(self, request_id: str) -> SendStatus | None:
        """Return and remove the events of one send; None if there are none now."""
        return self._statuses.pop(request_id, None)
