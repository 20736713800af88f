"""fairway: reliable group channels over the Waku network.

::

    async with fairway.connect("local:") as node:
        channel = await fairway.create_reliable_channel(
            node, channel_id="team", sender_id="alice", content_topic="/myapp/1/team/proto", store="alice.db"
        )
        async with channel:
            receipt = await channel.send(b"who is on watch?")
            await receipt.delivered()
            async for message in channel.messages():
                print(message.sender_id, bytes(message))

``import fairway`` loads errors and events. Every other name is imported at its first use, which keeps the
start of a program short.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    DecodeError,
    DecryptionError,
    DeliveryFailedError,
    EmptyPayloadError,
    EncryptionError,
    ErasureCodeError,
    EventLoopError,
    FairwayError,
    FileChangedError,
    ForeignCodeError,
    LocalError,
    MessageTooLargeError,
    MissingExtraError,
    NetworkError,
    NodeUnavailableError,
    NotAwaitedError,
    NotEnoughShardsError,
    PipelineError,
    RemoteError,
    RlnError,
    RlnErrorKind,
    SegmentError,
    SendExpiredError,
    SnapshotError,
    StorageError,
    StoreCorruptError,
    StoreFullError,
    StoreLockedError,
    StoreMismatchError,
    StorePathError,
    StoreQueryError,
    StoreRefusedError,
    StoreVersionError,
    WrongPasswordError,
)
from fairway.events import (
    EVENT_NAMES,
    ChannelStatus,
    ChunkInfo,
    DeliveryError,
    DropReason,
    EphemeralMessageDropped,
    Event,
    FailureReason,
    ForeignMessages,
    HandlerFailed,
    IrretrievableMessage,
    Limit,
    LimitReached,
    LossReason,
    MessageAcknowledged,
    MessageDelivered,
    MessageEvent,
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
    OrderKey,
    RequestSent,
    SenderIdInUse,
    SendErrorReason,
    SendingBlocked,
    StatusChanged,
    StoreRefused,
)

if TYPE_CHECKING:
    from fairway.channel.creation import (
        create_reliable_channel,
    )
    from fairway.channel.history import (
        HistoryMessage,
    )
    from fairway.channel.inbox import (
        MessageStream,
    )
    from fairway.channel.listeners import (
        EventStream,
    )
    from fairway.channel.receipt import (
        Acknowledgement,
        EphemeralReceipt,
        Progress,
        Receipt,
        Wait,
    )
    from fairway.channel.reliable_channel import (
        ReliableChannel,
    )
    from fairway.channel.statistics import (
        ChannelStatistics,
    )
    from fairway.files.outcomes import (
        FileArriving,
        FileLimits,
        FileOutcome,
        FileReceived,
        FileRefusalReason,
        FileRefused,
    )
    from fairway.files.receiving import (
        FileReceiver,
    )
    from fairway.files.sending import (
        FileDelivery,
        FileProgress,
        send_file,
    )
    from fairway.nodes.connect import (
        connect,
    )
    from fairway.nodes.light.options import (
        LightOptions,
    )
    from fairway.nodes.local import (
        LocalNetwork,
        LocalNode,
        NetworkFaults,
    )
    from fairway.nodes.node import (
        NodeStatus,
        WakuNode,
    )
    from fairway.nodes.rest.options import (
        RestNodeOptions,
    )
    from fairway.options import (
        BloomPolicy,
        Delivery,
        IdRule,
        Profile,
        RateLimitConfig,
        ReliableChannelOptions,
        RepairConfig,
        SdsConfig,
        SegmentationConfig,
    )
    from fairway.protocol.encryption import (
        AesGcm,
        ChaCha20Poly1305,
        Decoder,
        EciesPayload,
        Encoder,
        Encryption,
        PayloadKeyRing,
        SymmetricPayload,
        generate_key,
        generate_private_key,
        get_public_key,
    )
    from fairway.protocol.ratelimit import (
        RlnProofProvider,
    )
    from fairway.protocol.statistics import (
        Gap,
    )
    from fairway.rln.membership import (
        RlnMembership,
    )
    from fairway.service.node import (
        ServiceNode,
    )
    from fairway.service.options import (
        ServiceOptions,
    )
    from fairway.storage.channel_store import (
        SendOutcome,
    )

__version__ = "0.1.0"

__all__ = [
    "EVENT_NAMES",
    "Acknowledgement",
    "AesGcm",
    "BloomPolicy",
    "ChaCha20Poly1305",
    "ChannelClosedError",
    "ChannelStatistics",
    "ChannelStatus",
    "ChunkInfo",
    "ConfigurationError",
    "DecodeError",
    "Decoder",
    "DecryptionError",
    "Delivery",
    "DeliveryError",
    "DeliveryFailedError",
    "DropReason",
    "EciesPayload",
    "EmptyPayloadError",
    "Encoder",
    "Encryption",
    "EncryptionError",
    "EphemeralMessageDropped",
    "EphemeralReceipt",
    "ErasureCodeError",
    "Event",
    "EventLoopError",
    "EventStream",
    "FailureReason",
    "FairwayError",
    "FileArriving",
    "FileChangedError",
    "FileDelivery",
    "FileLimits",
    "FileOutcome",
    "FileProgress",
    "FileReceived",
    "FileReceiver",
    "FileRefusalReason",
    "FileRefused",
    "ForeignCodeError",
    "ForeignMessages",
    "Gap",
    "HandlerFailed",
    "HistoryMessage",
    "IdRule",
    "IrretrievableMessage",
    "LightOptions",
    "Limit",
    "LimitReached",
    "LocalError",
    "LocalNetwork",
    "LocalNode",
    "LossReason",
    "MessageAcknowledged",
    "MessageDelivered",
    "MessageEvent",
    "MessagePossiblyAcknowledged",
    "MessageQueued",
    "MessageReceived",
    "MessageSendError",
    "MessageSending",
    "MessageSent",
    "MessageSetAside",
    "MessageStream",
    "MessageTooLargeError",
    "MessagesUndecryptable",
    "MissingExtraError",
    "NetworkError",
    "NetworkFaults",
    "NodeHealth",
    "NodeStatus",
    "NodeStatusChanged",
    "NodeUnavailableError",
    "NotAwaitedError",
    "NotEnoughShardsError",
    "OrderKey",
    "PayloadKeyRing",
    "PipelineError",
    "Profile",
    "Progress",
    "RateLimitConfig",
    "Receipt",
    "ReliableChannel",
    "ReliableChannelOptions",
    "RemoteError",
    "RepairConfig",
    "RequestSent",
    "RestNodeOptions",
    "RlnError",
    "RlnErrorKind",
    "RlnMembership",
    "RlnProofProvider",
    "SdsConfig",
    "SegmentError",
    "SegmentationConfig",
    "SendErrorReason",
    "SendExpiredError",
    "SendOutcome",
    "SenderIdInUse",
    "SendingBlocked",
    "ServiceNode",
    "ServiceOptions",
    "SnapshotError",
    "StatusChanged",
    "StorageError",
    "StoreCorruptError",
    "StoreFullError",
    "StoreLockedError",
    "StoreMismatchError",
    "StorePathError",
    "StoreQueryError",
    "StoreRefused",
    "StoreRefusedError",
    "StoreVersionError",
    "SymmetricPayload",
    "Wait",
    "WakuNode",
    "WrongPasswordError",
    "__version__",
    "connect",
    "create_reliable_channel",
    "generate_key",
    "generate_private_key",
    "get_public_key",
    "send_file",
]

_LAZY: Final = {
    "fairway.channel.creation": ("create_reliable_channel",),
    "fairway.channel.history": ("HistoryMessage",),
    "fairway.channel.inbox": ("MessageStream",),
    "fairway.channel.listeners": ("EventStream",),
    "fairway.channel.receipt": ("Acknowledgement", "EphemeralReceipt", "Progress", "Receipt", "Wait"),
    "fairway.channel.reliable_channel": ("ReliableChannel",),
    "fairway.channel.statistics": ("ChannelStatistics",),
    "fairway.files.outcomes": (
        "FileArriving",
        "FileLimits",
        "FileOutcome",
        "FileReceived",
        "FileRefusalReason",
        "FileRefused",
    ),
    "fairway.files.receiving": ("FileReceiver",),
    "fairway.files.sending": ("FileDelivery", "FileProgress", "send_file"),
    "fairway.protocol.statistics": ("Gap",),
    "fairway.options": (
        "BloomPolicy",
        "Delivery",
        "IdRule",
        "Profile",
        "RateLimitConfig",
        "ReliableChannelOptions",
        "RepairConfig",
        "SdsConfig",
        "SegmentationConfig",
    ),
    "fairway.protocol.encryption": (
        "AesGcm",
        "ChaCha20Poly1305",
        "Decoder",
        "EciesPayload",
        "Encoder",
        "Encryption",
        "PayloadKeyRing",
        "SymmetricPayload",
        "generate_key",
        "generate_private_key",
        "get_public_key",
    ),
    "fairway.protocol.ratelimit": ("RlnProofProvider",),
    "fairway.rln.membership": ("RlnMembership",),
    "fairway.service.node": ("ServiceNode",),
    "fairway.service.options": ("ServiceOptions",),
    "fairway.storage.channel_store": ("SendOutcome",),
    "fairway.nodes.connect": ("connect",),
    "fairway.nodes.light.options": ("LightOptions",),
    "fairway.nodes.local": ("LocalNetwork", "LocalNode", "NetworkFaults"),
    "fairway.nodes.node": ("NodeStatus", "WakuNode"),
    "fairway.nodes.rest.options": ("RestNodeOptions",),
}
"""Module -> the names that are imported from it at their first use."""
_MODULES: Final = {name: module for module, names in _LAZY.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name not in _MODULES:
            raise AttributeError(f"module 'fairway' has no attribute {name!r}", name=name, obj=import_module(__name__))
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        """List all public names, imported or not."""
        return sorted({*globals(), *__all__})
