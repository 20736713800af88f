"""The events of a channel: frozen dataclasses, made for ``match``.

`EVENT_NAMES` has the name of each event in texts. docs/names.md has the names that the specifications use.

``message_id`` is the SHA-256 of the payload before segmentation, in lower-case hex; two sends of one payload share it.
``request_id`` is unique per send. Times are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class OrderKey(NamedTuple):
    """The place of a message in its channel.

    Keys sort in the order of the messages: a message follows those that its sender had received. The key of a message
    is the same at all participants that received its first segment.
    """

    lamport_timestamp: int
    """Lamport timestamp of the first segment that arrived (SDS, "Message")."""
    sds_id: str
    """SDS message id of that segment, as in ``MessageReceived.sds_ids``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """The segment that an event is about (RELIABLE-CHANNEL-API, "Create Reliable Channel": ChunkInfo)."""

    chunk_index: int
    """From 0 to ``total_chunks`` - 1."""
    total_chunks: int
    """Number of data segments of the message, 1 if it was not segmented; for a parity segment, of parity segments."""
    is_parity: bool = False
    """Whether this is a parity segment. Data segments and parity segments are numbered separately."""


class SendErrorReason(Enum):
    """Why a message could not be sent (RELIABLE-CHANNEL-API, "Event handling": irrecoverable errors)."""

    ENCODING_FAILED = "encoding failed"
    EMPTY_PAYLOAD = "empty payload"
    MESSAGE_TOO_LARGE = "message size too large"
    RLN_PROOF_FAILED = "RLN proof generation failed"
    ENCRYPTION_FAILED = "encryption failed"
    REJECTED = "rejected by the network"


class FailureReason(Enum):
    """Why a send failed (`DeliveryError`)."""

    NOT_ACKNOWLEDGED = "not acknowledged"
    """Too few acknowledgements arrived after ``max_retry_attempts`` retransmissions. The channel keeps trying at a
    falling rate: `MessageDelivered` may still follow."""
    EXPIRED = "deadline passed"
    """The deadline of the send has passed. The channel does not transmit it any more."""
    CANNOT_BE_SENT = "cannot be sent"
    """A segment can never be sent: `MessageSendError` has the reason."""
    GIVEN_UP = "given up"
    """Too few acknowledgements arrived. The channel stops trying, because newer such sends exceed
    ``max_overdue_bytes``."""


class DropReason(Enum):
    """Why an ephemeral message was not sent (RELIABLE-CHANNEL-API, "Event handling": EphemeralDropReason)."""

    RATE_LIMIT_APPROACHED = "rate_limit_approached"
    RATE_LIMIT_REACHED = "rate_limit_reached"
    NOT_READY = "not_ready"


class LossReason(Enum):
    """Why this participant will not receive a message."""

    TIMEOUT = "timeout"
    """Other messages cite it, and it did not arrive within lost_timeout_ms."""
    NO_ROOM = "no-room"
    """It arrived, but the buffers (see `Limit`) were full until lost_timeout_ms had passed."""
    SEGMENTS_EXPIRED = "segments-expired"
    """Some of its segments arrived, and no further one within reassembly_timeout_ms."""
    SEGMENTS_EVICTED = "segments-evicted"
    """Its segments were evicted. Only the pipeline does that, never a live channel."""
    HASH_MISMATCH = "hash-mismatch"
    """Enough segments arrived, but the reassembled payload does not match their hash."""


class ChannelStatus(Enum):
    """Whether messages may be missing (the status of ReliableChannel in drafts of LIP-173)."""

    SYNCING = "syncing"
    """Messages are missing, the node is offline, the store query for the time offline is not answered yet, or nothing
    can be sent (`SendingBlocked`)."""
    SYNCED = "synced"
    """No message is known to be missing, and the node accepts messages."""


class NodeHealth(Enum):
    """How well a node is connected (WAKU-API)."""

    UNHEALTHY = "unhealthy"
    MINIMALLY_HEALTHY = "minimally-healthy"
    SUFFICIENTLY_HEALTHY = "sufficiently-healthy"


