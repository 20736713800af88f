"""What becomes of a received message that is a file, or a manifest or a part of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from fairway.errors import ConfigurationError
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What a receiver accepts; a file beyond it is refused, and nothing of it is kept."""

    max_file_bytes: int = 1 << 30
    """Largest file."""
    max_parts: int = 16_384
    """Most parts of a file."""
    max_incomplete_files: int = 64
    """Files that parts are missing of."""
    max_incomplete_bytes: int = 4 << 30
    """Announced sizes of those files together."""
    max_age_ms: int = 2_592_000_000
    """Time without a new part after which an incomplete file is removed: 30 days."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")


class FileRefusalReason(Enum):
    """Why a file, or a part of one, is not taken."""

    MALFORMED = "malformed"
    """It breaks a rule of the format: a name that is no name, a manifest that contradicts itself."""
    TOO_LARGE = "too-large"
    """It is larger than `FileLimits.max_file_bytes`."""
    TOO_MANY_PARTS = "too-many-parts"
    """It has more parts than `FileLimits.max_parts`."""
    TOO_MANY_FILES = "too-many-files"
    """`FileLimits.max_incomplete_files` or ``max_incomplete_bytes`` is reached."""
    NO_ROOM = "no-room"
    """The disk has no room for it, beside what incomplete files still lack."""
    NO_MANIFEST = "no-manifest"
    """A part of a file whose manifest did not come, or was refused."""
    WRONG_CONTENT = "wrong-content"
    """A part or the whole is not what the manifest says."""
    NOT_SAVED = "not-saved"
    """The disk does not take it now. The channel keeps the message, and hands it over again after half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceived:
    """A file is whole, checked, and saved."""

    sender_id: str
    message_id: str
    """Of the whole file or its manifest."""
    name: str
    """What the sender calls it; the saved file has another name if there was one of this name, or if the disk refuses
    this name."""
    media_type: str
    """The media type by the sender, unchecked."""
    size_bytes: int
    path: Path
    """Where it was saved."""
    redelivered: bool = False
    """Whether it may have been reported before: there was a crash, or its sender sent it again for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArriving:
    """A file in parts is announced, or a part of it came."""

    sender_id: str
    message_id: str
    """Of the manifest."""
    name: str
    media_type: str
    size_bytes: int
    parts_received: int
    total_parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefused:
    """A file, or a part of one, is not taken."""

    sender_id: str
    message_id: str
    """Of the whole file or its manifest; of the message itself if that is malformed."""
    reason: FileRefusalReason
    detail: str
    """The limit or rule that was broken, as text for people."""
    is_repeated: bool = False
    """Whether something of the same file was refused before."""


FileOutcome: TypeAlias = FileReceived | FileArriving | FileRefused
