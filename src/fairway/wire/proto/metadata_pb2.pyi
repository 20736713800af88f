from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WakuMetadata(_message.Message):
    __slots__ = ("cluster_id", "shards_unpacked", "shards")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_UNPACKED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    shards_unpacked: _containers.RepeatedScalarFieldContainer[int]
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cluster_id: _Optional[int] = ..., shards_unpacked: _Optional[_Iterable[int]] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...
