from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupMessage(_message.Message):
    __slots__ = ("epoch_id", "ciphertext", "record", "closed")
    EPOCH_ID_FIELD_NUMBER: _ClassVar[int]
    CIPHERTEXT_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    epoch_id: bytes
    ciphertext: bytes
    record: SignedGroupRecord
    closed: bytes
    def __init__(self, epoch_id: _Optional[bytes] = ..., ciphertext: _Optional[bytes] = ..., record: _Optional[_Union[SignedGroupRecord, _Mapping]] = ..., closed: _Optional[bytes] = ...) -> None: ...

class SignedGroupRecord(_message.Message):
    __slots__ = ("record", "signature")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    signature: bytes
    def __init__(self, record: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class GroupRecord(_message.Message):
    __slots__ = ("salt", "administrators", "signer", "number", "secrets", "epochs", "roster")
    SALT_FIELD_NUMBER: _ClassVar[int]
    ADMINISTRATORS_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    salt: bytes
    administrators: _containers.RepeatedScalarFieldContainer[bytes]
    signer: int
    number: int
    secrets: _containers.RepeatedCompositeFieldContainer[SealedSecret]
    epochs: _containers.RepeatedCompositeFieldContainer[WrappedKey]
    roster: bytes
    def __init__(self, salt: _Optional[bytes] = ..., administrators: _Optional[_Iterable[bytes]] = ..., signer: _Optional[int] = ..., number: _Optional[int] = ..., secrets: _Optional[_Iterable[_Union[SealedSecret, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[WrappedKey, _Mapping]]] = ..., roster: _Optional[bytes] = ...) -> None: ...

class SealedSecret(_message.Message):
    __slots__ = ("member", "sealed")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    member: bytes
    sealed: bytes
    def __init__(self, member: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class GroupSecret(_message.Message):
    __slots__ = ("since", "secret")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    since: int
    secret: bytes
    def __init__(self, since: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class WrappedKey(_message.Message):
    __slots__ = ("epoch_id", "number", "since_ms", "wrapped")
    EPOCH_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    WRAPPED_FIELD_NUMBER: _ClassVar[int]
    epoch_id: bytes
    number: int
    since_ms: int
    wrapped: bytes
    def __init__(self, epoch_id: _Optional[bytes] = ..., number: _Optional[int] = ..., since_ms: _Optional[int] = ..., wrapped: _Optional[bytes] = ...) -> None: ...

class GroupRoster(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[RosterEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[RosterEntry, _Mapping]]] = ...) -> None: ...

class RosterEntry(_message.Message):
    __slots__ = ("name", "public_key", "changed", "since", "until_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    public_key: bytes
    changed: int
    since: int
    until_ms: int
    def __init__(self, name: _Optional[str] = ..., public_key: _Optional[bytes] = ..., changed: _Optional[int] = ..., since: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...
