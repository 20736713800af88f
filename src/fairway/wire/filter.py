"""Filter: a light client subscribes at a service node, which pushes messages to it (12/WAKU2-FILTER).

Presence is kept: js-waku's pings carry a pubsub topic that is present and empty. A push holds the message
as the very bytes that the service node relayed. What 12/WAKU2-FILTER demands of the combination of fields
is one sentence per rule in `FilterSubscribeRequest.problem`: a client's encoder refuses such a request, a
service node answers it with 400.
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
"""Service node to client: any number of pushes on one stream, never answered."""

MAX_REQUEST_BYTES: Final = 1_048_576
"""Longer requests are not parsed: room for ten thousand content topics."""

MAX_RESPONSE_BYTES: Final = 65_536
"""Longer responses are not parsed; all they hold is an id, a number and a sentence."""


class FilterSubscribeType(IntEnum):
    """What a request asks for (12/WAKU2-FILTER, "Filter Subscribe Types")."""

    SUBSCRIBER_PING = 0
    """Is there any subscription of mine?"""
    SUBSCRIBE = 1
    """Add these content topics, or refresh them."""
    UNSUBSCRIBE = 2
    """Remove these content topics."""
    UNSUBSCRIBE_ALL = 3
    """Remove whatever there is."""


_WITH_CRITERIA: Final = frozenset({FilterSubscribeType.SUBSCRIBE, FilterSubscribeType.UNSUBSCRIBE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSubscribeRequest:
    """A request about the client's subscription."""

    request_id: str
    """Unique; repeated in the response."""
    filter_subscribe_type: FilterSubscribeType
    """What is asked for."""
    pubsub_topic: str | None = None
    """The shard that the content topics are on; ``None`` is absent, ``""`` is present and empty."""
    content_topics: tuple[str, ...] = ()
    """The content topics to add or remove."""

    def problem(self) -> str | None:
        """Return what 12/WAKU2-FILTER forbids about this request, or ``None`` if it is in order."""
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
    """That of the request."""
    status_code: int
    """As in HTTP."""
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
    """Where it was published. js-waku and newer node software drop a push without it."""

    def message(self) -> WakuMessage:
        """Return the message, or raise `DecodeError`."""
        return decode_carried_message(self.message_bytes)


def encode_filter_subscribe_request(request: FilterSubscribeRequest) -> bytes:
    """Return ``request`` as protobuf, or raise `ConfigurationError` for what `problem` finds."""
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

    The combination of fields is not judged here; a service node asks `FilterSubscribeRequest.problem`.
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
    """Return the push that ``data`` encodes, or raise `DecodeError`; the message in it is not looked at.

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
