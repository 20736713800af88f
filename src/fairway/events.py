"""Every event that an application can see: frozen dataclasses that a ``match`` takes apart.

One set of events serves three vocabularies of names: kebab-case of RELIABLE-CHANNEL-API, ``reliable:message:*`` of
LIP-173, and the names of the Logos C interface. `EVENT_NAMES` maps each event to all of them.

``message_id`` is the id of the logical message (SHA-256 of the payload before segmentation, lower-case hex) and may
repeat; ``request_id`` is unique per send. Times are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """Which segment of a message an event is about (RELIABLE-CHANNEL-API, "Create Reliable Channel": ChunkInfo)."""

    chunk_index: int
    """From 0 to ``total_chunks`` - 1."""
    total_chunks: int
    """Data segments of the message, 1 if it was not segmented; of a parity segment, its parity segments."""
    is_parity: bool = False
    """Whether this is a parity segment; those are counted by themselves."""


class SendErrorReason(Enum):
    """Why a message could not be sent (RELIABLE-CHANNEL-API, "Event handling": irrecoverable errors)."""

    ENCODING_FAILED = "encoding failed"
    EMPTY_PAYLOAD = "empty payload"
    MESSAGE_TOO_LARGE = "message size too large"
    RLN_PROOF_FAILED = "RLN proof generation failed"
    ENCRYPTION_FAILED = "encryption failed"
    REJECTED = "rejected by the network"


class DropReason(Enum):
    """Why an ephemeral message was not sent (RELIABLE-CHANNEL-API, "Event handling": EphemeralDropReason)."""

    RATE_LIMIT_APPROACHED = "rate_limit_approached"
    RATE_LIMIT_REACHED = "rate_limit_reached"
    NOT_READY = "not_ready"


class LossReason(Enum):
    """Why a message will never be delivered here."""

    TIMEOUT = "timeout"
    """It was cited, asked for, and did not come within lost_timeout_ms."""
    NO_ROOM = "no-room"
    """It came, but buffers stayed full (see `Limit`) until lost_timeout_ms had passed, so that it was not taken in."""
    SEGMENTS_EXPIRED = "segments-expired"
    """Segments of it came, but no further ones within reassembly_timeout_ms."""
    SEGMENTS_EVICTED = "segments-evicted"
    """Its segments gave way to others; a live channel never does that."""
    HASH_MISMATCH = "hash-mismatch"
    """Enough segments came, but they are not what their hash promises, and no others came."""


class ChannelStatus(Enum):
    """Whether messages may be missing (the status of ReliableChannel in drafts of LIP-173)."""

    SYNCING = "syncing"
    """Messages are known to be missing, the node is offline, or the store has not answered for the time away."""
    SYNCED = "synced"


class NodeHealth(Enum):
    """How well a node is connected (WAKU-API)."""

    UNHEALTHY = "unhealthy"
    MINIMALLY_HEALTHY = "minimally-healthy"
    SUFFICIENTLY_HEALTHY = "sufficiently-healthy"


class Limit(Enum):
    """A bound against exhaustion (RELIABLE-CHANNEL-API, "Security/Privacy Considerations"), named by what it bounds."""

    MISSING_MESSAGES = "missing-messages"
    """``max_missing``: a message that cites further missing ones is not taken in, as if it had not been received, until
    something came or was given up. It comes again, by its sender's retry, a repair or from a store."""
    INCOMING_BUFFER = "incoming-buffer"
    """``sds.max_incoming_buffer``: the same for a message that would have to wait for others."""
    INCOMING_BUFFER_BYTES = "incoming-buffer-bytes"
    """``sds.max_incoming_buffer_bytes``: the same."""
    ACTIVE_RETRIES = "active-retries"
    """``max_active_retries``: retries beyond it wait; they count as no attempt meanwhile."""
    STORE_QUERIES = "store-queries"
    """``max_store_queries_per_minute``: further queries wait."""
    NODE_PACE = "node-pace"
    """The node takes no more messages: ``bound`` is how many a second it does, as learned from its refusals (429)."""
    SEGMENT_SETS_OF_SENDER = "segment-sets-of-sender"
    """``max_sets_per_sender``: no further segmented message of that sender is begun until one is whole."""
    SEGMENT_BYTES_OF_SENDER = "segment-bytes-of-sender"
    """``max_buffered_bytes_per_sender``: nothing more of that sender is taken in before what it waits for."""
    SEGMENT_BYTES = "segment-bytes"
    """``max_buffered_bytes``: nothing more is taken in before what it waits for. What is turned away by one of these
    three is not acknowledged, so that its sender sends it again."""
    UNREAD_MESSAGES = "unread-messages"
    """``max_unread_messages`` or ``max_unread_bytes``: nothing more is taken in until the application reads."""
    SET_ASIDE = "set-aside"
    """``max_set_aside``: the message that was set aside first is discarded for each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """Base of the events about one message that was sent here."""

    request_id: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSending(MessageEvent):
    """A segment is about to go over the wire; repeats with every retry."""

    chunk_info: ChunkInfo
    attempt: int = 0
    """0 for the first transmission, then the number of the retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(MessageEvent):
    """The network accepted a segment; it is not acknowledged yet. Repeats with every retry."""

    chunk_info: ChunkInfo
    message_hash: bytes
    """Deterministic hash of the WakuMessage that carried it, 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent(MessageEvent):
    """Every segment of the message was accepted by the network (LIP-173, "Type definitions": MessageSentEvent)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePossiblyAcknowledged(MessageEvent):
    """A participant's bloom filter holds the segment: probable, not certain."""

    chunk_info: ChunkInfo
    possible_ack_count: int
    participant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAcknowledged(MessageEvent):
    """A further segment was acknowledged."""

    chunks_acknowledged: tuple[int, ...]
    """All data segments acknowledged so far, ascending."""
    total_chunks: int
    acknowledged_by: tuple[str, ...]
    """Who acknowledged the segment that this event is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDelivered(MessageEvent):
    """The message as a whole was acknowledged as far as the send asked for."""

    delivered_to: tuple[str, ...]
    """Participants that are known to hold the whole message."""
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSendError(MessageEvent):
    """A segment could not be sent and never will be; it is not retried."""

    chunk_info: ChunkInfo
    reason: SendErrorReason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryError(MessageEvent):
    """Retries are exhausted, or the send failed for good: delivery is not known to have happened."""

    detail: str
    acknowledged_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(MessageEvent):
    """The rate limit holds a segment back until about ``expected_ms``."""

    chunk_info: ChunkInfo
    expected_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralMessageDropped(MessageEvent):
    """An ephemeral message was neither sent nor queued."""

    reason: DropReason
    rate_limit_utilization: int
    """Percentage of the epoch's quota that is used, 0 to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A whole message from another participant, once, in causal order. ``bytes(event)`` is its payload."""

    message_id: str
    sender_id: str
    channel_id: str
    content_topic: str
    pubsub_topic: str = ""
    """Shard that the channel's content topic lies on."""
    payload: bytes
    timestamp_ns: int
    """Timestamp of the WakuMessage that completed it; 0 when it had none."""
    message_hashes: tuple[bytes, ...]
    """Hashes of the WakuMessages that carried it."""
    meta: bytes | None = None
    """``meta`` of the newest of them, at most 64 bytes; its sender's, in clear, and None if it had none."""
    sds_ids: tuple[str, ...]
    """SDS ids of its segments, in order of the segments received."""
    ephemeral: bool = False
    dependencies_met: bool = True
    """False only with delivery="arrival", or when a dependency was declared lost."""
    recovered: bool = False
    """Whether Reed-Solomon filled in lost segments."""
    redelivered: bool = False
    """Whether an earlier run of this program got it and did not finish with it."""

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload


