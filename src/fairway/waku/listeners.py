"""Who in this program listens to which topics: the subscriptions of one node.

Invariant: a message is put into each subscription that asks for it, once for each time it is heard; a subscription that
is closed, by its reader or by the node, is forgotten, and the node is told which criteria it had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from fairway.errors import ConfigurationError
from fairway.waku.node import RoutedMessage
from fairway.waku.subscription import Subscription

Criterion = tuple[str, str]
"""A pubsub topic and a content topic."""


def criteria_of(pubsub_topic: str, content_topics: Collection[str]) -> frozenset[Criterion]:
    """Return what a subscription asks for, or raise `ConfigurationError` for what cannot be meant."""
    if isinstance(content_topics, str) or not content_topics:
        raise ConfigurationError(
            f'a subscription takes a collection of content topics, like ["/app/1/room/proto"], not {content_topics!r}'
        )
    for topic in (pubsub_topic, *content_topics):
        if not _can_be_sent(topic):
            raise ConfigurationError(f"{topic!r} is no topic; a subscription needs text that can be sent")
    return frozenset((pubsub_topic, topic) for topic in content_topics)


class Listeners:
    """The subscriptions of a node that handles messages one by one."""

    def __init__(self, *, gone: Callable[[frozenset[Criterion]], None]) -> None:
        """``gone`` is told what a subscription asked for that was closed; others may still ask for the same."""
        self._gone: Final = gone
        self._criteria: dict[Subscription[RoutedMessage], frozenset[Criterion]] = {}

    def add(self, criteria: frozenset[Criterion]) -> Subscription[RoutedMessage]:
        """Return what is heard from now on and meets one of the criteria."""
        subscription: Subscription[RoutedMessage] = Subscription(
            on_close=lambda: self._gone(self._criteria.pop(subscription)), size_of=lambda message: len(message.encoded)
        )
        self._criteria[subscription] = criteria
        return subscription

    def wanted(self) -> frozenset[Criterion]:
        """Return what all subscriptions together ask for."""
        return frozenset[Criterion]().union(*self._criteria.values())

    def hear(self, message: RoutedMessage) -> None:
        """Put a message into the subscriptions that ask for it."""
        criterion = (message.pubsub_topic, message.message.content_topic)
        for subscription, criteria in list(self._criteria.items()):
            if criterion in criteria:
                subscription.put(message)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._criteria):
            subscription.close()


def _can_be_sent(topic: str) -> bool:
    try:
        return bool(topic.encode())
    except (AttributeError, UnicodeEncodeError):
        return False
