"""Light push: a client asks a service node to publish a message.

WAKU-LIGHTPUSH is version 3 of the protocol, 19/WAKU2-LIGHTPUSH version 2.

A request holds the message as the received bytes, because a service node must hash and relay them. `STATUS_TABLE` has
the action of a client for each result code. "The list of error codes is not complete and can be extended in the future"
(WAKU-LIGHTPUSH, "Examples of possible error codes"): `client_action` treats an unknown code as the generic code of its
class.

Node software uses one code for several results, and over REST and in version 2 often no code. The text of the answer
distinguishes them: `WORDS_TABLE` takes precedence over the code. Its words are those of nwaku (up to v0.38.1 and its
development branch) and of go-waku 0.10.1.

* 420: the message failed validation. The timestamp or the RLN proof was refused, so the same content may pass with new
  ones. nwaku also answers 420 for a message that is too large; over REST 500, and in version 2 only the words.
* 505: the message reached no peer. The node has no relay peers, or it has relayed the message before: gossipsub relays
  a message once, and nwaku does not distinguish the two.
* 503: "no peers to relay" in WAKU-LIGHTPUSH, "service not available" in newer node software. In both cases the node
  cannot reach the network now.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from fairway.errors import DecodeError
from fairway.wire.proto import lightpush_pb2
from fairway.wire.protobuf import encode, parse
from fairway.wire.waku_message import DEFAULT_MAX_ENVELOPE_BYTES, WakuMessage, decode_carried_message

if TYPE_CHECKING:
    from collections.abc import Mapping

LIGHTPUSH_PROTOCOL: Final = "/vac/waku/lightpush/3.0.0"
"""Protocol identifier of version 3, WAKU-LIGHTPUSH."""

LIGHTPUSH_V2_PROTOCOL: Final = "/vac/waku/lightpush/2.0.0-beta1"
"""Protocol identifier of the previous version, 19/WAKU2-LIGHTPUSH."""

MAX_RESPONSE_BYTES: Final = 65_536
"""Longer responses are not parsed."""


class StatusCode(IntEnum):
    """Result codes of WAKU-LIGHTPUSH, "Examples of possible error codes", and those that node software added."""

    SUCCESS = 200
    """The node relayed the message to ``relay_peer_count`` peers."""
    BAD_REQUEST = 400
    """The request is malformed."""
    PAYLOAD_TOO_LARGE = 413
    """The message is larger than the network allows."""
    INVALID_MESSAGE = 420
    """The message failed validation, for example of its RLN proof or its timestamp."""
    UNSUPPORTED_PUBSUB_TOPIC = 421
    """The node does not serve this pubsub topic."""
    TOO_MANY_REQUESTS = 429
    """More requests than the node allows."""
    INTERNAL_SERVER_ERROR = 500
    """The node failed."""
    SERVICE_NOT_AVAILABLE = 503
    """The node has no relay peers, or does not relay at present."""
    OUT_OF_RLN_PROOF = 504
    """The message has no RLN proof and the node cannot make one."""
    NO_PEERS_TO_RELAY = 505
    """The node has no relay peers."""


class ClientAction(Enum):
    """The action of a client after a result."""

    DONE = "done"
    """The node relayed the message."""
    KNOWN = "known"
    """The node has seen the message already: it is in the network."""
    NOT_RELAYED = "not-relayed"
    """The node relayed the message to no peer. If it had got the message before, treat this as `KNOWN`, otherwise as
    `NO_PEERS`."""
    NO_PEERS = "no-peers"
    """The node has no relay peer: try another node, and this one again later."""
    RETRY_ELSEWHERE = "retry-elsewhere"
    """Another node may accept the message: try it, or this node after a pause."""
    RETRY_LATER = "retry-later"
    """The same request may succeed after a pause; send fewer."""
    STAMP_ANEW = "stamp-anew"
    """The message is refused; the same content may pass with a new timestamp and proof."""
    TOO_LARGE = "too-large"
    """The message is larger than the node relays: final, as `NEVER_RESEND_UNCHANGED`."""
    NEVER_RESEND_UNCHANGED = "never-resend-unchanged"
    """Every node would refuse the message or the request."""

    @property
    def is_final(self) -> bool:
        """Whether the same content will be refused again, with any timestamp."""
        return self in {ClientAction.TOO_LARGE, ClientAction.NEVER_RESEND_UNCHANGED}


STATUS_TABLE: Final[Mapping[int, ClientAction]] = MappingProxyType(
    {
        StatusCode.SUCCESS: ClientAction.DONE,
        StatusCode.BAD_REQUEST: ClientAction.NEVER_RESEND_UNCHANGED,
        StatusCode.PAYLOAD_TOO_LARGE: ClientAction.TOO_LARGE,
        StatusCode.INVALID_MESSAGE: ClientAction.STAMP_ANEW,
        StatusCode.UNSUPPORTED_PUBSUB_TOPIC: ClientAction.RETRY_ELSEWHERE,
        StatusCode.TOO_MANY_REQUESTS: ClientAction.RETRY_LATER,
        StatusCode.INTERNAL_SERVER_ERROR: ClientAction.RETRY_ELSEWHERE,
        StatusCode.SERVICE_NOT_AVAILABLE: ClientAction.NO_PEERS,
        StatusCode.OUT_OF_RLN_PROOF: ClientAction.RETRY_ELSEWHERE,
        StatusCode.NO_PEERS_TO_RELAY: ClientAction.NOT_RELAYED,
    }
)
"""The action for every known result code."""

_UNKNOWN_BY_HUNDRED: Final[Mapping[int, ClientAction]] = MappingProxyType(
    {4: ClientAction.NEVER_RESEND_UNCHANGED, 5: ClientAction.RETRY_ELSEWHERE}
)

WORDS_TABLE: Final[tuple[tuple[str, ClientAction], ...]] = (
    ("message size exceed", ClientAction.TOO_LARGE),
    ("already-seen", ClientAction.KNOWN),
    ("duplicatemessage", ClientAction.KNOWN),
    ("no peers for topic", ClientAction.NOT_RELAYED),
    ("not_published_to_any_peer", ClientAction.NOT_RELAYED),
    ("nopeerstopublish", ClientAction.NOT_RELAYED),
    ("not enough peers", ClientAction.NO_PEERS),
    ("no suitable", ClientAction.NO_PEERS),
    ("dial_failure", ClientAction.NO_PEERS),
)
"""Words of node software in lower case, with their action for any code; the first match counts."""

_WORDS_WITHOUT_CODE: Final[tuple[tuple[str, ClientAction], ...]] = (
    ("too_many_requests", ClientAction.RETRY_LATER),
    ("rate limit", ClientAction.RETRY_LATER),
    ("unsubscribed topic", ClientAction.RETRY_ELSEWHERE),
    ("not subscribed to topic", ClientAction.RETRY_ELSEWHERE),
    ("invalid request", ClientAction.NEVER_RESEND_UNCHANGED),
    ("decode_rpc_failure", ClientAction.NEVER_RESEND_UNCHANGED),
    ("empty_request_body_failure", ClientAction.NEVER_RESEND_UNCHANGED),
)
"""Further words, for answers without a code of WAKU-LIGHTPUSH only."""


def client_action(status_code: int | None, words: str | None = None) -> ClientAction:
    """Return the action for a result: a code, known or not, and the text of the answer.

    ``status_code`` None: the answer has no code of WAKU-LIGHTPUSH, as in version 2, and is no success.

    Only 200 is a success: WAKU-LIGHTPUSH, "Payloads", says "has value 200 in case of success". An unknown 4xx counts
    as 400 and an unknown 5xx as 500; after any other code the client tries another node.
    """
    if status_code == StatusCode.SUCCESS:
        return ClientAction.DONE
    said = (words or "").lower()
    for phrase, action in WORDS_TABLE if status_code is not None else WORDS_TABLE + _WORDS_WITHOUT_CODE:
        if phrase in said:
            return action
    if status_code is None:
        return ClientAction.RETRY_ELSEWHERE
    of_its_class = _UNKNOWN_BY_HUNDRED.get(status_code // 100, ClientAction.RETRY_ELSEWHERE)
    return STATUS_TABLE.get(status_code, of_its_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class LightPushRequest:
    """A request to publish one message (WAKU-LIGHTPUSH, "Payloads"), in either version of the protocol."""

    request_id: str
    """Repeated in the response."""
    pubsub_topic: str | None = None
    """Pubsub topic of the message; if it is absent, autosharding determines the topic."""
    message_bytes: bytes | None = None
    """The encoded `WakuMessage`. A request without one is a bad request, kept so that it can be answered."""

    def message(self) -> WakuMessage:
        """Return the message, or raise `DecodeError` if it is absent or not decodable."""
        return decode_carried_message(self.message_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LightPushResponse:
    """The answer to a `LightPushRequest` (WAKU-LIGHTPUSH, "Payloads")."""

    request_id: str
    """That of the request."""
    status_code: int
    """A `StatusCode` or an unknown code."""
    status_desc: str | None = None
    """An explanation for people."""
    relay_peer_count: int | None = None
    """Peers that the message was relayed to; may be absent or 0 on error (WAKU-LIGHTPUSH, "Message Relaying"). A
    fairway node that is its own network counts itself."""

    @property
    def is_success(self) -> bool:
        """Whether the node relayed the message."""
        return self.status_code == StatusCode.SUCCESS

    @property
    def action(self) -> ClientAction:
        """The action for the client."""
        return client_action(self.status_code, self.status_desc)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushResponseV2:
    """A response of 19/WAKU2-LIGHTPUSH, with the id of its envelope."""

    request_id: str
    """That of the request."""
    is_success: bool
    """Whether the node relayed the message."""
    info: str | None = None
    """An explanation for people."""


def encode_lightpush_request(request: LightPushRequest) -> bytes:
    """Return ``request`` as protobuf, or raise `ConfigurationError` for a value that a field cannot hold."""
    return encode(
        lightpush_pb2.LightPushRequest,
        request_id=request.request_id,
        pubsub_topic=request.pubsub_topic,
        message=request.message_bytes,
    )


def decode_lightpush_request(data: bytes, max_bytes: int = DEFAULT_MAX_ENVELOPE_BYTES) -> LightPushRequest:
    """Return the request that ``data`` encodes, or raise `DecodeError`; its message is not decoded."""
    parsed = parse(lightpush_pb2.LightPushRequest, data, max_bytes=max_bytes)
    return LightPushRequest(
        request_id=parsed.request_id,
        pubsub_topic=parsed.pubsub_topic if parsed.HasField("pubsub_topic") else None,
        message_bytes=parsed.message if parsed.HasField("message") else None,
    )


def encode_lightpush_response(response: LightPushResponse) -> bytes:
    """Return ``response`` as protobuf, or raise `ConfigurationError` for a value that a field cannot hold."""
    return encode(
        lightpush_pb2.LightPushResponse,
        request_id=response.request_id,
        status_code=response.status_code,
        status_desc=response.status_desc,
        relay_peer_count=response.relay_peer_count,
    )


def decode_lightpush_response(data: bytes) -> LightPushResponse:
    """Return the response that ``data`` encodes, or raise `DecodeError`."""
    parsed = parse(lightpush_pb2.LightPushResponse, data, max_bytes=MAX_RESPONSE_BYTES)
    return LightPushResponse(
        request_id=parsed.request_id,
        status_code=parsed.status_code,
        status_desc=parsed.status_desc if parsed.HasField("status_desc") else None,
        relay_peer_count=parsed.relay_peer_count if parsed.HasField("relay_peer_count") else None,
    )


def encode_push_request_v2(request: LightPushRequest) -> bytes:
    """Return ``request`` in the envelope of version 2, or raise `ConfigurationError`."""
    return encode(
        lightpush_pb2.PushRpcV2,
        request_id=request.request_id,
        request=encode(lightpush_pb2.PushRequestV2, pubsub_topic=request.pubsub_topic, message=request.message_bytes),
    )


def decode_push_request_v2(data: bytes, max_bytes: int = DEFAULT_MAX_ENVELOPE_BYTES) -> LightPushRequest:
    """Return the version 2 request in ``data``, or raise `DecodeError`, also if the envelope has none.

    Version 2 does not distinguish an empty pubsub topic from an absent one.
    """
    envelope = parse(lightpush_pb2.PushRpcV2, data, max_bytes=max_bytes)
    if not envelope.HasField("request"):
        raise DecodeError("PushRPC: no request in it")
    parsed = parse(lightpush_pb2.PushRequestV2, envelope.request, max_bytes=max_bytes)
    return LightPushRequest(
        request_id=envelope.request_id,
        pubsub_topic=parsed.pubsub_topic or None,
        message_bytes=parsed.message if parsed.HasField("message") else None,
    )


def encode_push_response_v2(response: PushResponseV2) -> bytes:
    """Return ``response`` in its version 2 envelope, or raise `ConfigurationError`."""
    return encode(
        lightpush_pb2.PushRpcV2,
        request_id=response.request_id,
        response=encode(lightpush_pb2.PushResponseV2, is_success=response.is_success, info=response.info),
    )


def decode_push_response_v2(data: bytes) -> PushResponseV2:
    """Return the version 2 response in ``data``, or raise `DecodeError`, also if the envelope has none."""
    envelope = parse(lightpush_pb2.PushRpcV2, data, max_bytes=MAX_RESPONSE_BYTES)
    if not envelope.HasField("response"):
        raise DecodeError("PushRPC: no response in it")
    parsed = parse(lightpush_pb2.PushResponseV2, envelope.response, max_bytes=MAX_RESPONSE_BYTES)
    return PushResponseV2(
        request_id=envelope.request_id,
        is_success=parsed.is_success,
        info=parsed.info if parsed.HasField("info") else None,
    )