@dataclass(frozen=True, slots=True, kw_only=True)
class IrretrievableMessage:
    """A message that others cite, or whose segments came in part, will not be delivered."""

    message_id: str
    """SDS message id; of a segmented message, that of the first of its segments that came."""
    reason: LossReason
    sender_id: str | None = None
    retrieval_hint: bytes | None = None
    payload_hash: bytes | None = None
    """Of a segmented message, the Keccak-256 that its segments promised, 32 bytes."""
    sds_ids: tuple[str, ...] = ()
    """Of a segmented message, the SDS ids of its segments that came, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsDisputed:
    """Enough segments of a message came, but together they are not what their hash promises.

    One of them is forged or damaged. If the right one comes the message is delivered; if not, `IrretrievableMessage`
    follows. Its sender is not told that it was delivered here before that is certain.
    """

    sender_id: str
    """The sender that the segments name."""
    payload_hash: bytes
    """Keccak-256 that the segments promise, 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The channel began or ceased to miss messages."""

    status: ChannelStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusChanged:
    """The node is gone, is back, or is connected better or worse. At the start it is told only of one that is gone.

    Nothing is lost meanwhile: what is sent is kept, and goes out when the node is back.
    """

    connected: bool
    """Whether messages can go out and come in."""
    health: NodeHealth
    store: bool
    """Whether a store node can be asked for what was missed."""
    detail: str = ""
    """Why it is not connected, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesUndecryptable:
    """Messages on the channel's topic could not be opened. The first is told at once, further ones once a minute.

    They are another channel's, or somebody uses another key: this program, if it opened none at all.
    """

    count: int
    """Since this was told last."""
    opened: int
    """Messages that could be opened, since the channel was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdInUse:
    """Messages under the channel's own sender id came that it did not send. Told at once, then once a minute.

    Another program takes part under the same name, or somebody pretends to. Names must be unique for acknowledgements
    to mean anything.
    """

    count: int
    """Since this was told last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A bound began to bite. It is told again only after it had ceased to."""

    limit: Limit
    bound: int
    """The value of the option, in its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailed:
    """An application's event handler raised; the channel goes on, and an unfinished message is kept and comes again."""

    handler: str
    """Its qualified name."""
    event_name: str
    """What it was called with, by the first of the event's names."""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSetAside:
    """Handlers raised on a message as often as they may: it is kept, and no longer handed over by itself.

    ``ReliableChannel.hand_over_again`` takes this event and hands the message over; ``finish`` discards it.
    """

    number: int
    """Its number in the inbox, which no other message has."""
    message_id: str
    sender_id: str
    size_bytes: int
    """Of the payload."""
    attempts: int
    error: str
    """What was raised last."""


