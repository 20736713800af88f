from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rpc(_message.Message):
    __slots__ = ("subscriptions", "publish", "control")
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    publish: _containers.RepeatedScalarFieldContainer[bytes]
    control: Control
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., publish: _Optional[_Iterable[bytes]] = ..., control: _Optional[_Union[Control, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("subscribe", "topic")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    subscribe: bool
    topic: str
    def __init__(self, subscribe: bool = ..., topic: _Optional[str] = ...) -> None: ...

class PubsubMessage(_message.Message):
    __slots__ = ("from_peer", "data", "seqno", "topic", "signature", "key")
    FROM_PEER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEQNO_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    from_peer: bytes
    data: bytes
    seqno: bytes
    topic: str
    signature: bytes
    key: bytes
    def __init__(self, from_peer: _Optional[bytes] = ..., data: _Optional[bytes] = ..., seqno: _Optional[bytes] = ..., topic: _Optional[str] = ..., signature: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("ihave", "iwant", "graft", "prune", "idontwant")
    IHAVE_FIELD_NUMBER: _ClassVar[int]
    IWANT_FIELD_NUMBER: _ClassVar[int]
    GRAFT_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    IDONTWANT_FIELD_NUMBER: _ClassVar[int]
    ihave: _containers.RepeatedCompositeFieldContainer[IHave]
    iwant: _containers.RepeatedCompositeFieldContainer[IWant]
    graft: _containers.RepeatedCompositeFieldContainer[Graft]
    prune: _containers.RepeatedCompositeFieldContainer[Prune]
    idontwant: _containers.RepeatedCompositeFieldContainer[IDontWant]
    def __init__(self, ihave: _Optional[_Iterable[_Union[IHave, _Mapping]]] = ..., iwant: _Optional[_Iterable[_Union[IWant, _Mapping]]] = ..., graft: _Optional[_Iterable[_Union[Graft, _Mapping]]] = ..., prune: _Optional[_Iterable[_Union[Prune, _Mapping]]] = ..., idontwant: _Optional[_Iterable[_Union[IDontWant, _Mapping]]] = ...) -> None: ...

class IHave(_message.Message):
    __slots__ = ("topic", "message_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class IWant(_message.Message):
    __slots__ = ("message_ids",)
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, message_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Graft(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Prune(_message.Message):
    __slots__ = ("topic", "peers", "backoff")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    topic: str
    peers: _containers.RepeatedCompositeFieldContainer[PeerInfo]
    backoff: int
    def __init__(self, topic: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[PeerInfo, _Mapping]]] = ..., backoff: _Optional[int] = ...) -> None: ...

class PeerInfo(_message.Message):
    __slots__ = ("peer_id", "signed_peer_record")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNED_PEER_RECORD_FIELD_NUMBER: _ClassVar[int]
    peer_id: bytes
    signed_peer_record: bytes
    def __init__(self, peer_id: _Optional[bytes] = ..., signed_peer_record: _Optional[bytes] = ...) -> None: ...

class IDontWant(_message.Message):
    __slots__ = ("message_ids",)
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, message_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...
