"""`ReceivedMessages` and `SendEvents`: what ``/messaging/v1/events`` returns, until a client fetches it.

Pure. logos-delivery, ``messaging/rest_api/{event_cache,types}.nim`` and ``docs/api/rest-api.md``: fetching removes the
events, for all clients. Beyond a bound the oldest are evicted; the next answer says how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import UNSET

from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest.shapes import ReceivedRecord, SendEvent, SendStatus, hex_of, relay_shape

MAX_SEND_REQUESTS: Final = 10_000
"""Sends whose events wait to be fetched."""
SendKind = Literal["propagated", "sent", "error"]


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
    """What became of sends, by request id."""

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
