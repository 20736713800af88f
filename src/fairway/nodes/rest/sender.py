"""`Sender`: sends over HTTP by light push, by relay, or by the light push of older nodes.

nwaku's light push needs a service peer or the service itself; its relay endpoints need relay. After a 404 the next
endpoint is used, until the node reconnects. go-waku has relay, and light push as in nwaku before version 3: with texts
in place of status codes.

`fairway.wire.lightpush.client_action` says what an answer means. A node that relays a message to nobody may know it
already (`ClientAction.NOT_RELAYED`). It counts as known if this client handed the node the same message before, by its
message hash, and the node took it or did not answer in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import quote

from fairway.errors import DecodeError, NodeUnavailableError
from fairway.json_reading import read_json
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.nodes.rest.http_client import HttpClient, HttpReply
from fairway.nodes.rest.options import SendWay
from fairway.nodes.rest.shapes import PushAnswer, PushRequest, json_of, relay_shape
from fairway.protocol.recent_hashes import RecentHashes
from fairway.wire.lightpush import ClientAction, StatusCode, client_action

_NO_SERVICE_PEER: Final = "no suitable service peer"
_NOT_SUBSCRIBED: Final = "not subscribed to topic"
_CODES_OF_ANY_ENDPOINT: Final = frozenset({StatusCode.PAYLOAD_TOO_LARGE, StatusCode.TOO_MANY_REQUESTS})
"""Status codes that mean the same outside ``/lightpush/v3``; nwaku says 400, 500 and 503 of many things there."""


class Sender:
    """Sends messages to one node."""

    def __init__(self, http: HttpClient, ways: Sequence[SendWay]) -> None:
        self._http: Final = http
        self._ways: Final = tuple(ways)
        self._first = 0
        self._handed: Final = RecentHashes()
        """Message hashes of messages that the node took, or left without an answer."""
        self._by: Final[dict[SendWay, Callable[[RoutedMessage], Awaitable[SendResult | HttpReply]]]] = {
            SendWay.LIGHTPUSH: self._push,
            SendWay.RELAY: self._relay,
            SendWay.LIGHTPUSH_V1: self._push_v1,
        }

    def reset(self) -> None:
        """Forget which endpoints the node offers: they may have changed."""
        self._first = 0

    async def send(self, message: RoutedMessage) -> SendResult:
        """Send a message by the first endpoint that the node offers."""
        said: list[str] = []
        for index in range(self._first, len(self._ways)):
            way = self._ways[index]
            try:
                result = await self._by[way](message)
            except NodeUnavailableError as error:
                if isinstance(error.__cause__, TimeoutError):
                    self._handed.add(message.message_hash)
                return SendResult(accepted=False, detail=str(error))
            if isinstance(result, SendResult):
                if result.accepted:
                    self._handed.add(message.message_hash)
                return result
            said.append(f"{way.value}: {result.status} {result.text}")
            if result.status in {400, 404, 405}:
                self._first = min(index + 1, len(self._ways) - 1)
        return SendResult(accepted=False, detail=f"the node offers no way to send: {'; '.join(said)}")

    async def _push(self, message: RoutedMessage) -> SendResult | HttpReply:
        request = PushRequest(message=relay_shape(message.message), pubsub_topic=message.pubsub_topic)
        reply = await self._http.request("POST", "/lightpush/v3/message", json_of(request))
        try:
            said = read_json(reply.body, PushAnswer).status_desc or ""
        except DecodeError:
            if reply.status in {400, 404, 405}:
                return reply  # not the words of a light push: there is none
            said = reply.text
        if client_action(reply.status, said) is ClientAction.NO_PEERS and _NO_SERVICE_PEER in said.lower():
            return reply  # nobody to push to; the node itself may be a relay, and this is not its relay's answer
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
        return reply if reply.status in {404, 405} else self._of_any_endpoint(message, reply)

    async def _push_v1(self, message: RoutedMessage) -> SendResult | HttpReply:
        request = PushRequest(message=relay_shape(message.message), pubsub_topic=message.pubsub_topic)
        reply = await self._http.request("POST", "/lightpush/v1/message", json_of(request))
        return reply if reply.status in {404, 405} else self._of_any_endpoint(message, reply)

    def _of_any_endpoint(self, message: RoutedMessage, reply: HttpReply) -> SendResult:
        has_code = reply.status == StatusCode.SUCCESS or reply.status in _CODES_OF_ANY_ENDPOINT
        return self._outcome(message, reply, reply.status if has_code else None, reply.text)

    def _outcome(self, message: RoutedMessage, reply: HttpReply, status_code: int | None, said: str) -> SendResult:
        action = client_action(status_code, said)
        is_known = action is ClientAction.NOT_RELAYED and message.message_hash in self._handed
        if is_known or action in {ClientAction.DONE, ClientAction.KNOWN}:
            return SendResult(accepted=True)
        unserved = status_code == StatusCode.UNSUPPORTED_PUBSUB_TOPIC
        return SendResult.refused(action, f"{reply.status} {said}".strip(), unserved=unserved)
