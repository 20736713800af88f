"""``POST /lightpush/v3/message``: the light push service over HTTP; the status of the answer is that of light push.

nwaku, ``waku/rest_api/endpoint/lightpush/handlers.nim``; WAKU-LIGHTPUSH for the status codes.
"""

from __future__ import annotations

import time
import uuid
from typing import Final

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import ConfigurationError, DecodeError
from fairway.service.rest.answers import RefusedError, answer, decode_body
from fairway.service.rest.context import RestContext, client_of
from fairway.service.rest.relay import stamped
from fairway.waku.rest.shapes import PushAnswer, PushRequest, message_of
from fairway.wire.lightpush import LightPushRequest, StatusCode
from fairway.wire.waku_message import encode_waku_message

_NWAKU_SAYS: Final = {
    StatusCode.TOO_MANY_REQUESTS: "Request rejected due to too many requests",
    StatusCode.NO_PEERS_TO_RELAY: "No peers for topic, skipping publish",
}


async def push(context: RestContext, request: Request) -> Response:
    """Publish a message."""
    body = await context.body_of(request)
    try:
        asked = decode_body(request, body, PushRequest)
    except RefusedError as refusal:
        return _refused(StatusCode.BAD_REQUEST, f"Invalid push request! {refusal.text}")
    try:
        encoded = encode_waku_message(stamped(message_of(asked.message)))
    except (DecodeError, ConfigurationError) as error:
        return _refused(StatusCode.BAD_REQUEST, f"Invalid push request! {error}")
    response = await context.node.lightpush.push(
        client_of(request),
        LightPushRequest(request_id=str(uuid.uuid4()), pubsub_topic=asked.pubsub_topic or None, message_bytes=encoded),
        now_s=time.monotonic(),
        now_ns=time.time_ns(),
    )
    if response.is_success:
        return answer(PushAnswer(relay_peer_count=response.relay_peer_count))
    return _refused(response.status_code, response.status_desc or "")


def _refused(status: int, detail: str) -> Response:
    said = _NWAKU_SAYS.get(StatusCode(status)) if status in set(StatusCode) else None
    return answer(PushAnswer(status_desc=said or detail, relay_peer_count=UNSET), status)