Event = (
    MessageSending
    | MessageSent
    | RequestSent
    | MessagePossiblyAcknowledged
    | MessageAcknowledged
    | MessageDelivered
    | MessageSendError
    | DeliveryError
    | MessageQueued
    | EphemeralMessageDropped
    | MessageReceived
    | IrretrievableMessage
    | SegmentsDisputed
    | StatusChanged
    | NodeStatusChanged
    | MessagesUndecryptable
    | SenderIdInUse
    | LimitReached
    | HandlerFailed
    | MessageSetAside
)

EVENT_NAMES: Final[dict[type, tuple[str, ...]]] = {
    MessageSending: ("sending-message",),
    MessageSent: ("message-sent",),
    RequestSent: ("reliable:message:sent", "onChannelMessageSent"),
    MessagePossiblyAcknowledged: ("message-possibly-acknowledged",),
    MessageAcknowledged: ("message-acknowledged",),
    MessageDelivered: ("reliable:message:delivered",),
    MessageSendError: ("sending-message-irrecoverable-error",),
    # LIP-173, "Type definitions": a delivery error when retransmissions are exhausted; its drafts emitted a send error
    # then. Each request that fails ends in one `DeliveryError`, whatever the reason, so each of these names fires once.
    DeliveryError: ("reliable:message:delivery-error", "reliable:message:send-error", "onChannelMessageError"),
    MessageQueued: ("message-queued", "onMessageQueued"),
    EphemeralMessageDropped: ("ephemeral-message-dropped",),
    MessageReceived: ("message-received", "reliable:message:received", "onChannelMessageReceived"),
    IrretrievableMessage: ("irretrievable-message", "onChannelMessageLost"),
    SegmentsDisputed: ("segments-disputed",),
    StatusChanged: ("status",),
    NodeStatusChanged: ("node-status",),
    MessagesUndecryptable: ("messages-undecryptable",),
    SenderIdInUse: ("sender-id-in-use",),
    LimitReached: ("limit-reached",),
    HandlerFailed: ("handler-failed",),
    MessageSetAside: ("message-set-aside",),
}
"""The names of each event in RELIABLE-CHANNEL-API, in LIP-173 and in the Logos C interface."""