class Limit(Enum):
    """A bound on the memory or the work of a channel (RELIABLE-CHANNEL-API, "Security/Privacy Considerations").

    A message that a full buffer refuses is not acknowledged. Its sender retransmits it, another participant repairs
    it, or a store returns it.
    """

    MISSING_MESSAGES = "missing-messages"
    """``max_missing``: the channel refuses messages that cite further missing ones, until a missing one arrives or is
    given up."""
    INCOMING_BUFFER = "incoming-buffer"
    """``sds.max_incoming_buffer``: the channel refuses messages that wait for others."""
    INCOMING_BUFFER_BYTES = "incoming-buffer-bytes"
    """13 KiB for each of these messages: the same limit, by bytes."""
    ACTIVE_RETRIES = "active-retries"
    """``max_active_retries``: further retries wait; waiting does not count as an attempt."""
    STORE_QUERIES = "store-queries"
    """``max_store_queries_per_minute``: further queries wait."""
    NODE_PACE = "node-pace"
    """The node refuses messages (status 429): ``bound`` is the known number of messages that it accepts per second."""
    SEGMENT_SETS_OF_SENDER = "segment-sets-of-sender"
    """A sender has 1,000 incomplete messages: the channel refuses the first segment of further ones until one is
    complete."""
    SEGMENT_BYTES_OF_SENDER = "segment-bytes-of-sender"
    """An eighth of ``max_buffered_bytes``: the channel refuses segments of this sender, except those that complete a
    message."""
    SEGMENT_BYTES = "segment-bytes"
    """``max_buffered_bytes``: the channel refuses segments of all senders, except those that complete a message."""
    UNREAD_MESSAGES = "unread-messages"
    """``max_unread_messages`` or ``max_unread_bytes``: the channel receives nothing until the application reads."""
    OVERDUE_SENDS = "overdue-sends"
    """``max_overdue_bytes``: for each further send that is not acknowledged, the channel gives up the oldest one."""
    SET_ASIDE = "set-aside"
    """``max_set_aside``: for each further message that is set aside, the oldest one is discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """Base of the events about one message that this channel sends."""

    request_id: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSending(MessageEvent):
    """A segment is about to be passed to the node. Repeated with every retry."""

    chunk_info: ChunkInfo
    attempt: int = 0
    """0 for the first transmission, then the number of the retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(MessageEvent):
    """The node accepted a segment; no participant has acknowledged it yet. Repeated with every retry."""

    chunk_info: ChunkInfo
    message_hash: bytes
    """Message hash (14/WAKU2-MESSAGE, "Deterministic message hashing") of the WakuMessage, 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSent(MessageEvent):
    """The node accepted every segment of the message (LIP-173, "Type definitions": MessageSentEvent)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePossiblyAcknowledged(MessageEvent):
    """The bloom filter of a participant contains the segment: that participant probably has it."""

    chunk_info: ChunkInfo
    possible_ack_count: int
    """Participants so far whose bloom filters contain the segment."""
    participant: str
    """Sender id of the participant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAcknowledged(MessageEvent):
    """A participant acknowledged another segment, or the whole message."""

    chunks_acknowledged: tuple[int, ...]
    """Indices of all data segments acknowledged so far, ascending."""
    total_chunks: int
    """Number of data segments of the message."""
    acknowledged_by: tuple[str, ...]
    """Sender ids of the participants that acknowledged this segment."""
    delivered_to: tuple[str, ...]
    """Sender ids of the participants that have acknowledged the whole message so far."""
    at_ms: int
    """When this acknowledgement arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDelivered(MessageEvent):
    """The participants that the send requires have acknowledged the whole message."""

    delivered_to: tuple[str, ...]
    """Sender ids of the participants that acknowledged the whole message."""
    at_ms: int
    """When the last of these acknowledgements arrived."""
    late: bool = False
    """Whether the send had failed (`DeliveryError`) before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSendError(MessageEvent):
    """A segment cannot be sent. It is not retried."""

    chunk_info: ChunkInfo
    reason: SendErrorReason
    detail: str = ""
    """The cause, as text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryError(MessageEvent):
    """A send failed: the requested acknowledgements did not arrive, or it cannot be sent.

    Only with ``NOT_ACKNOWLEDGED`` the channel keeps trying. Acknowledgements count after ``EXPIRED``, too. If they
    suffice, `MessageDelivered` follows with ``late`` set.
    """

    reason: FailureReason
    detail: str
    """The cause, as text for people."""
    acknowledged_by: tuple[str, ...] = ()
    """Sender ids of the participants that acknowledged any segment."""
    delivered_to: tuple[str, ...] = ()
    """Sender ids of the participants that acknowledged the whole message."""
    missing: tuple[str, ...] = ()
    """Sender ids of the participants that the send named and that did not acknowledge the whole message."""
    missing_count: int = 0
    """Participants that still have to acknowledge the whole message, including those in ``missing``."""
    chunks_missing: tuple[int, ...] = ()
    """Indices of the data segments that one of these participants has not acknowledged, ascending."""
    total_chunks: int = 0
    """Number of data segments of the message."""
    refusal: str = ""
    """Text of the node's last refusal of a transmission; empty if it accepted the latest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(MessageEvent):
    """The rate limit delays a segment."""

    chunk_info: ChunkInfo
    expected_ms: int | None
    """Expected time of the transmission; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralMessageDropped(MessageEvent):
    """An ephemeral message was not sent, and will not be."""

    reason: DropReason
    rate_limit_utilization: int
    """Used part of the epoch's quota in percent, 0 to 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A whole message from another participant, delivered once, in causal order. ``bytes(event)`` is the payload."""

    message_id: str
    """SHA-256 of the payload, in hexadecimal: equal messages share it. The first of ``sds_ids`` names one message."""
    sender_id: str
    """Sender id that the message names."""
    channel_id: str
    content_topic: str
    pubsub_topic: str = ""
    """Pubsub topic (network shard) of the content topic."""
    payload: bytes
    timestamp_ns: int
    """Timestamp of the WakuMessage that completed the message, in Unix nanoseconds; 0 if it had none."""
    message_hashes: tuple[bytes, ...]
    """Message hashes of the WakuMessages that carried the segments, 32 bytes each."""
    meta: bytes | None = None
    """``meta`` of the newest of these WakuMessages, at most 64 bytes; not encrypted. None if it had none."""
    sds_ids: tuple[str, ...]
    """SDS message ids of the received segments, in order of the segments. Of the messages of a batch, which share one,
    all but the first have ``.001`` and so on behind it."""
    ephemeral: bool = False
    """Whether the message was sent as ephemeral; such a message is not kept for a restart."""
    dependencies_met: bool = True
    """False only with ``Delivery.ARRIVAL``, if a dependency was declared lost, or after `SdsConfig.gap_timeout_ms`."""
    recovered: bool = False
    """Whether Reed-Solomon restored lost segments."""
    redelivered: bool = False
    """Whether an earlier run or start delivered the message, and the application did not finish it."""
    order_key: OrderKey | None = None
    """The place of the message in `ReliableChannel.history`; None for an ephemeral message."""

    def __bytes__(self) -> bytes:
        """Return the payload."""
        return self.payload


