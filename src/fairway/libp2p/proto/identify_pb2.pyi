from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Identify(_message.Message):
    __slots__ = ("public_key", "listen_addrs", "protocols", "observed_addr", "protocol_version", "agent_version", "signed_peer_record")
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    LISTEN_ADDRS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_ADDR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIGNED_PEER_RECORD_FIELD_NUMBER: _ClassVar[int]
    public_key: bytes
    listen_addrs: _containers.RepeatedScalarFieldContainer[bytes]
    protocols: _containers.RepeatedScalarFieldContainer[str]
    observed_addr: bytes
    protocol_version: str
    agent_version: str
    signed_peer_record: bytes
    def __init__(self, public_key: _Optional[bytes] = ..., listen_addrs: _Optional[_Iterable[bytes]] = ..., protocols: _Optional[_Iterable[str]] = ..., observed_addr: _Optional[bytes] = ..., protocol_version: _Optional[str] = ..., agent_version: _Optional[str] = ..., signed_peer_record: _Optional[bytes] = ...) -> None: ...
