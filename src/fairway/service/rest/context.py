"""`RestContext`: the shared state of all handlers of one REST server: node, message caches, limits and counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from starlette.requests import Request

from fairway.errors import ConfigurationError
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.nodes.protocols.filter_service import MAX_CRITERIA
from fairway.nodes.rest.options import NWAKU_CACHE_MESSAGES
from fairway.service.node import ServiceNode, parts_of
from fairway.service.parts import NodeParts
from fairway.service.rest.answers import RefusedError, read_body
from fairway.service.rest.caches import ReceivedMessages, RestMessageCache, SendEvents
from fairway.service.rest.message_sender import MessageSender
from fairway.service.rest.options import RestOptions

CACHE_TOPICS: Final = 10_000
"""Topics that REST clients may be subscribed to: pubsub and content topics of relay, and those of messaging."""
MAX_TOPIC_BYTES: Final = 1_024
"""Size of a content topic to subscribe to."""
MAX_BODY_BYTES: Final = 1_048_576
"""Size of a request's body; longer ones are answered with 413."""
BODY_TIMEOUT_S: Final = 10.0
"""Time to receive the body of a request; after it the answer is 408."""


class RestContext:
    """The server makes it and passes it to every handler."""

    def __init__(self, node: ServiceNode, options: RestOptions, certificate: ServerCertificate | None = None) -> None:
        self.node: Final = node
        self.parts: Final[NodeParts] = parts_of(node)
        self.options: Final = options
        self.certificate: Final = certificate
        """The certificate of the API; None without TLS."""
        self.rules: Final = self.parts.rules
        cache = partial(RestMessageCache, max_messages=NWAKU_CACHE_MESSAGES)
        # As in nwaku, the cache of relay is subscribed to the node's shards from the start.
        self.relayed: Final = cache(max_topics=CACHE_TOPICS, pubsub_topics=node.options.pubsub_topics)
        self.filtered: Final = cache(max_topics=MAX_CRITERIA)
        self.received: Final = ReceivedMessages(max_messages=NWAKU_CACHE_MESSAGES, max_topics=CACHE_TOPICS)
        self._caches: Final = (self.relayed, self.filtered, self.received)
        for each in self._caches:
            self.parts.distribution.add_cache(each.add)
        self.send_events: Final = SendEvents()
        self.sends: Final = MessageSender(node, self.parts, self.send_events)
        self._joined: frozenset[str] = frozenset()
        """Pubsub topics that the node serves for subscriptions of REST clients."""
        self.closing: Final = asyncio.Event()
        """Set when event streams must end."""
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests, by operation and status."""
        self.under_way = 0
        """Requests that are not answered yet, without event streams."""
        self.event_streams = 0
        """Open event streams."""

    @contextmanager
    def counting_request(self) -> Iterator[None]:
        """Count a request in `under_way` during the block."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    @contextmanager
    def counting_stream(self) -> Iterator[None]:
        """Count a stream in `event_streams` during the block."""
        self.event_streams += 1
        try:
            yield
        finally:
            self.event_streams -= 1

    async def body_of(self, request: Request) -> bytes:
        """Return the body of a request; raise `RefusedError` beyond `MAX_BODY_BYTES` or `BODY_TIMEOUT_S`."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await read_body(request, MAX_BODY_BYTES)
        except TimeoutError:
            text = f"the body of the request did not arrive within {BODY_TIMEOUT_S:g} s"
            raise RefusedError(408, text) from None

    def shards_of(self, content_topics: Collection[str], pubsub_topic: str | None) -> dict[str, str]:
        """Return the pubsub topic of each content topic; without ``pubsub_topic``, autosharding determines it.

        Raises `RefusedError` for a content topic that is too long or has no shard.
        """
        if any(len(topic.encode(errors="replace")) > MAX_TOPIC_BYTES for topic in content_topics):
            raise RefusedError(400, f"content topics have at most {MAX_TOPIC_BYTES} bytes")
        try:
            return {topic: pubsub_topic or self.node.options.pubsub_topic_of(topic) for topic in content_topics}
        except ConfigurationError as error:
            raise RefusedError(400, f"Autosharding error: {error}") from None

    def check_served(self, pubsub_topics: Collection[str]) -> None:
        """Raise `RefusedError` if the node does not serve one of these."""
        if unserved := sorted(set(pubsub_topics) - self.rules.pubsub_topics):
            served = ", ".join(sorted(self.rules.pubsub_topics))
            raise RefusedError(400, f"this node does not serve {unserved[0][:200]!r}; it serves {served}")

    def subscribe(self, pubsub_topics: Collection[str], add: Callable[[], bool]) -> bool:
        """Serve the pubsub topics of a subscription that ``add`` makes; return the result of ``add``.

        Raises `RefusedError` if the node cannot serve one of them.
        """
        more = frozenset(pubsub_topics) - self._joined
        try:
            self.node.join(more)
        except ConfigurationError as error:
            raise RefusedError(400, str(error)) from None
        self._joined |= more
        is_added = add()
        if not is_added:
            self.leave_unneeded()
        return is_added

    def leave_unneeded(self) -> None:
        """Stop serving pubsub topics without a subscription of a REST client."""
        self._leave(self._joined.difference(*(cache.shards() for cache in self._caches)))

    async def close(self) -> None:
        """End all subscriptions and sends of REST clients."""
        await self.sends.close()
        for cache in self._caches:
            self.parts.distribution.remove_cache(cache.add)
        self._leave(self._joined)

    def _leave(self, pubsub_topics: frozenset[str]) -> None:
        self._joined -= pubsub_topics
        self.node.leave(pubsub_topics)


class Endpoints:
    """The handlers of calls with one tag."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context


def client_of(request: Request) -> str:
    """Return the name of the client for the rate limits of the services: its IP address."""
    return f"rest:{request.client.host if request.client else ''}"
