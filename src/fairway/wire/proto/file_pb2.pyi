from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileMessage(_message.Message):
    __slots__ = ("whole", "manifest", "part")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    whole: WholeFile
    manifest: FileManifest
    part: FilePart
    def __init__(self, whole: _Optional[_Union[WholeFile, _Mapping]] = ..., manifest: _Optional[_Union[FileManifest, _Mapping]] = ..., part: _Optional[_Union[FilePart, _Mapping]] = ...) -> None: ...

class WholeFile(_message.Message):
    __slots__ = ("name", "media_type", "repetition", "content")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    repetition: int
    content: bytes
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., repetition: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...

class FileManifest(_message.Message):
    __slots__ = ("name", "media_type", "repetition", "size_bytes", "part_size_bytes", "content_hash", "part_hashes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PART_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    PART_HASHES_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    repetition: int
    size_bytes: int
    part_size_bytes: int
    content_hash: bytes
    part_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., repetition: _Optional[int] = ..., size_bytes: _Optional[int] = ..., part_size_bytes: _Optional[int] = ..., content_hash: _Optional[bytes] = ..., part_hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("manifest_id", "index", "content")
    MANIFEST_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    manifest_id: bytes
    index: int
    content: bytes
    def __init__(self, manifest_id: _Optional[bytes] = ..., index: _Optional[int] = ..., content: _Optional[bytes] = ...) -> None: ...
