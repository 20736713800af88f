"""The JSON of nwaku's REST API for messages and requests; client and server use it.

Pure. Source: nwaku, ``waku/rest_api/endpoint/{relay,lightpush,filter,store}/types.nim`` and
``logos_delivery/messaging/rest_api/types.nim``. Bytes are base64, times are
nanoseconds; relay, filter and store leave out different empty fields. JSON of another shape is a `DecodeError`.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fairway.errors import DecodeError
from fairway.wire.waku_message import WakuMessage

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Uint32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
ContentTopic = Annotated[str, Meta(examples=["/myapp/1/room/proto"])]
Base64 = Annotated[str, Meta(examples=["aGVsbG8="])]


class JsonMessage(msgspec.Struct, rename="camel"):
    """A WakuMessage; relay writes all but an empty ``meta``, filter no ``proof``, store neither when it is empty."""

    payload: Base64
    content_topic: str | UnsetType | None = UNSET
    version: Uint32 | UnsetType | None = UNSET
    timestamp: Int64 | UnsetType | None = UNSET
    meta: str | UnsetType | None = UNSET
    ephemeral: bool | UnsetType | None = UNSET
    proof: str | UnsetType | None = UNSET


class MessageRequest(JsonMessage, rename="camel", forbid_unknown_fields=True):
    """A WakuMessage to publish. Like nwaku, a node refuses unknown fields and null in it; answers may have both."""

    content_topic: ContentTopic | UnsetType = UNSET
    version: Uint32 | UnsetType = UNSET
    timestamp: Int64 | UnsetType = UNSET
    meta: str | UnsetType = UNSET
    ephemeral: bool | UnsetType = UNSET
    proof: str | UnsetType = UNSET


class PushRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """``POST /lightpush/v3/message`` and ``/lightpush/v1/message``."""

    message: MessageRequest
    pubsub_topic: str | UnsetType | None = UNSET


class PushAnswer(msgspec.Struct, rename="camel"):
    """Its answer: a count, or the reason of the failure."""

    status_desc: str | UnsetType | None = UNSET
    relay_peer_count: Uint32 | UnsetType | None = UNSET


class FilterRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """``POST``, ``PUT`` and ``DELETE /filter/v2/subscriptions``."""

    request_id: str
    content_filters: Annotated[list[ContentTopic], Meta(min_length=1)]
    pubsub_topic: str | UnsetType | None = UNSET


class FilterAllRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """``DELETE /filter/v2/subscriptions/all``."""

    request_id: str


class FilterAnswer(msgspec.Struct, rename="camel"):
    """The answer to all filter requests."""

    request_id: str
    status_desc: str = ""


class StoredEntry(msgspec.Struct, rename="camel"):
    """One message of a store's page, and of the event stream."""

    message_hash: str
    message: JsonMessage | UnsetType = UNSET
    pubsub_topic: str | UnsetType = UNSET


class StoredPage(msgspec.Struct, rename="camel"):
    """``GET /store/v3/messages``."""

    request_id: str
    status_code: int
    status_desc: str
    messages: list[StoredEntry]
    pagination_cursor: str | UnsetType = UNSET


class MessagingRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """``POST /messaging/v1/messages``."""

    payload: Base64
    content_topic: ContentTopic
    ephemeral: bool | UnsetType = UNSET
    meta: str | UnsetType = UNSET


class MessagingAnswer(msgspec.Struct, rename="camel"):
    """Its answer."""

    request_id: str


class ReceivedRecord(msgspec.Struct, rename="camel", frozen=True):
    """One message of ``GET /messaging/v1/events/received``."""

    seq: int
    """1 for the first message of the node, and 1 more for each further one."""
    message_hash: str
    message: JsonMessage
    source: str = "live"
    """``history`` in nwaku, if the message is from a store peer; fairway asks none for these messages."""


class SendEvent(msgspec.Struct, rename="camel", frozen=True):
    """An event of a message of ``POST /messaging/v1/messages``."""

    kind: str
    message_hash: str
    timestamp: Int64
    """Time of the event, in Unix nanoseconds."""
    error: str | UnsetType = UNSET


class SendStatus(msgspec.Struct, rename="camel"):
    """``GET /messaging/v1/events/send/{requestId}``: the events of one send."""

    request_id: str
    events: list[SendEvent]


def json_of(shape: Any) -> bytes:
    """Return a struct, or any JSON value, as JSON."""
    return msgspec.json.encode(shape)


def relay_shape(message: WakuMessage) -> MessageRequest:
    """Return a message as relay writes it."""
    return MessageRequest(
        payload=_base64(message.payload),
        content_topic=message.content_topic,
        version=message.version or 0,
        timestamp=message.timestamp_ns or 0,
        meta=_base64(message.meta) if message.meta else UNSET,
        ephemeral=bool(message.ephemeral),
        proof=_base64(message.rate_limit_proof or b""),
    )


def filter_shape(message: WakuMessage) -> JsonMessage:
    """Return a message as filter writes it: without its proof."""
    return msgspec.structs.replace(relay_shape(message), proof=UNSET)


def store_shape(message: WakuMessage) -> JsonMessage:
    """Return a message as a store writes it."""
    return relay_shape(message) if message.rate_limit_proof else filter_shape(message)


def message_of(shape: JsonMessage) -> WakuMessage:
    """Return the message of a struct.

    Raises `DecodeError` if payload or content topic are missing, and for bytes that are not base64.
    """
    if not shape.payload.strip():
        raise DecodeError("Field `payload` is missing or empty")
    if not isinstance(shape.content_topic, str) or not shape.content_topic.strip():
        raise DecodeError("Field `contentTopic` is missing or empty")
    return stored_message_of(shape)


def stored_message_of(shape: JsonMessage) -> WakuMessage:
    """Return the message of a struct, whose payload and content topic may be empty, as stores have it."""
    topic = shape.content_topic
    if not isinstance(topic, str):
        raise DecodeError("Field `contentTopic` is missing")
    return WakuMessage(
        payload=bytes_of(shape.payload),
        content_topic=topic,
        version=shape.version or None,
        timestamp_ns=shape.timestamp or None,
        meta=bytes_of(shape.meta or "") or None,
        rate_limit_proof=bytes_of(shape.proof or "") or None,
        ephemeral=shape.ephemeral or None,
    )


def bytes_of(text: str) -> bytes:
    """Decode base64, with padding or without; raise `DecodeError`."""
    try:
        # Some clients omit the padding.
        return a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"not base64: {error}") from error


def hex_of(message_hash: bytes) -> str:
    """Return a hash as the API writes it."""
    return f"0x{message_hash.hex()}"


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
