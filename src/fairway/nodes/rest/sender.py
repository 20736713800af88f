"""`Sender`: sends over HTTP by light push (``/lightpush/v3``), or by relay (``/relay/v1``).

nwaku's light push needs a service peer or the service itself; its relay endpoint needs relay, and go-waku has no light
push of version 3. After a 404 the relay endpoint is used, until the node reconnects.

`fairway.wire.lightpush.client_action` interprets the answers. A node that relays a message to no peer may know it
already (`ClientAction.NOT_RELAYED`). The message counts as known if this client sent the node the same message hash
before, and the node took it or did not answer in time.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from fairway.errors import DecodeError, NodeUnavailableError
from fairway.json_reading import read_json
from fairway.nodes.node import SEND_TIMEOUT_S, RoutedMessage, SendResult
from fairway.nodes.rest.http_client import HttpClient, HttpReply
from fairway.nodes.rest.shapes import PushAnswer, PushRequest, json_of, relay_shape
from fairway.protocol.recent_hashes import RecentHashes
from fairway.wire.lightpush import ClientAction, StatusCode, client_action

_NOT_THERE: Final = frozenset({400, 404, 405})
"""Status codes of a node without light push; its own answers with these have the JSON of light push."""
_NO_SERVICE_PEER: Final = "no suitable service peer"
_NOT_SUBSCRIBED: Final = "not subscribed to topic"
_CODES_OF_ANY_ENDPOINT: Final = frozenset({StatusCode.PAYLOAD_TOO_LARGE, StatusCode.TOO_MANY_REQUESTS})
"""Status codes with the same meaning outside ``/lightpush/v3``; there nwaku uses 400, 500 and 503 for many faults."""


class Sender:
    """Sends messages to one node."""

    def __init__(self, http: HttpClient) -> None:
        self._http: Final = http
        self._has_light_push = True
        self._handed: Final = RecentHashes()
        """Message hashes of messages that the node took, or left without an answer."""

    def reset(self) -> None:
        """Reset the known endpoints of the node, because they may have changed."""
        self._has_light_push = True

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message by the first endpoint that the node offers, within `SEND_TIMEOUT_S`."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                result = await self._send(message)
        except (NodeUnavailableError, TimeoutError) as error:
            if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
                self._handed.add(message.message_hash)
            return SendResult(accepted=False, detail=str(error) or f"no answer within {SEND_TIMEOUT_S:g} s")
        if result.accepted:
            self._handed.add(message.message_hash)
        return result

    async def _send(self, message: RoutedMessage) -> SendResult:
        said: list[str] = []
        if self._has_light_push:
            pushed = await self._push(message)
            if isinstance(pushed, SendResult):
                return pushed
            said.append(f"light push: {pushed.status} {pushed.text}")
            self._has_light_push = pushed.status not in _NOT_THERE
        relayed = await self._relay(message)
        if isinstance(relayed, SendResult):
            return relayed
        said.append(f"relay: {relayed.status} {relayed.text}")
        return SendResult(accepted=False, detail=f"the node offers no way to send: {'; '.join(said)}")

    async def _push(self, message: RoutedMessage) -> SendResult | HttpReply:
        request = PushRequest(message=relay_shape(message.message), pubsub_topic=message.pubsub_topic)
        reply = await self._http.request("POST", "/lightpush/v3/message", json_of(request))
        try:
            said = read_json(reply.body, PushAnswer).status_desc or ""
        except DecodeError:
            if reply.status in _NOT_THERE:
                return reply  # not a light push answer: the node has no light push
            said = reply.text
        if client_action(reply.status, said) is ClientAction.NO_PEERS and _NO_SERVICE_PEER in said.lower():
            return reply  # no service peer; the node itself may relay
        return self._outcome(message, reply, reply.status, said)

    async def _relay(self, message: RoutedMessage) -> SendResult | HttpReply:
        path = f"/relay/v1/messages/{quote(message.pubsub_topic, safe='')}"
        body = json_of(relay_shape(message.message))
        reply = await self._http.request("POST", path, body)
        # go-waku gives no error text for a shard that it does not relay.
        said_nothing = reply.status == StatusCode.INTERNAL_SERVER_ERROR and not reply.body
        if said_nothing or (reply.status == StatusCode.BAD_REQUEST and _NOT_SUBSCRIBED in reply.text.lower()):
            await self._http.request("POST", "/relay/v1/subscriptions", json_of([message.pubsub_topic]))
            reply = await self._http.request("POST", path, body)
        if reply.status in {404, 405}:
            return reply
        has_code = reply.status == StatusCode.SUCCESS or reply.status in _CODES_OF_ANY_ENDPOINT
        return self._outcome(message, reply, reply.status if has_code else None, reply.text)

    def _outcome(self, message: RoutedMessage, reply: HttpReply, status_code: int | None, said: str) -> SendResult:
        action = client_action(status_code, said)
        is_known = action is ClientAction.NOT_RELAYED and message.message_hash in self._handed
        if is_known or action in {ClientAction.DONE, ClientAction.KNOWN}:
            return SendResult(accepted=True)
        unserved = status_code == StatusCode.UNSUPPORTED_PUBSUB_TOPIC
        return SendResult.refused(action, f"{reply.status} {said}".strip(), unserved=unserved)
