"""What the endpoints of one REST server share: the node, the caches that clients fetch from, and counters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import Final

from starlette.requests import Request

from fairway.errors import ConfigurationError
from fairway.service.node import ServiceNode
from fairway.service.rest import bounds
from fairway.service.rest.answers import RefusedError, read_body
from fairway.service.rest.awaited_bodies import AwaitedBodies
from fairway.service.rest.message_cache import MessageCache
from fairway.service.rest.options import RestOptions
from fairway.waku.node import RoutedMessage
from fairway.waku.subscription import Subscription


class FedCache:
    """A message cache and what feeds it; `fresh` before every look brings it up to date."""

    def __init__(self, node: ServiceNode, cache: MessageCache) -> None:
        self.cache: Final = cache
        self._arriving: Final[Subscription[RoutedMessage]] = node.distribution.listen(cache.wants)

    def fresh(self) -> MessageCache:
        """Return the cache with everything that has arrived."""
        for message in self._arriving.take():
            self.cache.add(message)
        return self.cache

    async def run(self) -> None:
        """Move what arrives into the cache, which is smaller than the queue, until the node or the server closes."""
        while batch := await self._arriving.next_batch():
            for message in batch:
                self.cache.add(message)

    def close(self) -> None:
        """Let nothing more arrive."""
        self._arriving.close()


class RestContext:
    """Made by the server, handed to every endpoint."""

    def __init__(self, node: ServiceNode, options: RestOptions) -> None:
        self.node: Final = node
        self.options: Final = options
        self.rules: Final = node.options.rules
        cache = partial(MessageCache, max_messages=options.cache_messages, max_topics=bounds.CACHE_TOPICS)
        # As nwaku does it: relay keeps what comes on the node's shards from the beginning.
        self.relayed: Final = FedCache(node, cache(pubsub_topics=node.options.pubsub_topics))
        self.filtered: Final = FedCache(node, cache())
        self.closing: Final = asyncio.Event()
        """Set when event streams shall end."""
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered, by operation and status."""
        self.awaited: Final = AwaitedBodies()
        self.under_way = 0
        self.event_streams = 0

    async def body_of(self, request: Request) -> bytes:
        """Return the body of a request, within the limits."""
        async with self.awaited.within(bounds.REQUEST_TIMEOUT_S):
            return await read_body(request, bounds.MAX_BODY_BYTES)

    def shards_of(self, content_topics: list[str], pubsub_topic: str | None) -> dict[str, str]:
        """Return content topics, each with its pubsub topic; raise `RefusedError` for one that is not served."""
        try:
            shards = {topic: pubsub_topic or self.node.options.pubsub_topic_of(topic) for topic in content_topics}
        except ConfigurationError as error:
            raise RefusedError(400, f"Autosharding error: {error}") from None
        unserved = sorted(set(shards.values()) - self.rules.pubsub_topics)
        if unserved:
            served = ", ".join(sorted(self.rules.pubsub_topics))
            raise RefusedError(400, f"this node does not serve {unserved[0][:200]!r}; it serves {served}")
        return shards


def client_of(request: Request) -> str:
    """Return by whom a request counts against the limits of the services."""
    return f"rest:{request.client.host if request.client else ''}"


def clocks() -> tuple[float, int]:
    """Return a steady clock in seconds and the time of day in nanoseconds."""
    return time.monotonic(), time.time_ns()
