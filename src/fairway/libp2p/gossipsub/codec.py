"""RPCs of gossipsub: bytes to values and back (libp2p "pubsub", gossipsub 1.0 and 1.1, 11/WAKU2-RELAY).

Messages of an RPC stay encoded until `decode_message`, and are relayed with the same bytes. Under StrictNoSign, Waku's
policy, a message has only data and topic: one with an author, a sequence number, a key or a signature is malformed.
Parts of an RPC beyond the bounds below are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from fairway.libp2p.decoding import parse_message
from fairway.libp2p.errors import FrameError
from fairway.libp2p.proto import gossipsub_pb2
from fairway.wire.varint import encode_uvarint

MAX_RPC_BYTES: Final = 4_194_304
"""Longest RPC, in bytes."""
MAX_TOPIC_LENGTH: Final = 256
"""Longest topic, in characters."""
MAX_IHAVE_LENGTH: Final = 5_000
"""Message ids in the IHAVEs to a peer, or requested from it, between two heartbeats."""
MAX_IDS_PER_RPC: Final = 4_000
"""Message ids in an IHAVE or IWANT of this node: with ids of 32 bytes 136,000 bytes. nwaku reads RPCs of 153,600."""
MAX_IHAVE_MESSAGES: Final = 10
"""IHAVEs of a peer that are answered between two heartbeats."""
_MAX_MESSAGES_PER_RPC: Final = 1_000
_MAX_CONTROL_PER_RPC: Final = 1_000
"""Subscriptions, and control messages of each kind, that are read from one RPC."""
_MAX_ID_BYTES: Final = 128
"""Longest message id; no implementation of this protocol has longer ones."""
_PUBLISH_TAG: Final = b"\x12"
_CONTROL_TAG: Final = b"\x1a"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChange:
    """A peer subscribes to a topic, or unsubscribes."""

    topic: str
    subscribed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IHave:
    """Message ids of a topic that a peer has."""

    topic: str
    message_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IWant:
    """Message ids that a peer asks for."""

    message_ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graft:
    """A peer has added this node to its mesh."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """A peer has removed this node from its mesh, or refuses a graft."""

    topic: str
    backoff_s: int | None = None
    """Seconds for which the peer accepts no graft. Peer exchange is neither offered nor used."""


Control = IHave | IWant | Graft | Prune


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """The content of one frame of a peer."""

    subscriptions: tuple[SubscriptionChange, ...] = ()
    messages: tuple[bytes, ...] = ()
    """Encoded messages, see `decode_message`."""
    control: tuple[Control, ...] = ()


class Message(Struct, frozen=True, kw_only=True):
    """A message under StrictNoSign."""

    topic: str
    data: bytes


class ForeignMessageError(FrameError):
    """A message of another policy than StrictNoSign, or beyond a bound of this node only."""


def decode_rpc(encoded: bytes) -> Rpc:
    """Return the RPC in ``encoded``, or raise `FrameError` if it is none."""
    parsed = parse_message(gossipsub_pb2.Rpc, encoded, max_bytes=MAX_RPC_BYTES)
    subscriptions: tuple[SubscriptionChange, ...] = ()
    if parsed.subscriptions:
        subscriptions = tuple(
            SubscriptionChange(topic=change.topic, subscribed=change.subscribe)
            for change in islice(parsed.subscriptions, _MAX_CONTROL_PER_RPC)
            if _is_topic(change.topic)
        )
    return Rpc(
        subscriptions=subscriptions,
        messages=tuple(islice(parsed.publish, _MAX_MESSAGES_PER_RPC)),
        control=_controls(parsed.control) if parsed.HasField("control") else (),
    )


def decode_message(encoded: bytes, max_data_bytes: int) -> Message:
    """Return the message in ``encoded``.

    Raises:
        ForeignMessageError: it is a message, but this node does not accept it; honest peers may relay it.
        FrameError: it is no message.

    """
    parsed = parse_message(gossipsub_pb2.PubsubMessage, encoded, max_bytes=MAX_RPC_BYTES)
    # libp2p "pubsub", "Message signing", StrictNoSign: the fields from, seqno, signature and key must be absent. Empty
    # fields are accepted, because some encoders write them.
    if parsed.from_peer or parsed.seqno or parsed.signature or parsed.key:
        raise ForeignMessageError("the message names an author, a sequence number, a signature or a key")
    if len(parsed.data) > max_data_bytes:
        raise ForeignMessageError(f"a message of {len(parsed.data)} bytes; at most {max_data_bytes} are relayed")
    if not _is_topic(parsed.topic):
        raise ForeignMessageError(f"a topic of {len(parsed.topic)} characters")
    return Message(topic=parsed.topic, data=parsed.data)


def encode_message(message: Message) -> bytes:
    """Return a message in its encoding within an RPC."""
    encoded: bytes = gossipsub_pb2.PubsubMessage(data=message.data, topic=message.topic).SerializeToString()
    return encoded


def publish_frame(message: bytes) -> bytes:
    """Return an RPC with one encoded message, behind its length."""
    rpc_length = len(message) + 1 + len(length := encode_uvarint(len(message)))
    return b"".join((encode_uvarint(rpc_length), _PUBLISH_TAG, length, message))


def subscription_frame(changes: tuple[SubscriptionChange, ...]) -> bytes:
    """Return an RPC with subscriptions, behind its length."""
    rpc = gossipsub_pb2.Rpc(
        subscriptions=[
            gossipsub_pb2.Subscription(subscribe=change.subscribed, topic=change.topic) for change in changes
        ]
    ).SerializeToString()
    return encode_uvarint(len(rpc)) + rpc


def control_frame(controls: tuple[Control, ...]) -> bytes:
    """Return an RPC with control messages, behind its length."""
    control = gossipsub_pb2.Control()
    for message in controls:
        match message:
            case IHave():
                control.ihave.add(topic=message.topic, message_ids=message.message_ids)
            case IWant():
                control.iwant.add(message_ids=message.message_ids)
            case Graft():
                control.graft.add(topic=message.topic)
            case Prune():
                control.prune.add(topic=message.topic, backoff=message.backoff_s)
    body = control.SerializeToString()
    rpc = b"".join((_CONTROL_TAG, encode_uvarint(len(body)), body))
    return encode_uvarint(len(rpc)) + rpc


def _controls(parsed: Any) -> tuple[Control, ...]:
    controls: list[Control] = []
    controls += (
        IHave(topic=have.topic, message_ids=_ids(have.message_ids))
        for have in islice(parsed.ihave, _MAX_CONTROL_PER_RPC)
        if _is_topic(have.topic)
    )
    controls += (IWant(message_ids=_ids(want.message_ids)) for want in islice(parsed.iwant, _MAX_CONTROL_PER_RPC))
    controls += (
        Graft(topic=graft.topic) for graft in islice(parsed.graft, _MAX_CONTROL_PER_RPC) if _is_topic(graft.topic)
    )
    controls += (
        Prune(topic=prune.topic, backoff_s=prune.backoff if prune.HasField("backoff") else None)
        for prune in islice(parsed.prune, _MAX_CONTROL_PER_RPC)
        if _is_topic(prune.topic)
    )
    return tuple(controls)


def _ids(given: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(one for one in islice(given, MAX_IHAVE_LENGTH) if len(one) <= _MAX_ID_BYTES)


def _is_topic(topic: str) -> bool:
    return 0 < len(topic) <= MAX_TOPIC_LENGTH
