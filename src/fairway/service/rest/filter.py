"""``/filter/v2``: subscribe to content topics, and fetch their messages.

nwaku subscribes at another node for its REST clients; this node receives all messages of its shards, and needs no
other. Shapes and texts: nwaku, ``waku/rest_api/endpoint/filter/handlers.nim``.
"""

from __future__ import annotations

from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from fairway.service.rest.answers import RefusedError, answer, decode_body
from fairway.service.rest.context import RestContext
from fairway.waku.rest.shapes import FilterAllRequest, FilterAnswer, FilterRequest, filter_shape

_NOTHING: Final = "NOT_FOUND: peer has no subscriptions"
_Shape = TypeVar("_Shape")


class FilterEndpoints:
    """The handlers of one server."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context

    async def subscribe(self, request: Request) -> Response:
        """Subscribe to content topics."""
        asked = await self._asked(request, FilterRequest)
        if isinstance(asked, Response):
            return asked
        try:
            shards = self._context.shards_of(asked.content_filters, asked.pubsub_topic or None)
        except RefusedError as refusal:
            return _answer(asked.request_id, f"BAD_REQUEST: {refusal.text}", refusal.status)
        if not self._context.filtered.fresh().subscribe_content(shards):
            return _answer(asked.request_id, "SERVICE_UNAVAILABLE: too many content topics", 503)
        return _answer(asked.request_id)

    async def unsubscribe(self, request: Request) -> Response:
        """Unsubscribe from content topics."""
        asked = await self._asked(request, FilterRequest)
        if isinstance(asked, Response):
            return asked
        found = self._context.filtered.fresh().unsubscribe_content(asked.content_filters)
        return _answer(asked.request_id) if found else _answer(asked.request_id, _NOTHING, 404)

    async def unsubscribe_all(self, request: Request) -> Response:
        """Unsubscribe from all content topics."""
        asked = await self._asked(request, FilterAllRequest)
        if isinstance(asked, Response):
            return asked
        found = self._context.filtered.fresh().unsubscribe_all_content()
        return _answer(asked.request_id) if found else _answer(asked.request_id, _NOTHING, 404)

    async def ping(self, request: Request) -> Response:
        """Answer whether there is a subscription."""
        request_id = request.path_params["requestId"]
        if not self._context.filtered.cache.content_topics():
            return _answer(request_id, _NOTHING, 404)
        return _answer(request_id)

    async def messages(self, request: Request) -> Response:
        """Return and remove the messages of a content topic."""
        topic = request.path_params["contentTopic"]
        taken = self._context.filtered.fresh().take_content(topic)
        if taken is None:
            raise RefusedError(400, f"Not subscribed to topic: {topic}")
        return answer([filter_shape(routed.message) for routed in taken])

    async def _asked(self, request: Request, shape: type[_Shape]) -> _Shape | Response:
        body = await self._context.body_of(request)
        try:
            return decode_body(request, body, shape, text_too=False)
        except RefusedError as refusal:
            return _answer("unknown", f"BAD_REQUEST: Failed to decode request: {refusal.text}", refusal.status)


def _answer(request_id: str, detail: str = "OK", status: int = 200) -> Response:
    return answer(FilterAnswer(request_id=request_id, status_desc=detail), status)
