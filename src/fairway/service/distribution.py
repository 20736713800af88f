"""`Distribution`: passes each message of a node to the archive, filter subscribers, and subscriptions of the program.

A message that arrives again within `_SEEN_TTL_S` is a duplicate and is not passed on. Nothing here waits: each receiver
has a bounded queue.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.seen_messages import SeenMessages
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.filter_service import FilterService
from fairway.service.archives import NodeArchive
from fairway.service.arrival_log import ArrivalLog, ArrivedMessage
from fairway.service.filter_pusher import FilterPusher
from fairway.service.topic_traffic import TopicTraffic
from fairway.subscription import Subscription
from fairway.wire.filter import MessagePush, encode_message_push

Wanted = Callable[[RoutedMessage], bool]
MAX_LISTENER_BYTES: Final = 134_217_728
"""Default size of the messages that wait in a subscription of this process."""
SIZE_BOUNDS: Final = tuple(1_000 * bound for bound in (0, 1, 3, 5, 15, 50, 75, 100, 125, 150, 500, 700, 1_000))
"""Upper bounds of the classes of payload sizes, in bytes; those of nwaku's histogram."""
_SEEN_TTL_S: Final = 300.0
_MAX_SEEN: Final = 500_000
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionStatistics:
    """Counts of a node."""

    messages: int
    """Messages without duplicates."""
    message_bytes: int
    duplicates: int
    lost_on_purpose: int
    """Pushes that the option ``loss`` dropped."""


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
        self.loss = loss
        """Share of messages that `loses` drops; can be set at any time."""
        self._rng: Final = rng
        self._seen: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._listeners: dict[Subscription[Any], tuple[Wanted, Callable[[ArrivedMessage], Any]]] = {}
        self.arrivals: Final = ArrivalLog()
        """The order in which the newest messages arrived."""
        self.traffic: Final = TopicTraffic()
        """Messages and bytes of the last minutes by topic."""
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
        self.traffic.count(message.pubsub_topic, message.message.content_topic, len(message.encoded), now_s)
        if self._archive is not None and not message.message.ephemeral:
            self._archive.put(message, now_ns)
        peers = [
            PeerId.parse(peer)
            for peer in self._filters.subscribers_of(message.pubsub_topic, message.message.content_topic)
            if not self.loses()
        ]
        if peers:
            push = encode_message_push(MessagePush(message_bytes=message.encoded, pubsub_topic=message.pubsub_topic))
            self._pusher.push(peers, push)
        arrival = ArrivedMessage(self.arrivals.add(message), message)
        for subscription, (wanted, item_of) in list(self._listeners.items()):
            if wanted(message):
                subscription.put(item_of(arrival))
        return True

    def listen(self, wanted: Wanted, *, max_bytes: int = MAX_LISTENER_BYTES) -> Subscription[RoutedMessage]:
        """Return a subscription to the wanted messages from now on; beyond ``max_bytes`` the oldest are dropped."""
        return self._listen(wanted, lambda arrival: arrival.message, lambda message: len(message.encoded), max_bytes)

    def follow(self, wanted: Wanted, *, max_bytes: int) -> Subscription[ArrivedMessage]:
        """Return the same as `listen`, with the number of each message in `arrivals`."""
        return self._listen(wanted, lambda arrival: arrival, lambda arrival: len(arrival.message.encoded), max_bytes)

    def _listen(
        self,
        wanted: Wanted,
        item_of: Callable[[ArrivedMessage], _Item],
        size_of: Callable[[_Item], int],
        max_bytes: int,
    ) -> Subscription[_Item]:
        subscription: Subscription[_Item] = Subscription(
            on_close=lambda: self._listeners.pop(subscription, None) and None, size_of=size_of, max_bytes=max_bytes
        )
        self._listeners[subscription] = (wanted, item_of)
        return subscription

    def loses(self) -> bool:
        """Draw whether the option ``loss`` drops a message; count it if so."""
        lost = bool(self.loss) and self._rng.random() < self.loss
        self._lost += lost
        return lost

    def sweep(self, now_s: float) -> None:
        """Forget messages that arrived more than `_SEEN_TTL_S` ago."""
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
        for subscription in list(self._listeners):
            subscription.close()
