"""Files in a channel: a file in one message, or the manifest and the parts of a larger one.

A file that fits one message is a `WholeFile`. A larger one is a `FileManifest` and its `FilePart`s, each one message.
A part names its manifest by message id, the SHA-256 of the manifest's payload, and so belongs to exactly one.

The payload begins with `FILE_PREFIX`. No UTF-8 text has its first byte; its last byte is the version. For any other
payload `decode_file_message` returns None. The schema is fairway's own.

Invariant: a value from `decode_file_message` obeys every rule of its dataclass. A name is one path component that every
file system accepts; the sizes, counts and hashes of a manifest agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Final, TypeAlias

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import file_pb2 as pb
from fairway.wire.protobuf import encode, parse

FILE_PREFIX: Final = b"\xffFILE\x01"
"""Beginning of the payload: a byte that begins no UTF-8 text, a mark, and version 1."""

FILE_HASH_BYTES: Final = 32
"""Length of a SHA-256 digest."""

MAX_NAME_BYTES: Final = 255
"""Longest name in UTF-8; the limit of common file systems."""

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
"""The media type of unknown content (RFC 2046, section 4.5.1)."""

MAX_FILE_MESSAGE_BYTES: Final = 268_435_456
"""Longer payloads are not parsed."""

MAX_HEADER_BYTES: Final = 1_024
"""Longer headers are dropped; a valid name and media type fit."""

_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}")
"""RFC 6838, section 4.2, without parameters."""

_PART_BESIDE_CONTENT_BYTES: Final = len(FILE_PREFIX) + 64
"""Prefix, tags, lengths, manifest id and index of a part, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile:
    """A file in one message."""

    name: str
    media_type: str = DEFAULT_MEDIA_TYPE
    repetition: int = 0
    """Earlier sends of the same file by this sender; it makes a repeated send a message of its own."""
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    """The announcement of a file in parts, with the hashes of the parts."""

    name: str
    media_type: str = DEFAULT_MEDIA_TYPE
    repetition: int = 0
    """Earlier sends of the same file by this sender."""
    size_bytes: int
    """Size of the file, at least 1."""
    part_size_bytes: int
    """Size of every part but the last, which has the rest."""
    content_hash: bytes
    """SHA-256 of the whole file, 32 bytes."""
    part_hashes: tuple[bytes, ...]
    """SHA-256 of each part, in their order."""

    @property
    def parts(self) -> int:
        """Number of parts, computed from the sizes."""
        return -(-self.size_bytes // self.part_size_bytes) if self.part_size_bytes else 0

    def part_bytes(self, index: int) -> int:
        """Return the size of a part."""
        return min(self.part_size_bytes, self.size_bytes - index * self.part_size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One part of a file."""

    manifest_id: bytes
    """Message id of the manifest, 32 bytes."""
    index: int
    """Position of the part, from 0."""
    content: bytes


FileMessage: TypeAlias = WholeFile | FileManifest | FilePart

_KINDS: Final[dict[str, type[FileMessage]]] = {"whole": WholeFile, "manifest": FileManifest, "part": FilePart}
"""The dataclasses by their names in the schema; the fields have the same names."""


def name_problem(name: str) -> str | None:
    """Return why a received file cannot have this name, or None if it can.

    A valid name is one visible path component, so that nothing is written outside the receiver's folder.
    """
    if not name:
        return "it is empty"
    if "/" in name or "\\" in name:
        return "it has a slash or a backslash: a name is one component of a path"
    if name.startswith("."):
        return "it begins with a dot, as hidden files and the folder above do"
    if not name.isprintable() or name != name.strip():
        return "it has characters that cannot be seen, or spaces around it"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"it has more than {MAX_NAME_BYTES} bytes"
    return None


def media_type_problem(media_type: str) -> str | None:
    """Return why a text is no media type, or None if it is one."""
    return None if _MEDIA_TYPE.fullmatch(media_type) else "a media type is type/subtype, such as image/jpeg"


def largest_part_bytes(message_bytes: int) -> int:
    """Return the size of a part's content in a payload of ``message_bytes``; below 1 if no content fits."""
    return message_bytes - _PART_BESIDE_CONTENT_BYTES


def manifest_id(payload: bytes) -> bytes:
    """Return the message id of the manifest with this payload, in bytes."""
    return sha256(payload).digest()


def is_file_message(payload: bytes) -> bool:
    """Return whether a payload begins as a file, a manifest or a part."""
    return payload.startswith(FILE_PREFIX)


def encode_file_message(message: FileMessage) -> bytes:
    """Return the payload of a message; raise `ConfigurationError` if a field breaks a rule of `decode_file_message`."""
    problem = _problem(message)
    if problem is not None:
        raise ConfigurationError(f"the file cannot be sent: {problem}")
    kind = next(kind for kind, of in _KINDS.items() if isinstance(message, of))
    held = {each.name: getattr(message, each.name) for each in fields(message)}
    return FILE_PREFIX + encode(pb.FileMessage, **{kind: held})


def decode_file_message(payload: bytes) -> FileMessage | None:
    """Return the file, manifest or part in a payload; None for any other payload.

    Raises `DecodeError` for a broken rule: a name that is not one path component, a manifest with a wrong number of
    hashes, a hash of a wrong length, an empty part.
    """
    if not is_file_message(payload):
        return None
    encoded = parse(pb.FileMessage, payload[len(FILE_PREFIX) :], max_bytes=MAX_FILE_MESSAGE_BYTES)
    kind = encoded.WhichOneof("kind")
    if kind is None:
        raise DecodeError("FileMessage: it holds none of whole, manifest and part of version 1")
    message = _message(encoded, kind)
    problem = _problem(message)
    if problem is not None:
        raise DecodeError(f"FileMessage: {problem}")
    return message


def file_header(payload: bytes) -> bytes:
    """Return a file, manifest or part without content and part hashes; b"" for other payloads.

    The header of a header is the header itself. `read_file_header` reads it.
    """
    encoded = _parsed(payload)
    kind = None if encoded is None else encoded.WhichOneof("kind")
    if encoded is None or kind is None:
        return b""
    getattr(encoded, kind).ClearField("part_hashes" if kind == "manifest" else "content")
    header = FILE_PREFIX + encoded.SerializeToString(deterministic=True)
    return header if len(header) <= MAX_HEADER_BYTES else b""


def read_file_header(header: bytes) -> FileMessage | None:
    """Return the message of a `file_header`, with empty content and part hashes; None for b""."""
    encoded = _parsed(header)
    kind = None if encoded is None else encoded.WhichOneof("kind")
    return None if encoded is None or kind is None else _message(encoded, kind)


def _parsed(payload: bytes) -> pb.FileMessage | None:
    if not is_file_message(payload):
        return None
    try:
        return parse(pb.FileMessage, payload[len(FILE_PREFIX) :], max_bytes=MAX_FILE_MESSAGE_BYTES)
    except DecodeError:
        return None


def _message(encoded: pb.FileMessage, kind: str) -> FileMessage:
    held = getattr(encoded, kind)
    given = {each.name: getattr(held, each.name) for each in fields(_KINDS[kind])}
    if "part_hashes" in given:
        given["part_hashes"] = tuple(given["part_hashes"])
    return _KINDS[kind](**given)


def _problem(message: FileMessage) -> str | None:
    """Return the broken rule, or None."""
    if isinstance(message, FilePart):
        if len(message.manifest_id) != FILE_HASH_BYTES:
            return f"a manifest id has {FILE_HASH_BYTES} bytes, not {len(message.manifest_id)}"
        return None if message.content else "a part has at least one byte"
    why = name_problem(message.name)
    if why is not None:
        return f"the name {message.name[:MAX_NAME_BYTES]!r} cannot be one: {why}"
    why = media_type_problem(message.media_type)
    if why is not None:
        return f"the media type {message.media_type[:MAX_NAME_BYTES]!r} cannot be one: {why}"
    return _manifest_problem(message) if isinstance(message, FileManifest) else None


def _manifest_problem(manifest: FileManifest) -> str | None:
    if manifest.size_bytes < 1 or manifest.part_size_bytes < 1:
        return "a manifest is of at least one byte, in parts of at least one byte"
    if len(manifest.part_hashes) != manifest.parts:
        return (
            f"{manifest.size_bytes} bytes in parts of {manifest.part_size_bytes} are {manifest.parts} parts, "
            f"and {len(manifest.part_hashes)} have a hash"
        )
    if any(len(one) != FILE_HASH_BYTES for one in (manifest.content_hash, *manifest.part_hashes)):
        return f"a SHA-256 has {FILE_HASH_BYTES} bytes, and one of the hashes has not"
    return None
