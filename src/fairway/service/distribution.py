"""`Distribution`: passes each message of a node to the archive, filter subscribers, and subscriptions of the program.

A message is passed on once while it counts as seen, however often it arrives. Nothing here waits: each receiver has a
bounded queue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fairway.service.archives import NodeArchive
from fairway.service.filter_pusher import FilterPusher
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.node import RoutedMessage
from fairway.waku.protocols.filter_service import FilterService
from fairway.waku.seen_messages import SeenMessages
from fairway.waku.subscription import Subscription
from fairway.wire.filter import MessagePush, encode_message_push

Wanted = Callable[[RoutedMessage], bool]
MAX_LISTENER_BYTES: Final = 134_217_728
"""Default bound of a subscription in this process, in bytes."""
_SEEN_TTL_S: Final = 300.0
_MAX_SEEN: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionStatistics:
    """Counts of a node."""

    messages: int
    """Different messages."""
    message_bytes: int
    duplicates: int
    lost_on_purpose: int
    """Pushes that the option ``loss`` dropped."""


class Distribution:
    """Hands out the messages of one node."""

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
        self._listeners: dict[Subscription[RoutedMessage], Wanted] = {}
        self._messages = self._bytes = self._duplicates = self._lost = 0

    def hand_out(self, message: RoutedMessage, *, now_s: float, now_ns: int) -> bool:
        """Pass a message on, and return whether it is new."""
        if not self._seen.add(message.message_hash, now_s):
            self._duplicates += 1
            return False
        self._messages += 1
        self._bytes += len(message.encoded)
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
        for subscription, wanted in list(self._listeners.items()):
            if wanted(message):
                subscription.put(message)
        return True

    def listen(self, wanted: Wanted, *, max_bytes: int = MAX_LISTENER_BYTES) -> Subscription[RoutedMessage]:
        """Return the wanted messages from now on; beyond ``max_bytes`` the oldest waiting ones are dropped."""
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._listeners.pop(subscription, None) and None,
            size_of=lambda message: len(message.encoded),
            max_bytes=max_bytes,
        )
        self._listeners[subscription] = wanted
        return subscription

    def loses(self) -> bool:
        """Draw whether a message is lost by the option ``loss``, and count it."""
        lost = bool(self._loss) and self._rng.random() < self._loss
        self._lost += lost
        return lost

    def sweep(self, now_s: float) -> None:
        """Forget messages seen long ago."""
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
