"""Reads payloads from files, saves payloads as files, and makes the lines about the state of a file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

from fairway.errors import ConfigurationError, MessageTooLargeError, StorageError
from fairway.events import MessageReceived
from fairway.files.outcomes import FileArriving, FileOutcome, FileReceived, FileRefusalReason, FileRefused
from fairway.files.receiving import FileReceiver
from fairway.storage.whole_file import make_durable
from fairway.units import counted
from fairway.visible import visible
from fairway.wire.file_message import FileManifest, FileMessage, FilePart, WholeFile

_HINT: Final = "send it with 'fairway send --file', which sends large files in parts"


def read_payload(file: Path, limit_bytes: int) -> bytes:
    """Return the content of a file to send; read at most one byte more than ``limit_bytes``.

    Raises `ConfigurationError` if the file cannot be read, and `MessageTooLargeError` if it is larger.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(limit_bytes + 1)
            size_bytes = max(len(content), os.fstat(opened.fileno()).st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{file} cannot be read ({reason}); give the path of a readable file") from error
    if len(content) > limit_bytes:
        raise MessageTooLargeError(size_bytes, limit_bytes, _HINT)
    return content


def make_folder(folder: Path) -> None:
    """Create a folder to save into unless it exists; raise `ConfigurationError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be used to save into ({error.strerror}); name a folder that may be written"
        ) from error


def save_payload(folder: Path, message_id: str, payload: bytes) -> Path:
    """Write a payload to ``folder/message_id``, durably, and return the path; raise `StorageError` if that fails.

    The file appears whole, also if several programs save into one folder. A message id is a hash: it is a safe name,
    and an existing file of that name has the same content.
    """
    path = folder / message_id
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".incoming-")
        with open(descriptor, "wb") as opened:  # noqa: PTH123 - a descriptor, not a path
            opened.write(payload)
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).replace(path)
        make_durable(folder)
    except OSError as error:
        if name:
            Path(name).unlink(missing_ok=True)
        raise StorageError(
            f"{path} cannot be written ({error.strerror}); make room and start again, the message is kept until then"
        ) from error
    return path


async def save_message(receiver: FileReceiver, folder: Path, message: MessageReceived) -> Path | FileRefused:
    """Save the payload of a message that is not a file; if the disk refuses it, the message is delivered again later.

    Raises `StorageError` if the disk refuses every file.
    """
    try:
        return await asyncio.to_thread(save_payload, folder, message.message_id, message.payload)
    except StorageError as error:
        return await receiver.postpone(message, error)


def read_stream(stream: BinaryIO, limit_bytes: int) -> bytes:
    """Read a stream to its end; raise `MessageTooLargeError` beyond ``limit_bytes``."""
    content = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise MessageTooLargeError(len(content), limit_bytes, f"the rest was not read; {_HINT}")
    return content


_TENTHS: Final = 10


def words_for(brought: FileOutcome | FileMessage) -> str | None:
    """Return a line for people about a message of a file; None if it is not worth a line."""
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
    """Return a line for the first part and for each tenth of the parts."""
    done, total = file.parts_received, file.total_parts
    if done and done * _TENTHS // total == (done - 1) * _TENTHS // total:
        return None
    return f"{_announced(file.name, file.media_type, file.size_bytes)}: {done:,} of {counted(total, 'part')} received"
