"""``/relay/v1``: publish on a shard or by autosharding, and fetch messages.

Shapes and texts: nwaku, ``waku/rest_api/endpoint/relay/handlers.nim``. With a subscription to another shard the node
serves that shard, until its last subscription ends. Publishing needs a subscription to the shard, which the shards of
the node's options have from the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import ConfigurationError, DecodeError
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.rules import Refusal
from fairway.nodes.rest.shapes import MessageRequest, message_of, relay_shape
from fairway.service.rest.answers import RefusedError, answer, decode_body, fine
from fairway.service.rest.context import Endpoints
from fairway.wire.lightpush import StatusCode
from fairway.wire.topics import StaticShard
from fairway.wire.waku_message import WakuMessage


class RelayEndpoints(Endpoints):
    """The handlers of one server."""

    async def subscribe(self, request: Request) -> Response:
        """Subscribe to pubsub topics."""
        topics = await self._pubsub_topics(request)
        cache = self._context.relayed
        return self._subscribed(topics, lambda: cache.subscribe_pubsub(topics))

    async def unsubscribe(self, request: Request) -> Response:
        """Unsubscribe from pubsub topics."""
        topics = await self._pubsub_topics(request)
        self._context.relayed.unsubscribe_pubsub(topics)
        self._context.leave_unneeded()
        return fine()

    async def messages(self, request: Request) -> Response:
        """Return and remove the messages of a pubsub topic."""
        return _messages(self._context.relayed.take_pubsub(request.path_params["pubsubTopic"]), "")

    async def publish(self, request: Request) -> Response:
        """Publish on a pubsub topic."""
        topic = request.path_params["pubsubTopic"]
        if not self._context.relayed.has_shard(topic):
            raise RefusedError(400, f"Failed to publish: Node not subscribed to topic: {topic}")
        await self._publish(topic, await self._message(request))
        return fine()

    async def auto_subscribe(self, request: Request) -> Response:
        """Subscribe to content topics."""
        context = self._context
        topics = decode_body(request, await context.body_of(request), list[str])
        shards = context.shards_of(topics, None)
        cache = context.relayed
        return self._subscribed(shards.values(), lambda: cache.subscribe_content(shards))

    async def auto_unsubscribe(self, request: Request) -> Response:
        """Unsubscribe from content topics."""
        context = self._context
        topics = decode_body(request, await context.body_of(request), list[str])
        context.relayed.unsubscribe_content(topics)
        context.leave_unneeded()
        return fine()

    async def auto_messages(self, request: Request) -> Response:
        """Return and remove the messages of a content topic."""
        topic = request.path_params["contentTopic"]
        return _messages(self._context.relayed.take_content(topic), topic)

    async def auto_publish(self, request: Request) -> Response:
        """Publish on the shard of the content topic."""
        message = await self._message(request)
        try:
            topic = self._context.node.options.pubsub_topic_of(message.content_topic)
        except ConfigurationError as error:
            raise RefusedError(400, f"Failed to publish. Autosharding error: {error}") from None
        if not self._context.relayed.has_shard(topic):
            # nwaku tries to publish here; clients search for its error text.
            raise RefusedError(
                400, f"Failed to publish: publish failed in relay: NoPeersToPublish: not subscribed to {topic}"
            )
        await self._publish(topic, message)
        return fine()

    async def _pubsub_topics(self, request: Request) -> list[str]:
        context = self._context
        topics = decode_body(request, await context.body_of(request), list[str])
        if bad := [topic for topic in topics if not _is_shard(topic)]:
            listed = ", ".join(f'"{topic}"' for topic in bad)
            raise RefusedError(400, f"Invalid pubsub topic(s): @[{listed}]")
        return topics

    def _subscribed(self, pubsub_topics: Collection[str], add: Callable[[], bool]) -> Response:
        if not self._context.subscribe(pubsub_topics, add):
            raise RefusedError(503, "Subscribe failed: too many topics; unsubscribe from others first")
        return fine()

    async def _message(self, request: Request) -> WakuMessage:
        shape = decode_body(request, await self._context.body_of(request), MessageRequest)
        try:
            return stamped(message_of(shape))
        except DecodeError as error:
            raise RefusedError(400, f"Invalid content body, could not decode: {error}") from None

    async def _publish(self, pubsub_topic: str, message: WakuMessage) -> None:
        context = self._context
        try:
            routed = RoutedMessage.of(pubsub_topic, message)
        except ConfigurationError as error:
            raise RefusedError(400, f"Failed to publish: {error}") from None
        judged = context.rules.judge(pubsub_topic, routed.encoded, time.time_ns())
        if isinstance(judged, Refusal):
            too_large = judged.status is StatusCode.PAYLOAD_TOO_LARGE
            limit = context.rules.max_message_bytes
            detail = f"Message size exceeded maximum of {limit} bytes" if too_large else judged.detail
            raise RefusedError(400, f"Failed to publish: {detail}")
        result = await context.node.send(routed)
        if not result.accepted:
            raise RefusedError(400, f"Failed to publish: {result.detail}")


def stamped(message: WakuMessage) -> WakuMessage:
    """Return a message; one without a timestamp gets the present time, as in nwaku."""
    return message if message.timestamp_ns else structs.replace(message, timestamp_ns=time.time_ns())


def _messages(taken: list[RoutedMessage] | None, otherwise: str) -> Response:
    if taken is None:
        raise RefusedError(404, otherwise)
    return answer([relay_shape(routed.message) for routed in taken])


def _is_shard(topic: str) -> bool:
    try:
        StaticShard.parse(topic)
    except ConfigurationError:
        return False
    return True
