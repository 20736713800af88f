"""``/messaging/v1``: subscribe and send by content topic, and fetch received messages and the outcomes of sends.

logos-delivery, ``messaging/rest_api/handlers.nim`` and ``docs/api/rest-api.md``. Autosharding determines the shard.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from fairway.environment import time_ns
from fairway.errors import ConfigurationError, DecodeError
from fairway.nodes.node import RoutedMessage
from fairway.nodes.rest.shapes import MessageRequest, MessagingAnswer, MessagingRequest, message_of
from fairway.service.rest.answers import RefusedError, answer, decode_body, fine
from fairway.service.rest.context import Endpoints

_DROPPED: Final = "X-Messaging-Dropped"
"""Header with the number of records that were evicted since they were fetched last."""


class MessagingEndpoints(Endpoints):
    """The handlers of one server."""

    async def subscribe(self, request: Request) -> Response:
        """Subscribe to content topics."""
        self._subscribe(self._context.shards_of(await self._topics(request), None))
        return fine()

    async def unsubscribe(self, request: Request) -> Response:
        """Unsubscribe from content topics."""
        topics = await self._topics(request)
        self._context.received.unsubscribe(topics)
        self._context.leave_unneeded()
        return fine()

    async def send(self, request: Request) -> Response:
        """Begin to send a message, and subscribe to its content topic, as nwaku does."""
        context = self._context
        self._check_autosharding()
        asked = decode_body(request, await context.body_of(request), MessagingRequest)
        shards = context.shards_of([asked.content_topic], None)
        try:
            message = message_of(
                MessageRequest(
                    payload=asked.payload,
                    content_topic=asked.content_topic,
                    timestamp=time_ns(),
                    meta=asked.meta,
                    ephemeral=asked.ephemeral,
                )
            )
            routed = RoutedMessage.of(shards[asked.content_topic], message)
        except (DecodeError, ConfigurationError) as error:
            raise RefusedError(400, f"Invalid message: {error}") from None
        self._subscribe(shards)
        return answer(MessagingAnswer(request_id=context.sends.send(routed)))

    async def send_events(self, _: Request) -> Response:
        """Return and remove the events of all sends."""
        statuses, dropped = self._context.send_events.take_all()
        return answer(statuses, headers={_DROPPED: str(dropped)})

    async def events_of_send(self, request: Request) -> Response:
        """Return and remove the events of one send."""
        request_id = request.path_params["requestId"]
        status = self._context.send_events.take(request_id)
        if status is None:
            raise RefusedError(404, f"No send events for requestId: {request_id[:80]}")
        return answer(status)

    async def received(self, _: Request) -> Response:
        """Return and remove the received messages."""
        records, dropped = self._context.received.take()
        return answer(records, headers={_DROPPED: str(dropped)})

    async def _topics(self, request: Request) -> list[str]:
        self._check_autosharding()
        return decode_body(request, await self._context.body_of(request), list[str])

    def _check_autosharding(self) -> None:
        if not self._context.node.options.shard_count:
            raise RefusedError(503, "Autosharding is disabled: start the node with the number of shards of its network")

    def _subscribe(self, shards: dict[str, str]) -> None:
        received = self._context.received
        if not self._context.subscribe(shards.values(), lambda: received.subscribe(shards)):
            raise RefusedError(503, "Subscribe failed: too many topics; unsubscribe from others first")