@dataclass(frozen=True, slots=True, kw_only=True)
class IrretrievableMessage:
    """The channel gives up a message that other messages cite, or of which it has only some segments."""

    message_id: str
    """SDS message id; for a segmented message, the first of ``sds_ids``."""
    reason: LossReason
    sender_id: str | None = None
    """Sender id, if it is known."""
    retrieval_hint: bytes | None = None
    """Message hash for a store query, 32 bytes, if it is known."""
    payload_hash: bytes | None = None
    """For a segmented message, the Keccak-256 of the payload that its segments name, 32 bytes."""
    sds_ids: tuple[str, ...] = ()
    """For a segmented message, the SDS message ids of the received segments, in order of the segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The `ChannelStatus` changed."""

    status: ChannelStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusChanged:
    """The connection of the node changed. When the channel starts, this is emitted only if the node is not connected.

    While the node is not connected the channel keeps messages to send, and sends them when it is connected again.
    """

    connected: bool
    """Whether the node can send and receive messages."""
    health: NodeHealth
    store: bool
    """Whether a store node can be queried for missed messages."""
    detail: str = ""
    """Why the node is not connected, as text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesUndecryptable:
    """Messages on the content topic could not be decrypted. Emitted for the first one, then at most once a minute.

    They belong to another channel, or a participant uses another key. If ``opened`` is 0, this program's key is wrong.
    """

    count: int
    """Messages since the last such event."""
    opened: int
    """Messages of other participants that were decrypted since the channel was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdInUse:
    """Messages arrived that name this channel's sender id and were not sent by it.

    Another program uses the same sender id, or forges it. Sender ids must be unique: acknowledgements depend on them.
    Emitted for the first message, then at most once a minute.
    """

    count: int
    """Messages since the last such event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMessages:
    """Messages of another channel arrived on the content topic, which this channel ignores.

    They cost bandwidth, and channels that share a topic share its shard. Emitted for the first message, then at most
    once a minute.
    """

    count: int
    """Messages since the last such event."""
    channel_id: str
    """Channel id of the latest one."""


class SignatureFault(Enum):
    """Why a message was refused for its signature."""

    UNSIGNED = "unsigned"
    """It has no signature. The sender id has a key, or the channel requires signatures."""
    WRONG_KEY = "wrong key"
    """The key of the sender id did not sign it, or it was altered."""
    KEY_CHANGED = "key changed"
    """Another key signed it than the first one of the sender id (`fairway.Members.trust_on_first_use`)."""
    UNKNOWN_MEMBER = "unknown member"
    """The sender id has no key, and the channel requires signatures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRefused:
    """A message was refused, because the member that it names did not sign it. SDS has not read it.

    Emitted at once for each sender id with a key and each `SignatureFault`, then at most once a minute. All sender ids
    without a key count as one.
    """

    sender_id: str
    """Sender id that the message names."""
    fault: SignatureFault
    signer: str | None
    """Member whose key signed the message, if any."""
    signer_key: bytes | None
    """Public key that signed the message, if the message shows it."""
    count: int
    """Refused messages of all sender ids since the last such event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTrusted:
    """The first key of a sender id was accepted (`fairway.Members.trust_on_first_use`).

    From now on the channel refuses messages under this sender id that another key signed.
    """

    sender_id: str
    public_key: bytes
    """32 bytes (Ed25519) or 65 bytes (secp256k1)."""


class AwayReason(Enum):
    """Why a member counts as away."""

    GOODBYE = "goodbye"
    """It said goodbye when its channel stopped."""
    SILENT = "silent"
    """It was silent for longer than present members are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberArrived:
    """A member is present: it was heard for the first time since the start, or after it was away."""

    sender_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAway:
    """A member that was present is away (`ReliableChannel.members`)."""

    sender_id: str
    reason: AwayReason
    last_heard_ms: int
    """Arrival of its last message, in Unix milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingBlocked:
    """Nothing could be sent for a minute, although the node is connected.

    The node refuses every transmission or does not answer, no RLN proof can be made, or the rate limit is 0. The
    channel keeps trying. Emitted after a minute, then once an hour. Meanwhile `ChannelStatus` is ``SYNCING``;
    `StatusChanged` follows when the node accepts a transmission.
    """

    since_ms: int
    """When the first transmission was refused, in Unix milliseconds."""
    refusals: int
    """Transmissions that were refused since then."""
    detail: str
    """Last error text of the node or of the proof provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit was reached. Emitted again only after the channel was below the limit."""

    limit: Limit
    bound: int
    """Value of the limit, in the unit of its option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRefused:
    """A store refuses queries for a time, or its answer cannot be read.

    Messages of that time are missing if no other message cites them and no participant retransmits them.
    """

    start_ms: int
    """Beginning of the time."""
    end_ms: int
    """End of the time, exclusive."""
    is_left_out: bool
    """Whether the channel skips this time. Otherwise it queries again, at growing intervals of at most a minute."""
    detail: str
    """The error of the store, as text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailed:
    """A handler of the application raised. The channel continues; it keeps a received message and delivers it again."""

    handler: str
    """Qualified name of the handler."""
    event_name: str
    """Event that the handler was called with, by its name in `EVENT_NAMES`."""
    error: str
    """``repr`` of the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSetAside:
    """Handlers raised on a message ``max_handling_attempts`` times. The channel keeps it and stops delivering it.

    Give this event to ``ReliableChannel.hand_over_again`` to try again, or to ``finish`` to discard the message.
    """

    number: int
    """Number of the message in the inbox, unique in the store."""
    message_id: str
    sender_id: str
    size_bytes: int
    """Size of the payload."""
    attempts: int
    """Attempts so far, over all runs."""
    error: str
    """``repr`` of the last exception."""


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
    | StatusChanged
    | NodeStatusChanged
    | MessagesUndecryptable
    | SenderIdInUse
    | ForeignMessages
    | SignatureRefused
    | MemberTrusted
    | MemberArrived
    | MemberAway
    | SendingBlocked
    | LimitReached
    | StoreRefused
    | HandlerFailed
    | MessageSetAside
)

