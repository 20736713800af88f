"""`LightPushService`: publishes the messages of clients (WAKU-LIGHTPUSH).

It turns the bytes of a request into the bytes of a response. Every request whose id can be decoded gets a response with
a status code of WAKU-LIGHTPUSH; only 200 means that the message was relayed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from fairway.errors import ConfigurationError, DecodeError, FairwayError
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.nodes.protocols.rules import JudgeProof, MessageRules, Refusal
from fairway.wire.lightpush import (
    LightPushRequest,
    LightPushResponse,
    PushResponseV2,
    StatusCode,
    decode_lightpush_request,
    decode_push_request_v2,
    encode_lightpush_response,
    encode_push_response_v2,
)
from fairway.wire.waku_message import WakuMessage

_BESIDE_MESSAGE_BYTES: Final = 65_536
_MAX_REQUEST_BYTES: Final = 4_194_304
_LOG: Final = logging.getLogger(__name__)


Publish = Callable[[str, bytes, WakuMessage], Awaitable[int]]
"""Publishes an encoded message on a pubsub topic, and returns the number of relay peers that it was sent to.

Raises a `FairwayError` if that is not possible now."""

Sharding = Callable[[str], str]
"""Returns the pubsub topic of a content topic, or raises `ConfigurationError` for one that does not parse."""


class LightPushService:
    """Answers requests of both versions of the protocol."""

    def __init__(
        self,
        *,
        rules: MessageRules,
        limiter: RequestLimiter,
        publish: Publish,
        sharding: Sharding,
        needs_relay_peers: bool,
        judge_proof: JudgeProof | None = None,
    ) -> None:
        """With ``needs_relay_peers`` a message without a relay peer is refused with 505.

        Otherwise the node is a network of its own, and counts as the one peer that has the message: nwaku's client
        takes a response without a ``relay_peer_count`` above 0 as a failure.
        ``sharding`` finds the pubsub topic for requests that name none. ``judge_proof`` judges RLN proofs, which the
        clients make; None: without RLN.
        """
        self._judge_proof: Final = judge_proof
        self._rules: Final = rules
        self._limiter: Final = limiter
        self._publish: Final = publish
        self._sharding: Final = sharding
        self._needs_relay_peers: Final = needs_relay_peers
        self.refused: Final[Counter[StatusCode]] = Counter()
        """Refused requests by status code."""

    async def respond(self, peer: str, data: bytes, *, now_s: float, now_ns: int) -> bytes:
        """Return the response to a request of version 3.

        ``now_s`` is a monotonic clock in seconds, ``now_ns`` is Unix nanoseconds.
        """
        try:
            request = decode_lightpush_request(data, max_bytes=self.max_request_bytes)
        except DecodeError as error:
            response = self._refuse("", StatusCode.BAD_REQUEST, str(error))
        else:
            response = await self.push(peer, request, now_s=now_s, now_ns=now_ns)
        return encode_lightpush_response(response)

    async def respond_v2(self, peer: str, data: bytes, *, now_s: float, now_ns: int) -> bytes:
        """Return the response to a request of version 2 (19/WAKU2-LIGHTPUSH), which has no codes."""
        try:
            request = decode_push_request_v2(data, max_bytes=self.max_request_bytes)
        except DecodeError as error:
            self.refused[StatusCode.BAD_REQUEST] += 1
            return encode_push_response_v2(PushResponseV2(request_id="", is_success=False, info=str(error)))
        response = await self.push(peer, request, now_s=now_s, now_ns=now_ns)
        return encode_push_response_v2(
            PushResponseV2(request_id=request.request_id, is_success=response.is_success, info=response.status_desc)
        )

    async def push(self, peer: str, request: LightPushRequest, *, now_s: float, now_ns: int) -> LightPushResponse:
        """Publish the message of a request, and return the response."""

        def refuse(status: StatusCode, detail: str) -> LightPushResponse:
            return self._refuse(request.request_id, status, detail)

        if not self._limiter.admit(peer, now_s):
            return refuse(StatusCode.TOO_MANY_REQUESTS, "more requests than this node allows a peer; wait a second")
        if not request.request_id:
            return refuse(StatusCode.BAD_REQUEST, "a lightpush request needs a request_id")
        try:
            pubsub_topic = request.pubsub_topic or self._sharding(request.message().content_topic)
        except (DecodeError, ConfigurationError) as error:
            return refuse(StatusCode.BAD_REQUEST, str(error))
        encoded = request.message_bytes or b""
        judged = self._rules.judge(pubsub_topic, encoded, now_ns)
        if isinstance(judged, Refusal):
            return refuse(judged.status, judged.detail)
        if self._judge_proof is not None:
            fault = await self._judge_proof(peer, RoutedMessage.of(pubsub_topic, judged, encoded))
            if fault is not None:
                refusal = Refusal.of_proof(fault)
                return refuse(refusal.status, refusal.detail)
        try:
            relay_peer_count = await self._publish(pubsub_topic, encoded, judged)
        except FairwayError as error:
            _LOG.warning("a message of %s was not published: %s", peer, error)
            return refuse(StatusCode.INTERNAL_SERVER_ERROR, str(error))
        if self._needs_relay_peers and not relay_peer_count:
            return refuse(StatusCode.NO_PEERS_TO_RELAY, "this node has no relay peers for the topic now")
        return LightPushResponse(
            request_id=request.request_id,
            status_code=StatusCode.SUCCESS,
            status_desc="OK",
            relay_peer_count=relay_peer_count or 1,
        )

    def _refuse(self, request_id: str, status: StatusCode, detail: str) -> LightPushResponse:
        self.refused[status] += 1
        return LightPushResponse(request_id=request_id, status_code=status, status_desc=detail[:1_000])

    @property
    def max_request_bytes(self) -> int:
        """Length up to which a request is read, so that a message that is too long is answered with 413."""
        return max(self._rules.max_message_bytes + _BESIDE_MESSAGE_BYTES, _MAX_REQUEST_BYTES)
