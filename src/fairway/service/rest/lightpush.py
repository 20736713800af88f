"""``POST /lightpush/v3/message``: the light push service over HTTP; the status of the answer is that of light push.

``/lightpush/v1/message`` does the same with the answers of nwaku's older call. nwaku,
``waku/rest_api/endpoint/{lightpush,legacy_lightpush}/handlers.nim``; WAKU-LIGHTPUSH for the status codes.
"""

from __future__ import annotations

import time
import uuid
from typing import Final

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import ConfigurationError, DecodeError
from fairway.nodes.rest.shapes import PushAnswer, PushRequest, message_of
from fairway.service.rest.answers import RefusedError, answer, decode_body, fine
from fairway.service.rest.context import Endpoints, RestContext, client_of
from fairway.service.rest.relay import stamped
from fairway.wire.lightpush import LightPushRequest, LightPushResponse, StatusCode
from fairway.wire.waku_message import encode_waku_message

_NWAKU_TEXTS: Final = {
    StatusCode.TOO_MANY_REQUESTS: "Request rejected due to too many requests",
    StatusCode.NO_PEERS_TO_RELAY: "No peers for topic, skipping publish",
}


class LightPushEndpoints(Endpoints):
    """The handlers of one server."""

    async def push(self, request: Request) -> Response:
        """Publish a message."""
        context = self._context
        body = await context.body_of(request)
        try:
            asked = decode_body(request, body, PushRequest)
        except RefusedError as refusal:
            return _refused(StatusCode.BAD_REQUEST, f"Invalid push request! {refusal.text}")
        try:
            response = await _push(context, client_of(request), asked)
        except (DecodeError, ConfigurationError) as error:
            return _refused(StatusCode.BAD_REQUEST, f"Invalid push request! {error}")
        if response.is_success:
            return answer(PushAnswer(relay_peer_count=response.relay_peer_count))
        return _refused(response.status_code, response.status_desc or "")

    async def push_v1(self, request: Request) -> Response:
        """Publish a message; the answer is a line of text."""
        context = self._context
        asked = decode_body(request, await context.body_of(request), PushRequest)
        try:
            response = await _push(context, client_of(request), asked)
        except (DecodeError, ConfigurationError) as error:
            raise RefusedError(400, f"Invalid message: {error}") from None
        match response.status_code:
            case StatusCode.SUCCESS:
                return fine()
            case StatusCode.BAD_REQUEST:
                raise RefusedError(400, f"Invalid message: {response.status_desc}")
            case StatusCode.TOO_MANY_REQUESTS:
                raise RefusedError(429, "Request rate limmit reached")
            case StatusCode.PAYLOAD_TOO_LARGE:
                detail = f"Message size exceeded maximum of {context.rules.max_message_bytes} bytes"
            case StatusCode.NO_PEERS_TO_RELAY | StatusCode.UNSUPPORTED_PUBSUB_TOPIC:
                detail = f"not_published_to_any_peer: {response.status_desc}"
            case _:
                detail = response.status_desc or ""
        raise RefusedError(503, f"Failed to request a message push: {detail}")


async def _push(context: RestContext, client: str, asked: PushRequest) -> LightPushResponse:
    encoded = encode_waku_message(stamped(message_of(asked.message)))
    return await context.parts.lightpush.push(
        client,
        LightPushRequest(request_id=str(uuid.uuid4()), pubsub_topic=asked.pubsub_topic or None, message_bytes=encoded),
        now_s=time.monotonic(),
        now_ns=time.time_ns(),
    )


def _refused(status: int, detail: str) -> Response:
    text = _NWAKU_TEXTS.get(StatusCode(status)) if status in set(StatusCode) else None
    return answer(PushAnswer(status_desc=text or detail, relay_peer_count=UNSET), status)
