"""fairway: reliable group channels over the Waku network.

::

    async with fairway.connect("local:") as node:
        async with fairway.create_reliable_channel(
            node, channel_id="team", sender_id="alice", content_topic="/myapp/1/team/proto", store="alice.db"
        ) as channel:
            receipt = await channel.send(b"who is on watch?")
            await receipt.delivered()
            async for message in channel:
                print(message.sender_id, bytes(message))

Here are the names that most programs need. `fairway.errors`, `fairway.events` and `fairway.options` have all errors,
events and options; `fairway.encryption`, `fairway.files`, `fairway.nodes`, `fairway.rln`, `fairway.service` and
`fairway.testing` have what their names say.

``import fairway`` loads errors and events. Every other name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    DeliveryFailedError,
    EmptyPayloadError,
    FairwayError,
    MessageTooLargeError,
    NodeUnavailableError,
    NoOneThereError,
    RequestFailedError,
    RequestTimeoutError,
    SendExpiredError,
    StorageError,
)
from fairway.events import (
    ChannelStatus,
    DeliveryError,
    Event,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
    MessageSent,
    NodeStatusChanged,
    StatusChanged,
)
from fairway.lazy_names import lazy_names

if TYPE_CHECKING:
    from fairway.channel.channels import Channels
    from fairway.channel.creation import create_reliable_channel
    from fairway.channel.history import HistoryMessage
    from fairway.channel.receipt import Acknowledgement, EphemeralReceipt, Progress, Receipt
    from fairway.channel.reliable_channel import ReliableChannel
    from fairway.channel.requests import Reply, Request
    from fairway.channel.snapshots import Snapshot
    from fairway.group_keys import GroupKeys
    from fairway.identity import Identity, Members
    from fairway.nodes.connecting import connect
    from fairway.nodes.node import WakuNode
    from fairway.options import (
        Delivery,
        Profile,
        RateLimitConfig,
        Receive,
        ReliableChannelOptions,
        SdsConfig,
        SegmentationConfig,
    )
    from fairway.protocol.sds.presence import Member
    from fairway.wire.envelope import Envelope

__version__ = "0.1.0"

__all__ = [
    "Acknowledgement",
    "ChannelClosedError",
    "ChannelStatus",
    "Channels",
    "ConfigurationError",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "EmptyPayloadError",
    "Envelope",
    "EphemeralReceipt",
    "Event",
    "FairwayError",
    "GroupKeys",
    "HistoryMessage",
    "Identity",
    "IrretrievableMessage",
    "Member",
    "Members",
    "MessageAcknowledged",
    "MessageDelivered",
    "MessageReceived",
    "MessageSent",
    "MessageTooLargeError",
    "NoOneThereError",
    "NodeStatusChanged",
    "NodeUnavailableError",
    "Profile",
    "Progress",
    "RateLimitConfig",
    "Receipt",
    "Receive",
    "ReliableChannel",
    "ReliableChannelOptions",
    "Reply",
    "Request",
    "RequestFailedError",
    "RequestTimeoutError",
    "SdsConfig",
    "SegmentationConfig",
    "SendExpiredError",
    "Snapshot",
    "StatusChanged",
    "StorageError",
    "WakuNode",
    "__version__",
    "connect",
    "create_reliable_channel",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "fairway.channel.channels": ("Channels",),
            "fairway.channel.creation": ("create_reliable_channel",),
            "fairway.channel.history": ("HistoryMessage",),
            "fairway.channel.receipt": ("Acknowledgement", "EphemeralReceipt", "Progress", "Receipt"),
            "fairway.channel.reliable_channel": ("ReliableChannel",),
            "fairway.channel.requests": ("Reply", "Request"),
            "fairway.channel.snapshots": ("Snapshot",),
            "fairway.group_keys": ("GroupKeys",),
            "fairway.identity": ("Identity", "Members"),
            "fairway.nodes.connecting": ("connect",),
            "fairway.nodes.node": ("WakuNode",),
            "fairway.options": (
                "Delivery",
                "Profile",
                "RateLimitConfig",
                "Receive",
                "ReliableChannelOptions",
                "SdsConfig",
                "SegmentationConfig",
            ),
            "fairway.protocol.sds.presence": ("Member",),
            "fairway.wire.envelope": ("Envelope",),
        },
    )
