"""Filter: a light client subscribes at a service node, which pushes messages to it (12/WAKU2-FILTER).

Absent and empty fields are distinguished: js-waku's pings have a pubsub topic that is present and empty. A push has the
exact message bytes that the service node relayed. `FilterSubscribeRequest.problem` has the rules of 12/WAKU2-FILTER for
combinations of fields. A client's encoder raises an error for a broken rule, and a service node answers with 400.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import filter_pb2
from fairway.wire.protobuf import encode, parse
from fairway.wire.waku_message import DEFAULT_MAX_ENVELOPE_BYTES, WakuMessage, decode_carried_message

FILTER_SUBSCRIBE_PROTOCOL: Final = "/vac/waku/filter-subscribe/2.0.0-beta1"
"""Client to service node: requests and their responses."""

FILTER_PUSH_PROTOCOL: Final = "/vac/waku/filter-push/2.0.0-beta1"
"""Service node to client: any number of pushes on one stream, without responses."""

MAX_REQUEST_BYTES: Final = 1_048_576
"""Size of the longest request that is parsed, enough for ten thousand content topics."""

MAX_RESPONSE_BYTES: Final = 65_536
"""Size of the longest response that is parsed; a response has an id, a number and a sentence."""


class FilterSubscribeType(IntEnum):
    """The types of a request (12/WAKU2-FILTER, "Filter Subscribe Types")."""

    SUBSCRIBER_PING = 0
    """Ask whether the client has a subscription."""
    SUBSCRIBE = 1
    """Add these content topics, or refresh them."""
    UNSUBSCRIBE = 2
    """Remove these content topics."""
    UNSUBSCRIBE_ALL = 3
    """Remove all content topics."""


_WITH_CRITERIA: Final = frozenset({FilterSubscribeType.SUBSCRIBE, FilterSubscribeType.UNSUBSCRIBE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSubscribeRequest:
    """A request about the client's subscription."""

    request_id: str
    """Unique; repeated in the response."""
    filter_subscribe_type: FilterSubscribeType
    """Type of the request."""
    pubsub_topic: str | None = None
    """The shard of the content topics; ``None`` is absent, ``""`` is present and empty."""
    content_topics: tuple[str, ...] = ()
    """The content topics to add or remove."""

    def problem(self) -> str | None:
        """Return the rule of 12/WAKU2-FILTER that this request breaks, or ``None``."""
        if not self.request_id:
            # "Filter Subscribe Request": "This request MUST contain a request_id".
            return "a filter request needs a request_id"
        if self.filter_subscribe_type in _WITH_CRITERIA and not (self.pubsub_topic and self.content_topics):
            # "Filter matching": criteria MUST contain a pubsub_topic and the content_topics set MUST NOT be
            # empty; "SUBSCRIBE": the client MUST include them, and so for "UNSUBSCRIBE".
            return "to subscribe or unsubscribe, a pubsub_topic and at least one content topic are needed"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSubscribeResponse:
    """The answer to a `FilterSubscribeRequest`."""

    request_id: str
    """Id of the request."""
    status_code: int
    """Status code, as in HTTP."""
    status_desc: str | None = None
    """An explanation for people."""

    @property
    def is_success(self) -> bool:
        """12/WAKU2-FILTER, "Filter Subscribe Response": successful status codes are in the 2xx range."""
        return 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePush:
    """A message that matches a subscription."""

    message_bytes: bytes
    """The encoded `WakuMessage`."""
    pubsub_topic: str | None = None
    """Pubsub topic of the message. js-waku and newer node software drop a push without it."""

    def message(self) -> WakuMessage:
        """Return the message, or raise `DecodeError`."""
        return decode_carried_message(self.message_bytes)


def encode_filter_subscribe_request(request: FilterSubscribeRequest) -> bytes:
    """Return ``request`` as protobuf, or raise `ConfigurationError` for a rule that `problem` returns."""
    problem = request.problem()
    if problem is not None:
        raise ConfigurationError(problem)
    return encode(
        filter_pb2.FilterSubscribeRequest,
        request_id=request.request_id,
        filter_subscribe_type=request.filter_subscribe_type,
        pubsub_topic=request.pubsub_topic,
        content_topics=request.content_topics,
    )


def decode_filter_subscribe_request(data: bytes) -> FilterSubscribeRequest:
    """Return the request that ``data`` encodes, or raise `DecodeError`, also for an unknown type of request.

    Combinations of fields are not checked here; a service node calls `FilterSubscribeRequest.problem`.
    """
    parsed = parse(filter_pb2.FilterSubscribeRequest, data, max_bytes=MAX_REQUEST_BYTES)
    try:
        subscribe_type = FilterSubscribeType(parsed.filter_subscribe_type)
    except ValueError as error:
        raise DecodeError(f"FilterSubscribeRequest: unknown type {parsed.filter_subscribe_type}") from error
    return FilterSubscribeRequest(
        request_id=parsed.request_id,
        filter_subscribe_type=subscribe_type,
        pubsub_topic=parsed.pubsub_topic if parsed.HasField("pubsub_topic") else None,
        content_topics=tuple(parsed.content_topics),
    )


def encode_filter_subscribe_response(response: FilterSubscribeResponse) -> bytes:
    """Return ``response`` as protobuf, or raise `ConfigurationError` for a value that a field cannot hold."""
    return encode(
        filter_pb2.FilterSubscribeResponse,
        request_id=response.request_id,
        status_code=response.status_code,
        status_desc=response.status_desc,
    )


def decode_filter_subscribe_response(data: bytes) -> FilterSubscribeResponse:
    """Return the response that ``data`` encodes, or raise `DecodeError`."""
    parsed = parse(filter_pb2.FilterSubscribeResponse, data, max_bytes=MAX_RESPONSE_BYTES)
    return FilterSubscribeResponse(
        request_id=parsed.request_id,
        status_code=parsed.status_code,
        status_desc=parsed.status_desc if parsed.HasField("status_desc") else None,
    )


def encode_message_push(push: MessagePush) -> bytes:
    """Return ``push`` as protobuf, or raise `ConfigurationError` for a value that a field cannot hold."""
    return encode(filter_pb2.MessagePush, waku_message=push.message_bytes, pubsub_topic=push.pubsub_topic)


def decode_message_push(data: bytes) -> MessagePush:
    """Return the push that ``data`` encodes, or raise `DecodeError`; its message is not decoded.

    12/WAKU2-FILTER, "Message Push": each MessagePush MUST contain one waku_message, so one without is
    refused.
    """
    parsed = parse(filter_pb2.MessagePush, data, max_bytes=DEFAULT_MAX_ENVELOPE_BYTES)
    if not parsed.HasField("waku_message"):
        raise DecodeError("MessagePush: no waku_message in it")
    return MessagePush(
        message_bytes=parsed.waku_message,
        pubsub_topic=parsed.pubsub_topic if parsed.HasField("pubsub_topic") else None,
    )
