"""Sending over HTTP: by light push, or by relay where a node has no light push.

nwaku's light push needs a service peer or the service itself, its relay endpoints need relay; what a node does not have
it answers with 404, and the other way is taken from then on until the node was away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from fairway.errors import DecodeError, NodeUnavailableError
from fairway.waku.node import RoutedMessage, SendResult
from fairway.waku.rest.http_client import HttpClient, HttpReply
from fairway.waku.rest.options import SendWay
from fairway.waku.rest.shapes import PushAnswer, PushRequest, json_of, read_json, relay_shape
from fairway.wire.lightpush import ClientAction, StatusCode, client_action

_NOT_SUBSCRIBED: Final = "not subscribed to topic"


class Sender:
    """One node's way out."""

    def __init__(self, http: HttpClient, ways: Sequence[SendWay]) -> None:
        self._http: Final = http
        self._ways: Final = tuple(ways)
        self._first = 0

    def reset(self) -> None:
        """Forget which way the node offers: it may be another one now."""
        self._first = 0

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message by the first way that the node offers."""
        said: list[str] = []
        for index in range(self._first, len(self._ways)):
            way = self._ways[index]
            try:
                result = await (self._push(message) if way is SendWay.LIGHTPUSH else self._relay(message))
            except NodeUnavailableError as error:
                return SendResult(accepted=False, detail=str(error))
            if isinstance(result, SendResult):
                return result
            said.append(f"{way.value}: {result.status} {result.text}")
            if result.status in {400, 404, 405}:
                self._first = min(index + 1, len(self._ways) - 1)
        return SendResult(accepted=False, detail=f"the node offers no way to send: {'; '.join(said)}")

    async def _push(self, message: RoutedMessage) -> SendResult | HttpReply:
        request = PushRequest(message=relay_shape(message.message), pubsub_topic=message.pubsub_topic)
        reply = await self._http.request("POST", "/lightpush/v3/message", json_of(request))
        if reply.status == StatusCode.SUCCESS:
            return SendResult(accepted=True)
        try:
            detail = read_json(reply.body, PushAnswer).status_desc or ""
        except DecodeError:
            if reply.status in {400, 404, 405}:
                return reply  # not the words of a light push: there is none
            detail = reply.text
        if reply.status == StatusCode.SERVICE_NOT_AVAILABLE:
            return reply  # nobody to push to; the node itself may be a relay
        permanent = client_action(reply.status) is ClientAction.NEVER_RESEND_UNCHANGED
        return SendResult(accepted=False, permanent=permanent, detail=f"{reply.status} {detail}".strip())

    async def _relay(self, message: RoutedMessage) -> SendResult | HttpReply:
        path = f"/relay/v1/messages/{quote(message.pubsub_topic, safe='')}"
        body = json_of(relay_shape(message.message))
        reply = await self._http.request("POST", path, body)
        if reply.status == 400 and _NOT_SUBSCRIBED in reply.text.lower():
            await self._http.request("POST", "/relay/v1/subscriptions", json_of([message.pubsub_topic]))
            reply = await self._http.request("POST", path, body)
        if reply.status == 200:
            return SendResult(accepted=True)
        if reply.status in {404, 405}:
            return reply
        permanent = reply.status == StatusCode.PAYLOAD_TOO_LARGE or "size exceeded" in reply.text.lower()
        return SendResult(accepted=False, permanent=permanent, detail=f"{reply.status} {reply.text}")
