"""`OutgoingFile`: a file on disk as the payloads of its messages.

`OutgoingFile` reads the file once for its hashes, and each part again when it is sent, so at most one part is in
memory. The payloads depend only on the file's name, media type and content: a restarted process makes the same ones.
"""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from fairway.errors import ConfigurationError, FileChangedError, MessageTooLargeError
from fairway.wire.file_message import (
    DEFAULT_MEDIA_TYPE,
    FileManifest,
    FilePart,
    WholeFile,
    encode_file_message,
    largest_part_bytes,
    manifest_id,
)

_HASHED_AT_ONCE_BYTES: Final = 1_048_576
_TYPES: Final = mimetypes.MimeTypes(filenames=())
"""Python's built-in table, which is the same on all machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A file to send, and its messages."""

    path: Path
    size_bytes: int
    announcement: WholeFile | FileManifest
    """The first message; the content of a file in one message is empty here and is read when it is sent."""
    content_hash: bytes
    """SHA-256 of the file."""

    @classmethod
    def read(cls, path: Path, *, name: str | None, media_type: str | None, payload_bytes: int) -> Self:
        """Read the size and hashes of a file; ``payload_bytes`` is the longest payload of a message.

        Raises `ConfigurationError` if the file cannot be read, or if receivers refuse its name or media type. Raises
        `MessageTooLargeError` if the hashes of all parts do not fit one message.
        """
        try:
            _check_kind(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        # The name of a link, not of its target.
        name = path.absolute().name if name is None else name
        if media_type is None:
            media_type = _TYPES.guess_type(name)[0] or DEFAULT_MEDIA_TYPE
        part_bytes = largest_part_bytes(payload_bytes)
        empty = WholeFile(name=name, media_type=media_type, content=b"")
        try:
            header_bytes = len(encode_file_message(empty))
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; rename the file, or give another with name= or media_type=") from error
        if part_bytes < 1 or header_bytes > payload_bytes:
            raise ConfigurationError(
                f"messages of {payload_bytes} bytes have no room for the header of a file; raise "
                "segmentation.max_message_size_bytes"
            )
        size_bytes, content_hash, part_hashes = _hashes_of(path, part_bytes)
        whole_bytes = header_bytes + size_bytes + _LENGTHS_BYTES
        if whole_bytes <= payload_bytes:
            return cls(path=path, size_bytes=size_bytes, announcement=empty, content_hash=content_hash)
        manifest = FileManifest(
            name=name,
            media_type=media_type,
            size_bytes=size_bytes,
            part_size_bytes=part_bytes,
            content_hash=content_hash,
            part_hashes=part_hashes,
        )
        encoded_bytes = len(encode_file_message(manifest)) + _LENGTHS_BYTES
        if encoded_bytes > payload_bytes:
            each = encoded_bytes / len(part_hashes)
            raise MessageTooLargeError(
                size_bytes,
                int(payload_bytes / each) * part_bytes,
                "the hashes of all parts of a file must fit one message: raise segmentation.max_message_size_bytes",
            )
        return cls(path=path, size_bytes=size_bytes, announcement=manifest, content_hash=content_hash)

    def repeated(self, repetition: int) -> OutgoingFile:
        """Return the same file for another send, after ``repetition`` complete sends."""
        return replace(self, announcement=replace(self.announcement, repetition=repetition))

    @property
    def name(self) -> str:
        """The name for receivers."""
        return self.announcement.name

    @property
    def messages(self) -> int:
        """Number of messages: 1, or the manifest and all parts."""
        return 1 + (len(self.announcement.part_hashes) if isinstance(self.announcement, FileManifest) else 0)

    def payload(self, number: int) -> bytes:
        """Return the payload of a message; number 0 is the whole file or the manifest, the parts follow.

        Raises `FileChangedError` if the content has changed since the first reading, `ConfigurationError` if it cannot
        be read.
        """
        announced = self.announcement
        if isinstance(announced, WholeFile):
            content = self._content(0, self.size_bytes, self.content_hash)
            return encode_file_message(replace(announced, content=content))
        manifest = encode_file_message(announced)
        if number == 0:
            return manifest
        index = number - 1
        content = self._content(
            index * announced.part_size_bytes, announced.part_bytes(index), announced.part_hashes[index]
        )
        return encode_file_message(FilePart(manifest_id=manifest_id(manifest), index=index, content=content))

    def payload_bytes(self, number: int) -> int:
        """Return the approximate length of a message's payload, within some bytes, without reading the file."""
        announced = self.announcement
        if isinstance(announced, WholeFile):
            return self.size_bytes + len(encode_file_message(announced)) + _LENGTHS_BYTES
        return len(encode_file_message(announced)) if number == 0 else announced.part_bytes(number - 1)

    def _content(self, offset: int, size_bytes: int, expected: bytes) -> bytes:
        try:
            with self.path.open("rb") as opened:
                opened.seek(offset)
                content = opened.read(size_bytes + 1 if offset + size_bytes == self.size_bytes else size_bytes)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if sha256(content).digest() != expected:
            raise FileChangedError(
                f"{self.path} changed while it was being sent; send it again when it is complete, as a new file"
            )
        return content


_LENGTHS_BYTES: Final = 16
"""Bytes of the fields that an empty file, or a first send, omits."""


def _check_kind(path: Path) -> None:
    """Raise `ConfigurationError` for a folder, a pipe or a device, which cannot be read twice or may have no end."""
    if path.is_dir():
        raise ConfigurationError(
            f"{path} cannot be read as a file (it is a folder); give the path of a file, such as an archive of "
            "the folder"
        )
    if path.exists() and not path.is_file():
        raise ConfigurationError(
            f"{path} cannot be read as a file (it is a pipe or a device); give the path of a file, or send what it "
            "brings with --raw"
        )


def _hashes_of(path: Path, part_bytes: int) -> tuple[int, bytes, tuple[bytes, ...]]:
    """Return size, hash and the hashes of all parts of a file, with bounded memory."""
    whole, parts, size_bytes = sha256(), [], 0
    try:
        with path.open("rb") as opened:
            part, left = sha256(), part_bytes
            while piece := opened.read(min(_HASHED_AT_ONCE_BYTES, left)):
                whole.update(piece)
                part.update(piece)
                size_bytes += len(piece)
                left -= len(piece)
                if not left:
                    parts.append(part.digest())
                    part, left = sha256(), part_bytes
            if left < part_bytes:
                parts.append(part.digest())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return size_bytes, whole.digest(), tuple(parts)


def _unreadable(path: Path, error: OSError | ValueError) -> ConfigurationError:
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigurationError(f"{path} cannot be read ({reason}); give the path of a readable file")
