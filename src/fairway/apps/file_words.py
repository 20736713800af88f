"""What became of a file, in words for people."""

from __future__ import annotations

from typing import Final

from fairway.files.outcomes import FileArriving, FileOutcome, FileReceived, FileRefusalReason, FileRefused
from fairway.units import counted
from fairway.visible import visible
from fairway.wire.file_message import FileManifest, FileMessage, FilePart, WholeFile

_TENTHS: Final = 10


def words_for(brought: FileOutcome | FileMessage) -> str | None:
    """Return a line about what a message brought of a file; None for what is not worth one."""
    match brought:
        case FileReceived():
            before = ", perhaps shown before" if brought.redelivered else ""
            return f"{_called(brought.name, brought.media_type)} saved as {visible(str(brought.path))}{before}"
        case FileArriving():
            return _arriving(brought)
        case FilePart():
            return None
        case FileManifest():
            return f"{_announced(brought.name, brought.media_type, brought.size_bytes)}; --save FOLDER saves files"
        case WholeFile():
            return f"{_announced(brought.name, brought.media_type, len(brought.content))}; --save FOLDER saves files"
        case FileRefused(reason=FileRefusalReason.NOT_SAVED):
            return visible(brought.detail)
        case FileRefused():
            return None if brought.is_repeated else f"a file was refused: {visible(brought.detail)}"


def _called(name: str, media_type: str) -> str:
    return f"{visible(name)} ({visible(media_type)})"


def _announced(name: str, media_type: str, size_bytes: int) -> str:
    return f"{_called(name, media_type)} of {counted(size_bytes, 'byte')}"


def _arriving(file: FileArriving) -> str | None:
    """Return a line at the beginning and at each tenth of the way."""
    done, total = file.parts_received, file.total_parts
    if done and done * _TENTHS // total == (done - 1) * _TENTHS // total:
        return None
    return f"{_announced(file.name, file.media_type, file.size_bytes)}: {done:,} of {counted(total, 'part')} received"