EVENT_NAMES: Final[dict[type, str]] = {
    MessageSending: "sending-message",
    MessageSent: "message-sent",
    RequestSent: "request-sent",
    MessagePossiblyAcknowledged: "message-possibly-acknowledged",
    MessageAcknowledged: "message-acknowledged",
    MessageDelivered: "message-delivered",
    MessageSendError: "sending-message-irrecoverable-error",
    DeliveryError: "delivery-error",
    MessageQueued: "message-queued",
    EphemeralMessageDropped: "ephemeral-message-dropped",
    MessageReceived: "message-received",
    IrretrievableMessage: "irretrievable-message",
    StatusChanged: "status",
    NodeStatusChanged: "node-status",
    MessagesUndecryptable: "messages-undecryptable",
    SenderIdInUse: "sender-id-in-use",
    ForeignMessages: "foreign-messages",
    SignatureRefused: "signature-refused",
    MemberTrusted: "member-trusted",
    MemberArrived: "member-arrived",
    MemberAway: "member-away",
    SendingBlocked: "sending-blocked",
    LimitReached: "limit-reached",
    StoreRefused: "store-refused",
    HandlerFailed: "handler-failed",
    MessageSetAside: "message-set-aside",
}
"""Event type -> its name in texts, such as JSON: that of RELIABLE-CHANNEL-API if it has the event."""
