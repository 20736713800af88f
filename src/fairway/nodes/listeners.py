"""`NodeSubscriptions`: the subscriptions of one node, by pubsub topic and content topic.

Each received message is put once into each matching subscription. A closed subscription is removed, and the node is
notified of its criteria. A subscription whose event loop has ended is removed, too: waking its reader would fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from fairway.errors import ConfigurationError
from fairway.nodes.node import RoutedMessage
from fairway.subscription import Subscription

Criterion = tuple[str, str]
"""A pubsub topic and a content topic."""


def criteria_of(pubsub_topic: str, content_topics: Collection[str]) -> frozenset[Criterion]:
    """Return the criteria of a subscription; raise `ConfigurationError` for topics that are none."""
    if isinstance(content_topics, str | bytes) or not isinstance(content_topics, Collection) or not content_topics:
        raise ConfigurationError(
            f'a subscription takes a collection of content topics, like ["/app/1/room/proto"], not {content_topics!r}'
        )
    for topic in (pubsub_topic, *content_topics):
        if not _can_be_sent(topic):
            raise ConfigurationError(f"{topic!r} is no topic; a subscription takes texts that are not empty, in UTF-8")
    return frozenset((pubsub_topic, topic) for topic in content_topics)


class NodeSubscriptions:
    """The subscriptions of one node."""

    def __init__(self, *, gone: Callable[[frozenset[Criterion]], None] = lambda _: None) -> None:
        """``gone`` is called with the criteria of a closed subscription; other subscriptions may share them."""
        self._gone: Final = gone
        self._criteria: dict[Subscription[RoutedMessage], frozenset[Criterion]] = {}
        self._loops: dict[Subscription[RoutedMessage], asyncio.AbstractEventLoop] = {}

    def __len__(self) -> int:
        """Return how many subscriptions there are."""
        return len(self._criteria)

    def add(self, criteria: frozenset[Criterion]) -> Subscription[RoutedMessage]:
        """Return a subscription for messages that meet one of the criteria, from now on."""
        self._forget_ended()
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._gone(self._forget(subscription)), size_of=lambda message: len(message.encoded)
        )
        self._criteria[subscription] = criteria
        self._loops[subscription] = asyncio.get_running_loop()
        return subscription

    def wanted(self) -> frozenset[Criterion]:
        """Return the criteria of all subscriptions."""
        return frozenset[Criterion]().union(*self._criteria.values())

    def asking_for(self, message: RoutedMessage) -> list[Subscription[RoutedMessage]]:
        """Return the subscriptions that ask for a message."""
        criterion = (message.pubsub_topic, message.message.content_topic)
        return [
            subscription
            for subscription, criteria in self._criteria.items()
            if criterion in criteria and not self._loops[subscription].is_closed()
        ]

    def deliver(self, message: RoutedMessage) -> list[Subscription[RoutedMessage]]:
        """Put a message into the subscriptions that ask for it, and return them."""
        asking = self.asking_for(message)
        for subscription in asking:
            subscription.put(message)
        return asking

    def close(self) -> None:
        """End all subscriptions."""
        self._forget_ended()
        for subscription in list(self._criteria):
            subscription.close()

    def _forget_ended(self) -> None:
        for subscription in [subscription for subscription, loop in self._loops.items() if loop.is_closed()]:
            self._forget(subscription)

    def _forget(self, subscription: Subscription[RoutedMessage]) -> frozenset[Criterion]:
        self._loops.pop(subscription, None)
        return self._criteria.pop(subscription, frozenset())


def _can_be_sent(topic: str) -> bool:
    try:
        return bool(topic.encode())
    except (AttributeError, UnicodeEncodeError):
        return False
