"""The outcomes of a received file, manifest or part, and the limits of a receiver."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from fairway.errors import ConfigurationError
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The limits of a receiver; it refuses a file beyond them and keeps no part of it."""

    max_file_bytes: int = 1 << 30
    """Largest file."""
    max_parts: int = 16_384
    """Largest number of parts of a file."""
    max_incomplete_files: int = 64
    """Largest number of incomplete files."""
    max_incomplete_bytes: int = 4 << 30
    """Largest total of their announced sizes."""
    max_age_ms: int = 2_592_000_000
    """Time without a new part until an incomplete file is removed: 30 days."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")


class FileRefusalReason(Enum):
    """The reason for refusing a file or a part."""

    MALFORMED = "malformed"
    """It breaks a rule of the format: an invalid name, an inconsistent manifest."""
    TOO_LARGE = "too-large"
    """It is larger than `FileLimits.max_file_bytes`."""
    TOO_MANY_PARTS = "too-many-parts"
    """It has more parts than `FileLimits.max_parts`."""
    TOO_MANY_FILES = "too-many-files"
    """`FileLimits.max_incomplete_files` or ``max_incomplete_bytes`` is reached."""
    NO_ROOM = "no-room"
    """The disk has too little room for it and the missing parts of incomplete files."""
    NO_MANIFEST = "no-manifest"
    """The manifest of the part is missing or was refused."""
    WRONG_CONTENT = "wrong-content"
    """A part or the whole contradicts the manifest."""
    NOT_SAVED = "not-saved"
    """The disk refuses it now. The channel keeps the message, and delivers it again after 30 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceived:
    """A file is complete, checked and saved."""

    sender_id: str
    message_id: str
    """Message id of the whole file or its manifest."""
    name: str
    """Name given by the sender; the saved file has another name if this one is taken, or if the disk refuses it."""
    media_type: str
    """Media type given by the sender, unchecked."""
    size_bytes: int
    path: Path
    """Path of the saved file."""
    redelivered: bool = False
    """Whether it may have been reported before, after a crash or a repeated send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArriving:
    """The manifest or a part of a file was received."""

    sender_id: str
    message_id: str
    """Message id of the manifest."""
    name: str
    media_type: str
    size_bytes: int
    parts_received: int
    total_parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefused:
    """A file or a part was refused."""

    sender_id: str
    message_id: str
    """Message id of the whole file or its manifest; of the message itself if it is malformed."""
    reason: FileRefusalReason
    detail: str
    """The broken limit or rule, for people."""
    is_repeated: bool = False
    """Whether a part of the same file was refused before."""


FileOutcome: TypeAlias = FileReceived | FileArriving | FileRefused
