"""The frames between a `NetworkServer` and its clients.

A frame is its length, 4 bytes big-endian, and that many bytes of MessagePack: one of the structs below, with a tag. A
client begins with `Hello`; after the `Welcome`, answers name the number of their request, and messages for filters are
pushed. A frame longer than `MAX_FRAME_BYTES`, or of no known kind, is a `DecodeError` and ends its connection.

This is a private format between processes of one machine, not a protocol of the Waku network.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec

from fairway.errors import DecodeError
from fairway.waku.node import NodeQuota, NodeStatus, RoutedMessage, SendResult, StoreQuery
from fairway.wire.waku_message import MESSAGE_HASH_BYTES, decode_waku_message

VERSION: Final = 2
"""Version of this format; a server refuses other versions."""

MAX_FRAME_BYTES: Final = 4_194_304
"""Longer frames are not read: room for a store page, which ends after 1 MiB and one more message."""

_LENGTH_BYTES: Final = 4


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """A `RoutedMessage`: its encoding and its message hash."""

    pubsub_topic: str
    encoded: bytes
    message_hash: bytes

    @classmethod
    def of(cls, message: RoutedMessage) -> Carried:
        """Pack a message."""
        return cls(message.pubsub_topic, message.encoded, message.message_hash)

    def unpack(self) -> RoutedMessage:
        """Return the message; raises `DecodeError` if the bytes are not a WakuMessage."""
        if len(self.message_hash) != MESSAGE_HASH_BYTES:
            raise DecodeError(f"a message hash has {MESSAGE_HASH_BYTES} bytes, not {len(self.message_hash)}")
        return RoutedMessage(
            pubsub_topic=self.pubsub_topic,
            message=decode_waku_message(self.encoded),
            encoded=self.encoded,
            message_hash=self.message_hash,
        )


class Filter(msgspec.Struct, frozen=True, array_like=True):
    """What a client subscribes to; pushes carry the number."""

    number: int
    pubsub_topic: str
    content_topics: tuple[str, ...]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first frame of a client that connects, or connects again."""

    version: int
    token: bytes
    """Identifies a client that connects again, among others of the same name."""
    name: str | None = None
    filters: tuple[Filter, ...] = ()


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe"):
    """Answered with `Done`."""

    request: int
    filter: Filter


class Unsubscribe(msgspec.Struct, frozen=True, tag="unsubscribe"):
    """Not answered."""

    number: int


class PublishFrame(msgspec.Struct, frozen=True, tag="publish"):
    """Answered with `SentFrame`."""

    request: int
    pubsub_topic: str
    encoded: bytes


class Query(msgspec.Struct, frozen=True, tag="query"):
    """Answered with `Page` or `Failed`."""

    request: int
    query: StoreQuery
    cursor: bytes | None = None


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The server accepted the client and its filters."""

    name: str
    status: NodeStatus
    quota: NodeQuota | None


class StatusFrame(msgspec.Struct, frozen=True, tag="status"):
    """The status of the client's node."""

    status: NodeStatus
    quota: NodeQuota | None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A request was carried out."""

    request: int


class SentFrame(msgspec.Struct, frozen=True, tag="sent"):
    """The result of a `PublishFrame`."""

    request: int
    result: SendResult
    quota: NodeQuota | None


class Page(msgspec.Struct, frozen=True, tag="page"):
    """One page of the answer to a query."""

    request: int
    messages: tuple[Carried, ...]
    cursor: bytes | None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request cannot be carried out now."""

    request: int
    detail: str


class Pushed(msgspec.Struct, frozen=True, tag="pushed"):
    """A message for one filter."""

    number: int
    message: Carried


Request = Subscribe | Unsubscribe | PublishFrame | Query
FromClient = Hello | Request
Answer = Done | SentFrame | Page | Failed
FromServer = Welcome | StatusFrame | Pushed | Answer

Frame = TypeVar("Frame")

_ENCODER: Final = msgspec.msgpack.Encoder()
FROM_CLIENT: Final[msgspec.msgpack.Decoder[FromClient]] = msgspec.msgpack.Decoder(FromClient)
"""Reads what clients send."""
FROM_SERVER: Final[msgspec.msgpack.Decoder[FromServer]] = msgspec.msgpack.Decoder(FromServer)
"""Reads what servers send."""


def pack(frame: FromClient | FromServer) -> bytes:
    """Return a frame with its length in front; raises `OverflowError` for numbers beyond 64 bits."""
    body = _ENCODER.encode(frame)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_frame(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[Frame]) -> Frame:
    """Return the next frame; raises `DecodeError` for a malformed one, `EOFError` at the end of the connection."""
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if not 0 < length <= MAX_FRAME_BYTES:
        raise DecodeError(f"a frame has 1..{MAX_FRAME_BYTES} bytes, not {length}")
    body = await reader.readexactly(length)
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"a frame cannot be read: {error}") from error
