from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("content_type", "headers", "kind", "to", "correlation_id", "expires_after_ms", "content", "group")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MESSAGE: _ClassVar[Envelope.Kind]
        REQUEST: _ClassVar[Envelope.Kind]
        REPLY: _ClassVar[Envelope.Kind]
        FAILURE: _ClassVar[Envelope.Kind]
        CANCEL: _ClassVar[Envelope.Kind]
        CLAIM: _ClassVar[Envelope.Kind]
        BATCH: _ClassVar[Envelope.Kind]
    MESSAGE: Envelope.Kind
    REQUEST: Envelope.Kind
    REPLY: Envelope.Kind
    FAILURE: Envelope.Kind
    CANCEL: Envelope.Kind
    CLAIM: Envelope.Kind
    BATCH: Envelope.Kind
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    content_type: str
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    kind: Envelope.Kind
    to: str
    correlation_id: str
    expires_after_ms: int
    content: bytes
    group: str
    def __init__(self, content_type: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., kind: _Optional[_Union[Envelope.Kind, str]] = ..., to: _Optional[str] = ..., correlation_id: _Optional[str] = ..., expires_after_ms: _Optional[int] = ..., content: _Optional[bytes] = ..., group: _Optional[str] = ...) -> None: ...

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
