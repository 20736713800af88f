"""`Distribution`: passes each message of a node to the archive, filter subscribers, and subscriptions of the program.

A message that arrives again within `_SEEN_TTL_S` is a duplicate and is not passed on. It never waits, because each
receiver has a bounded queue. `ArrivalLog` has the order in which the newest messages arrived, for readers that resume.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from fairway.environment import time_ns
from fairway.libp2p.seen_messages import SeenMessages
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.filter_service import FilterService
from fairway.service.archives import NodeArchive
from fairway.service.filter_pusher import FilterPusher
from fairway.subscription import Subscription
from fairway.wire.filter import MessagePush, encode_message_push

Wanted = Callable[[RoutedMessage], bool]
SIZE_BOUNDS: Final = tuple(1_000 * bound for bound in (0, 1, 3, 5, 15, 50, 75, 100, 125, 150, 500, 700, 1_000))
"""Upper bounds of the classes of payload sizes, in bytes; those of nwaku's histogram."""
_SEEN_TTL_S: Final = 300.0
_MAX_SEEN: Final = 500_000
MAX_ARRIVALS: Final = 100_000
"""Messages that the log keeps."""

Topics = tuple[str, str]
"""A pubsub topic and a content topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionStatistics:
    """Counts of a node."""

    messages: int
    """Messages without duplicates."""
    message_bytes: int
    duplicates: int
    lost_on_purpose: int
    """Pushes that the option ``loss`` dropped."""


@dataclass(slots=True)
class ShardTotals:
    """Messages of a pubsub topic since the start, without duplicates."""

    messages: int = 0
    message_bytes: int = 0


class ArrivedMessage(NamedTuple):
    """A message, and its number in the order of arrival."""

    number: int
    message: RoutedMessage


class _Entry(NamedTuple):
    message_hash: bytes
    topics: int | None
    """The hash of the topics, because topics may be long; None for an ephemeral message, which no archive keeps."""


class ArrivalLog:
    """The hashes of the newest `MAX_ARRIVALS` messages of one run of a node, in the order of arrival.

    Timestamps do not give this order, because senders choose them. Numbers start at the time of the start in
    nanoseconds, so that a later run uses other numbers.
    """

    def __init__(self) -> None:
        self._entries: Final[deque[_Entry]] = deque(maxlen=MAX_ARRIVALS)
        self._next = time_ns()

    def add(self, message: RoutedMessage) -> int:
        """Append a message, and return its number."""
        topics = (message.pubsub_topic, message.message.content_topic)
        self._entries.append(_Entry(message.message_hash, None if message.message.ephemeral else hash(topics)))
        self._next += 1
        return self._next - 1

    def missed(self, number: int, message_hash: bytes, wanted: Collection[Topics]) -> list[tuple[int, bytes]] | None:
        """Return the numbers and hashes of the messages on wanted topics that arrived after a message, in this order.

        Ephemeral messages are left out. The result may have messages of other topics. None if the message with this
        number and hash is not in the log.
        """
        first = self._next - len(self._entries)
        place = number - first
        if not 0 <= place < len(self._entries) or self._entries[place].message_hash != message_hash:
            return None
        keys = {hash(topics) for topics in wanted}
        return [
            (first + later, entry.message_hash)
            for later, entry in enumerate(islice(self._entries, place + 1, None), place + 1)
            if entry.topics in keys
        ]


class Distribution:
    """Passes on the messages of one node."""

    def __init__(
        self,
        *,
        archive: NodeArchive | None,
        filters: FilterService,
        pusher: FilterPusher,
        loss: float,
        rng: random.Random,
    ) -> None:
        self._archive: Final = archive
        self._filters: Final = filters
        self._pusher: Final = pusher
        self._loss: Final = loss
        self._rng: Final = rng
        self._seen: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._listeners: dict[object, Callable[[ArrivedMessage], object]] = {}
        self.arrivals: Final = ArrivalLog()
        """The order in which the newest messages arrived."""
        self.shards: Final[dict[str, ShardTotals]] = {}
        """Totals of each pubsub topic with a message."""
        self.sizes: Final = [0] * (len(SIZE_BOUNDS) + 1)
        """Messages without duplicates in the classes of `SIZE_BOUNDS`, and those with a larger payload."""
        self.payload_bytes = 0
        """Size of these payloads."""
        self._messages = self._bytes = self._duplicates = self._lost = 0

    def hand_out(self, message: RoutedMessage, *, now_s: float, now_ns: int) -> bool:
        """Pass on a message and return True; return False for a duplicate.

        ``now_s`` is a steady clock in seconds, ``now_ns`` the time of day in Unix nanoseconds.
        """
        if not self._seen.add(message.message_hash, now_s):
            self._duplicates += 1
            return False
        self._messages += 1
        self._bytes += len(message.encoded)
        self.sizes[bisect_left(SIZE_BOUNDS, len(message.message.payload))] += 1
        self.payload_bytes += len(message.message.payload)
        totals = self.shards.setdefault(message.pubsub_topic, ShardTotals())
        totals.messages += 1
        totals.message_bytes += len(message.encoded)
        if self._archive is not None and not message.message.ephemeral:
            self._archive.put(message, now_ns)
        subscribers = self._filters.subscribers_of(message.pubsub_topic, message.message.content_topic)
        if peers := [peer for peer in subscribers if not self.loses()]:
            push = encode_message_push(MessagePush(message_bytes=message.encoded, pubsub_topic=message.pubsub_topic))
            self._pusher.push(peers, push)
        arrival = ArrivedMessage(self.arrivals.add(message), message)
        for take in list(self._listeners.values()):
            take(arrival)
        return True

    def add_cache(self, add: Callable[[RoutedMessage], object]) -> None:
        """Call ``add`` with every message from now on, until `remove_cache`."""
        self._listeners[add] = lambda arrival: add(arrival.message)

    def remove_cache(self, add: Callable[[RoutedMessage], object]) -> None:
        """Undo `add_cache`. Can be called twice."""
        self._listeners.pop(add, None)

    def listen(self, wanted: Wanted) -> Subscription[RoutedMessage]:
        """Return a subscription to the wanted messages from now on."""
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._listeners.pop(subscription, None) and None,
            size_of=lambda message: len(message.encoded),
        )

        def take(arrival: ArrivedMessage) -> None:
            if wanted(arrival.message):
                subscription.put(arrival.message)

        self._listeners[subscription] = take
        return subscription

    def follow(self, wanted: Wanted, *, max_bytes: int) -> Subscription[ArrivedMessage]:
        """Return the same as `listen`, with the number of each message in `arrivals`."""
        subscription: Subscription[ArrivedMessage] = Subscription(
            on_close=lambda: self._listeners.pop(subscription, None) and None,
            size_of=lambda arrival: len(arrival.message.encoded),
            max_bytes=max_bytes,
        )

        def take(arrival: ArrivedMessage) -> None:
            if wanted(arrival.message):
                subscription.put(arrival)

        self._listeners[subscription] = take
        return subscription

    def loses(self) -> bool:
        """Draw whether the option ``loss`` drops a message; count it if so."""
        lost = bool(self._loss) and self._rng.random() < self._loss
        self._lost += lost
        return lost

    def forget_shard(self, pubsub_topic: str) -> None:
        """Remove the totals of a pubsub topic that the node no longer serves."""
        self.shards.pop(pubsub_topic, None)

    def sweep(self, now_s: float) -> None:
        """Remove messages that arrived more than `_SEEN_TTL_S` ago."""
        self._seen.expire(now_s)

    def statistics(self) -> DistributionStatistics:
        """Return the counts."""
        return DistributionStatistics(
            messages=self._messages,
            message_bytes=self._bytes,
            duplicates=self._duplicates,
            lost_on_purpose=self._lost,
        )

    def close(self) -> None:
        """End all subscriptions of this process."""
        for listener in list(self._listeners):
            if isinstance(listener, Subscription):
                listener.close()
