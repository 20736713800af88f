"""fairway: reliable group channels over the Waku network.

::

    node = await fairway.connect("local:")
    channel = await fairway.create_reliable_channel(
        node, channel_id="team", sender_id="alice", content_topic="/myapp/1/team/proto", store="alice.db"
    )
    async with channel:
        receipt = await channel.send(b"who is on watch?")
        await receipt.delivered()
        async for message in channel.messages():
            print(message.sender_id, bytes(message))
"""

from fairway.channel.creation import create_reliable_channel
from fairway.channel.receipt import Acknowledgement, EphemeralReceipt, Progress, Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.channel.statistics import ChannelStatistics
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    DeliveryFailedError,
    EmptyPayloadError,
    FairwayError,
    MessageTooLargeError,
    NetworkError,
    StorageError,
)
from fairway.events import (
    EVENT_NAMES,
    ChannelStatus,
    ChunkInfo,
    DeliveryError,
    DropReason,
    EphemeralMessageDropped,
    Event,
    HandlerFailed,
    IrretrievableMessage,
    Limit,
    LimitReached,
    LossReason,
    MessageAcknowledged,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageQueued,
    MessageReceived,
    MessageSendError,
    MessageSending,
    MessageSent,
    MessageSetAside,
    MessagesUndecryptable,
    NodeHealth,
    NodeStatusChanged,
    RequestSent,
    SenderIdInUse,
    SendErrorReason,
    StatusChanged,
)
from fairway.options import (
    Delivery,
    IdRule,
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.encryption import Decoder, Encoder, Encryption
from fairway.waku.connect import connect
from fairway.waku.node import NodeStatus, WakuNode

__all__ = [
    "EVENT_NAMES",
    "Acknowledgement",
    "ChannelClosedError",
    "ChannelStatistics",
    "ChannelStatus",
    "ChunkInfo",
    "ConfigurationError",
    "Decoder",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "DropReason",
    "EmptyPayloadError",
    "Encoder",
    "Encryption",
    "EphemeralMessageDropped",
    "EphemeralReceipt",
    "Event",
    "FairwayError",
    "HandlerFailed",
    "IdRule",
    "IrretrievableMessage",
    "Limit",
    "LimitReached",
    "LossReason",
    "MessageAcknowledged",
    "MessageDelivered",
    "MessagePossiblyAcknowledged",
    "MessageQueued",
    "MessageReceived",
    "MessageSendError",
    "MessageSending",
    "MessageSent",
    "MessageSetAside",
    "MessageTooLargeError",
    "MessagesUndecryptable",
    "NetworkError",
    "NodeHealth",
    "NodeStatus",
    "NodeStatusChanged",
    "Profile",
    "Progress",
    "RateLimitConfig",
    "Receipt",
    "ReliableChannel",
    "ReliableChannelOptions",
    "RepairConfig",
    "RequestSent",
    "SdsConfig",
    "SegmentationConfig",
    "SendErrorReason",
    "SenderIdInUse",
    "StatusChanged",
    "StorageError",
    "WakuNode",
    "connect",
    "create_reliable_channel",
]
