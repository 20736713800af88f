"""``/filter/v2``: subscribe to content topics, and fetch their messages.

nwaku subscribes at another node for its REST clients; this node receives the messages of the shards itself. All REST
clients of a node share one set of subscriptions, which has the limits of a peer. Shapes and texts: nwaku,
``waku/rest_api/endpoint/filter/handlers.nim``; the path with a pubsub topic is go-waku's.
"""

from __future__ import annotations

import time
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from fairway.nodes.rest.shapes import FilterAllRequest, FilterAnswer, FilterRequest, filter_shape
from fairway.service.rest.answers import RefusedError, answer, decode_body
from fairway.service.rest.context import Endpoints, client_of

MAX_CONTENT_TOPICS: Final = 100
"""Content topics of one request, as in nwaku."""
_Asked = TypeVar("_Asked", FilterRequest, FilterAllRequest)


class FilterEndpoints(Endpoints):
    """The handlers of one server."""

    async def subscribe(self, request: Request) -> Response:
        """Subscribe to content topics."""
        asked = await self._asked(request, FilterRequest)
        if isinstance(asked, Response):
            return asked
        context = self._context
        cache = context.filtered
        try:
            shards = context.shards_of(asked.content_filters, asked.pubsub_topic or None)
            is_subscribed = context.subscribe(shards.values(), lambda: cache.subscribe_content(shards))
        except RefusedError as refusal:
            return _answer(asked.request_id, f"BAD_REQUEST: {refusal.text}", refusal.status)
        if not is_subscribed:
            return _answer(
                asked.request_id, "SERVICE_UNAVAILABLE: peer has reached maximum number of filter criteria", 503
            )
        return _answer(asked.request_id)

    resubscribe = subscribe

    async def unsubscribe(self, request: Request) -> Response:
        """Unsubscribe from content topics."""
        asked = await self._asked(request, FilterRequest)
        if isinstance(asked, Response):
            return asked
        cache = self._context.filtered
        found = cache.unsubscribe_content(asked.content_filters, asked.pubsub_topic or None)
        return self._unsubscribed(asked.request_id, found=found)

    async def unsubscribe_all(self, request: Request) -> Response:
        """Unsubscribe from all content topics."""
        asked = await self._asked(request, FilterAllRequest)
        if isinstance(asked, Response):
            return asked
        found = self._context.filtered.unsubscribe_all_content()
        return self._unsubscribed(asked.request_id, found=found)

    async def ping(self, request: Request) -> Response:
        """Answer whether there is a subscription."""
        request_id = request.path_params["requestId"]
        return self._excess(request, request_id) or _found(
            request_id, found=bool(self._context.filtered.content_topics())
        )

    async def messages(self, request: Request) -> Response:
        """Return and remove the messages of a content topic, on all pubsub topics or on one."""
        topic = request.path_params["contentTopic"]
        taken = self._context.filtered.take_content(topic, request.path_params.get("pubsubTopic"))
        if taken is None:
            raise RefusedError(400, f"Not subscribed to topic: {topic}")
        return answer([filter_shape(routed.message) for routed in taken])

    shard_messages = messages

    def _unsubscribed(self, request_id: str, *, found: bool) -> Response:
        self._context.leave_unneeded()
        return _found(request_id, found=found)

    async def _asked(self, request: Request, shape: type[_Asked]) -> _Asked | Response:
        """Return the decoded request, or the answer to an invalid or excessive one."""
        body = await self._context.body_of(request)
        try:
            asked = decode_body(request, body, shape, text_too=False)
        except RefusedError as refusal:
            return _answer("unknown", f"BAD_REQUEST: Failed to decode request: {refusal.text}", refusal.status)
        if isinstance(asked, FilterRequest) and len(asked.content_filters) > MAX_CONTENT_TOPICS:
            return _answer(asked.request_id, f"BAD_REQUEST: exceeds maximum content topics: {MAX_CONTENT_TOPICS}", 400)
        return self._excess(request, asked.request_id) or asked

    def _excess(self, request: Request, request_id: str) -> Response | None:
        """Return the answer to a request beyond the rate that a client is allowed."""
        if self._context.parts.limiters["filter"].admit(client_of(request), time.monotonic()):
            return None
        return _answer(request_id, "TOO_MANY_REQUESTS: filter request rejected due rate limit exceeded", 429)


def _found(request_id: str, *, found: bool) -> Response:
    return _answer(request_id) if found else _answer(request_id, "NOT_FOUND: peer has no subscriptions", 404)


def _answer(request_id: str, detail: str = "OK", status: int = 200) -> Response:
    return answer(FilterAnswer(request_id=request_id, status_desc=detail), status)
