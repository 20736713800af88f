from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("content_type", "headers", "kind", "to", "correlation_id", "expires_after_ms", "content", "group", "coverage")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MESSAGE: _ClassVar[Envelope.Kind]
        REQUEST: _ClassVar[Envelope.Kind]
        REPLY: _ClassVar[Envelope.Kind]
        FAILURE: _ClassVar[Envelope.Kind]
        CANCEL: _ClassVar[Envelope.Kind]
        CLAIM: _ClassVar[Envelope.Kind]
        SNAPSHOT: _ClassVar[Envelope.Kind]
        BATCH: _ClassVar[Envelope.Kind]
    MESSAGE: Envelope.Kind
    REQUEST: Envelope.Kind
    REPLY: Envelope.Kind
    FAILURE: Envelope.Kind
    CANCEL: Envelope.Kind
    CLAIM: Envelope.Kind
    SNAPSHOT: Envelope.Kind
    BATCH: Envelope.Kind
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    content_type: str
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    kind: Envelope.Kind
    to: str
    correlation_id: str
    expires_after_ms: int
    content: bytes
    group: str
    coverage: Coverage
    def __init__(self, content_type: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., kind: _Optional[_Union[Envelope.Kind, str]] = ..., to: _Optional[str] = ..., correlation_id: _Optional[str] = ..., expires_after_ms: _Optional[int] = ..., content: _Optional[bytes] = ..., group: _Optional[str] = ..., coverage: _Optional[_Union[Coverage, _Mapping]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("payloads",)
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    payloads: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, payloads: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Coverage(_message.Message):
    __slots__ = ("read_from_ms", "floor_lamport", "floor_id", "newest", "covered", "missed")
    READ_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_LAMPORT_FIELD_NUMBER: _ClassVar[int]
    FLOOR_ID_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    read_from_ms: int
    floor_lamport: int
    floor_id: str
    newest: _containers.RepeatedCompositeFieldContainer[Newest]
    covered: _containers.RepeatedScalarFieldContainer[str]
    missed: _containers.RepeatedCompositeFieldContainer[Missed]
    def __init__(self, read_from_ms: _Optional[int] = ..., floor_lamport: _Optional[int] = ..., floor_id: _Optional[str] = ..., newest: _Optional[_Iterable[_Union[Newest, _Mapping]]] = ..., covered: _Optional[_Iterable[str]] = ..., missed: _Optional[_Iterable[_Union[Missed, _Mapping]]] = ...) -> None: ...

class Newest(_message.Message):
    __slots__ = ("sender_id", "lamport_timestamp")
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    sender_id: str
    lamport_timestamp: int
    def __init__(self, sender_id: _Optional[str] = ..., lamport_timestamp: _Optional[int] = ...) -> None: ...

class Missed(_message.Message):
    __slots__ = ("sds_id", "sender_id", "retrieval_hint")
    SDS_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_HINT_FIELD_NUMBER: _ClassVar[int]
    sds_id: str
    sender_id: str
    retrieval_hint: bytes
    def __init__(self, sds_id: _Optional[str] = ..., sender_id: _Optional[str] = ..., retrieval_hint: _Optional[bytes] = ...) -> None: ...
