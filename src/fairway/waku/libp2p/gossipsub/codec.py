"""RPCs of gossipsub: bytes to values and back (libp2p "pubsub", "gossipsub" 1.0 and 1.1, 11/WAKU2-RELAY).

Messages stay the very bytes that came until they are looked at one by one, and are passed on as those bytes. Under
StrictNoSign, Waku's policy, a message has data and topic and nothing else: one that names its author, a sequence
number, a key or a signature is malformed. What is beyond the bounds of `GossipsubOptions` is left out, never kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from fairway.waku.libp2p.errors import FrameError
from fairway.waku.libp2p.gossipsub.options import GossipsubOptions
from fairway.waku.libp2p.proto import gossipsub_pb2
from fairway.waku.libp2p.varint import encode_uvarint

_PUBLISH_TAG: Final = b"\x12"
_CONTROL_TAG: Final = b"\x1a"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChange:
    """What a peer says of its interest in a topic."""

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
    """A peer has taken us into its mesh."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """A peer has taken us out of its mesh, or refuses to be in ours."""

    topic: str
    backoff_s: int | None = None
    """How long it does not want to be grafted; peer exchange is neither offered nor taken."""


Control = IHave | IWant | Graft | Prune


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """What a peer sent in one frame."""

    subscriptions: tuple[SubscriptionChange, ...] = ()
    messages: tuple[bytes, ...] = ()
    """Encoded messages, see `decode_message`."""
    control: tuple[Control, ...] = ()
    is_excessive: bool = False
    """Whether it had more of anything than any honest peer sends at once: reading it cost more than sending it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message under StrictNoSign."""

    topic: str
    data: bytes


class ForeignMessageError(FrameError):
    """A message that follows another policy than StrictNoSign, or goes beyond our bounds, not theirs."""


def decode_rpc(encoded: bytes, options: GossipsubOptions) -> Rpc:
    """Return the RPC in ``encoded``, or raise `FrameError` if it is none."""
    if len(encoded) > options.max_rpc_bytes:
        raise FrameError(f"an RPC of {len(encoded)} bytes; at most {options.max_rpc_bytes} are read")
    try:
        parsed = gossipsub_pb2.Rpc.FromString(encoded)
    except (ProtobufDecodeError, ValueError) as error:
        raise FrameError(f"{len(encoded)} bytes are no gossipsub RPC: {error}") from error
    subscriptions: tuple[SubscriptionChange, ...] = ()
    if parsed.subscriptions:
        subscriptions = tuple(
            SubscriptionChange(topic=change.topic, subscribed=change.subscribe)
            for change in islice(parsed.subscriptions, options.max_control_per_rpc)
            if _is_topic(change.topic, options)
        )
    return Rpc(
        subscriptions=subscriptions,
        messages=tuple(islice(parsed.publish, options.max_messages_per_rpc)),
        control=_controls(parsed.control, options) if parsed.HasField("control") else (),
        # The shortest field takes two bytes, so the usual RPC need not be looked at.
        is_excessive=len(encoded) > 2 * options.max_control_per_rpc and _is_excessive(parsed, options),
    )


def decode_message(encoded: bytes, options: GossipsubOptions) -> Message:
    """Return the message in ``encoded``.

    Raises:
        ForeignMessageError: it is one, but not for us; peers that are less strict may pass it on in good faith.
        FrameError: it is none.

    """
    try:
        parsed = gossipsub_pb2.PubsubMessage.FromString(encoded)
    except (ProtobufDecodeError, ValueError) as error:
        raise FrameError(f"no pubsub message: {error}") from error
    # libp2p "pubsub", "Message signing", StrictNoSign: the fields from, seqno, signature and key must be absent.
    # Empty ones are let pass, for some encoders write them so.
    if parsed.from_peer or parsed.seqno or parsed.signature or parsed.key:
        raise ForeignMessageError("the message names an author, a sequence number, a signature or a key")
    if len(parsed.data) > options.max_data_bytes:
        raise ForeignMessageError(
            f"a message of {len(parsed.data)} bytes; at most {options.max_data_bytes} are relayed"
        )
    if not _is_topic(parsed.topic, options):
        raise ForeignMessageError(f"a topic of {len(parsed.topic)} characters")
    return Message(topic=parsed.topic, data=parsed.data)


def encode_message(message: Message) -> bytes:
    """Return a message as it stands in an RPC."""
    encoded: bytes = gossipsub_pb2.PubsubMessage(data=message.data, topic=message.topic).SerializeToString()
    return encoded


def publish_frame(message: bytes) -> bytes:
    """Return an encoded message in an RPC of its own, behind the length of that."""
    rpc_length = len(message) + 1 + len(length := encode_uvarint(len(message)))
    return b"".join((encode_uvarint(rpc_length), _PUBLISH_TAG, length, message))


def subscription_frame(changes: tuple[SubscriptionChange, ...]) -> bytes:
    """Return subscriptions in an RPC, behind its length."""
    rpc = gossipsub_pb2.Rpc(
        subscriptions=[
            gossipsub_pb2.Subscription(subscribe=change.subscribed, topic=change.topic) for change in changes
        ]
    ).SerializeToString()
    return encode_uvarint(len(rpc)) + rpc


def control_frame(controls: tuple[Control, ...]) -> bytes:
    """Return control messages in one RPC, behind its length."""
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


def _is_excessive(parsed: Any, options: GossipsubOptions) -> bool:
    control = parsed.control
    kinds = (parsed.subscriptions, control.ihave, control.iwant, control.graft, control.prune)
    if len(parsed.publish) > options.max_messages_per_rpc or max(map(len, kinds)) > options.max_control_per_rpc:
        return True
    ids = sum(len(told.message_ids) for told in (*control.ihave, *control.iwant))
    return ids > options.max_ihave_messages * options.max_ihave_length


def _controls(parsed: Any, options: GossipsubOptions) -> tuple[Control, ...]:
    bound = options.max_control_per_rpc
    controls: list[Control] = []
    controls += (
        IHave(topic=have.topic, message_ids=_ids(have.message_ids, options))
        for have in islice(parsed.ihave, bound)
        if _is_topic(have.topic, options)
    )
    controls += (IWant(message_ids=_ids(want.message_ids, options)) for want in islice(parsed.iwant, bound))
    controls += (Graft(topic=graft.topic) for graft in islice(parsed.graft, bound) if _is_topic(graft.topic, options))
    controls += (
        Prune(topic=prune.topic, backoff_s=prune.backoff if prune.HasField("backoff") else None)
        for prune in islice(parsed.prune, bound)
        if _is_topic(prune.topic, options)
    )
    return tuple(controls)


def _ids(given: Iterable[bytes], options: GossipsubOptions) -> tuple[bytes, ...]:
    return tuple(one for one in islice(given, options.max_ihave_length) if len(one) <= options.max_id_bytes)


def _is_topic(topic: str, options: GossipsubOptions) -> bool:
    return 0 < len(topic) <= options.max_topic_bytes
