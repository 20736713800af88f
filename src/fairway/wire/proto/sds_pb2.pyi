from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HistoryEntry(_message.Message):
    __slots__ = ("message_id", "retrieval_hint", "sender_id")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_HINT_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    retrieval_hint: bytes
    sender_id: str
    def __init__(self, message_id: _Optional[str] = ..., retrieval_hint: _Optional[bytes] = ..., sender_id: _Optional[str] = ...) -> None: ...

class SdsMessage(_message.Message):
    __slots__ = ("sender_id", "message_id", "channel_id", "lamport_timestamp", "causal_history", "bloom_filter", "repair_request", "content", "vouches", "leaves", "signer_key", "signature")
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_HISTORY_FIELD_NUMBER: _ClassVar[int]
    BLOOM_FILTER_FIELD_NUMBER: _ClassVar[int]
    REPAIR_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    VOUCHES_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    SIGNER_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    sender_id: str
    message_id: str
    channel_id: str
    lamport_timestamp: int
    causal_history: _containers.RepeatedScalarFieldContainer[bytes]
    bloom_filter: bytes
    repair_request: _containers.RepeatedScalarFieldContainer[bytes]
    content: bytes
    vouches: bool
    leaves: bool
    signer_key: bytes
    signature: bytes
    def __init__(self, sender_id: _Optional[str] = ..., message_id: _Optional[str] = ..., channel_id: _Optional[str] = ..., lamport_timestamp: _Optional[int] = ..., causal_history: _Optional[_Iterable[bytes]] = ..., bloom_filter: _Optional[bytes] = ..., repair_request: _Optional[_Iterable[bytes]] = ..., content: _Optional[bytes] = ..., vouches: bool = ..., leaves: bool = ..., signer_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class NimSdsMessage(_message.Message):
    __slots__ = ("message_id", "lamport_timestamp", "causal_history", "channel_id", "content", "bloom_filter", "sender_id", "repair_request", "vouches", "leaves", "signer_key", "signature")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_HISTORY_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    BLOOM_FILTER_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    REPAIR_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOUCHES_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    SIGNER_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    lamport_timestamp: int
    causal_history: _containers.RepeatedScalarFieldContainer[bytes]
    channel_id: str
    content: bytes
    bloom_filter: bytes
    sender_id: str
    repair_request: _containers.RepeatedScalarFieldContainer[bytes]
    vouches: bool
    leaves: bool
    signer_key: bytes
    signature: bytes
    def __init__(self, message_id: _Optional[str] = ..., lamport_timestamp: _Optional[int] = ..., causal_history: _Optional[_Iterable[bytes]] = ..., channel_id: _Optional[str] = ..., content: _Optional[bytes] = ..., bloom_filter: _Optional[bytes] = ..., sender_id: _Optional[str] = ..., repair_request: _Optional[_Iterable[bytes]] = ..., vouches: bool = ..., leaves: bool = ..., signer_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class NimHistoryEntry(_message.Message):
    __slots__ = ("message_id", "retrieval_hint", "sender_id")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_HINT_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    retrieval_hint: bytes
    sender_id: str
    def __init__(self, message_id: _Optional[str] = ..., retrieval_hint: _Optional[bytes] = ..., sender_id: _Optional[str] = ...) -> None: ...

class NimBloomFilter(_message.Message):
    __slots__ = ("words", "capacity", "error_rate_millionths", "hash_count", "bit_count")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    HASH_COUNT_FIELD_NUMBER: _ClassVar[int]
    BIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    words: bytes
    capacity: int
    error_rate_millionths: int
    hash_count: int
    bit_count: int
    def __init__(self, words: _Optional[bytes] = ..., capacity: _Optional[int] = ..., error_rate_millionths: _Optional[int] = ..., hash_count: _Optional[int] = ..., bit_count: _Optional[int] = ...) -> None: ...
