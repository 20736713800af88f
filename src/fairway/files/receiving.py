"""`FileReceiver`: saves received files in a folder.

Received messages are not trusted. Sizes and counts are checked before the first write, each part is checked against the
manifest, and the whole file is checked before it gets its name. `FileReceiver.take` returns when the content of a
message is on the disk; a program can then finish the message.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Final

from fairway.bounded import BoundedDict
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ConfigurationError, DecodeError, StorageError
from fairway.events import MessageReceived
from fairway.files.file_folder import FileFolder, IncompleteFile, SavedFile
from fairway.files.outcomes import (
    FileArriving,
    FileLimits,
    FileOutcome,
    FileReceived,
    FileRefusalReason,
    FileRefused,
)
from fairway.options import Delivery
from fairway.type_checks import check_type
from fairway.units import counted
from fairway.wire.file_message import FileManifest, FilePart, WholeFile, decode_file_message, is_file_message

_KEPT_REFUSALS: Final = 1_000
_KEY_DIGITS: Final = 40
AGAIN_AFTER_MS: Final = 30_000
"""Delay before another attempt for a file that the disk refused."""


class FileReceiver:
    """Saves the files that one channel receives; made by `FileReceiver.open`."""

    def __init__(self, channel: ReliableChannel, folder: FileFolder, limits: FileLimits) -> None:
        """Use `FileReceiver.open`."""
        self._limits = limits
        self._channel = channel
        self._owner = (channel.channel_id, channel.sender_id)
        self._folder = folder
        self._refused: BoundedDict[str, None] = BoundedDict(_KEPT_REFUSALS)
        self._reported: set[str] = set()
        """Files in parts that this run has reported as saved."""
        self._turn = asyncio.Lock()

    @classmethod
    async def open(
        cls, channel: ReliableChannel, folder: str | PathLike[str], limits: FileLimits | None = None
    ) -> FileReceiver:
        """Save into a folder, which is created if missing, and continue the incomplete files in it.

        Raises `ConfigurationError` if the folder cannot be created, or if the channel delivers parts before their
        manifest (`Delivery.ARRIVAL`). Raises `StorageError` if the content of the folder cannot be read.
        """
        check_type("channel", channel, ReliableChannel)
        check_type("folder", folder, str | PathLike)
        check_type("limits", limits, FileLimits | None)
        if channel.options.delivery is Delivery.ARRIVAL:
            raise ConfigurationError(
                "files need delivery='causal': with 'arrival' parts of a file may be delivered before its manifest"
            )
        return cls(channel, await asyncio.to_thread(FileFolder, Path(folder)), limits or FileLimits())

    @property
    def incomplete(self) -> tuple[FileArriving, ...]:
        """The incomplete files, including those of earlier runs."""
        return tuple(map(_arriving, self._folder.incomplete.values()))

    def path_of(self, sender_id: str, message_id: str) -> Path | None:
        """Return the path of a saved file by the fields of its `FileReceived`, also of an earlier run.

        None if it is not saved, or not one of the last 1,000. Another program may have moved the file.
        """
        saved = self._folder.saved.get(self._key(sender_id, message_id))
        return None if saved is None else self._folder.path / saved.name

    async def take(self, message: MessageReceived) -> FileOutcome | None:
        """Save the file or part in a received message; return the outcome, or None for a raw payload.

        Finish the message afterwards. If the disk refuses this file now, the outcome is a `FileRefused` with
        `FileRefusalReason.NOT_SAVED`, and the channel delivers the message again later.

        Raises `StoreFullError` if the disk refuses every file, and `StorageError` if the folder cannot be used. Do not
        finish the message then: the channel delivers it again after its next start.
        """
        check_type("message", message, MessageReceived)
        if not is_file_message(message.payload):
            return None
        async with self._turn:
            try:
                return await asyncio.to_thread(self._take, message)
            except StorageError as error:
                return await self.postpone(message, error)

    async def postpone(self, message: MessageReceived, error: StorageError) -> FileRefused:
        """Deliver a message again later if the disk refused it but accepts others; otherwise raise the error.

        For programs that save raw payloads in addition to files.
        """
        if not await asyncio.to_thread(self._folder.can_be_written):
            raise error
        content = decode_file_message(message.payload)
        file_id = content.manifest_id.hex() if isinstance(content, FilePart) else message.message_id
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        if message.ephemeral:
            why = f"a file cannot be saved ({reason}), and its message was ephemeral"
        else:
            try:
                self._channel.hand_over_later(message, after_ms=AGAIN_AFTER_MS)
            except ConfigurationError:  # not a message of this channel: the caller keeps it
                raise error from None
            why = f"a file cannot be saved now ({reason}); the next attempt is in {AGAIN_AFTER_MS // 1_000} s"
        return self._refuse(message, file_id, FileRefusalReason.NOT_SAVED, why)

    def _take(self, message: MessageReceived) -> FileOutcome:
        try:
            content = decode_file_message(message.payload)
        except DecodeError as error:
            return self._refuse(message, message.message_id, FileRefusalReason.MALFORMED, str(error))
        match content:
            case WholeFile():
                return self._take_whole(message, content)
            case FileManifest():
                return self._take_manifest(message, content)
            case FilePart():
                return self._take_part(message, content)
        raise AssertionError("take looked whether it is one of these")

    def _key(self, sender_id: str, file_id: str) -> str:
        """Return the key of a file, different for each receiver, sender and send."""
        told = "\0".join((*self._owner, sender_id, file_id))
        return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGITS]

    def _take_whole(self, message: MessageReceived, file: WholeFile) -> FileOutcome:
        key, size_bytes = self._key(message.sender_id, message.message_id), len(file.content)
        saved = self._folder.saved.get(key)
        if saved is not None and not message.redelivered and not self._folder.holds(saved.name, file.content):
            saved = None
        if saved is not None:
            path = self._folder.path / saved.name
        elif size_bytes > self._limits.max_file_bytes:
            return self._refuse_size(message, file.name, size_bytes)
        else:
            path = self._folder.save_whole(key, file.name, file.content)
        return FileReceived(
            sender_id=message.sender_id,
            message_id=message.message_id,
            name=file.name,
            media_type=file.media_type,
            size_bytes=size_bytes,
            path=path,
            redelivered=saved is not None,
        )

    def _take_manifest(self, message: MessageReceived, manifest: FileManifest) -> FileOutcome:
        key = self._key(message.sender_id, message.message_id)
        saved = self._folder.saved.get(key)
        if saved is not None:
            return self._known(message, message.message_id, key, saved)
        file = self._folder.incomplete.get(key)
        if file is None:
            refusal = self._refusal(message, manifest)
            if refusal is not None:
                return refusal
            file = self._folder.begin(key, message.sender_id, message.message_id, manifest)
        return _arriving(file)

    def _take_part(self, message: MessageReceived, part: FilePart) -> FileOutcome:
        file_id = part.manifest_id.hex()
        key = self._key(message.sender_id, file_id)
        saved = self._folder.saved.get(key)
        if saved is not None:
            return self._known(message, file_id, key, saved)
        file = self._folder.incomplete.get(key)
        if file is None:
            why = "a part of a file whose manifest did not come or was refused"
            return self._refuse(message, file_id, FileRefusalReason.NO_MANIFEST, why)
        hashes = file.manifest.part_hashes
        if part.index >= len(hashes) or sha256(part.content).digest() != hashes[part.index]:
            why = f"part {part.index} of {file.manifest.name} is not what its manifest says"
            return self._refuse(message, file_id, FileRefusalReason.WRONG_CONTENT, why)
        if part.index not in file.received:
            self._folder.write_part(file, part.index, part.content)
        return self._saved(file) if file.is_complete else _arriving(file)

    def _saved(self, file: IncompleteFile) -> FileOutcome:
        """Save a complete file if it matches its manifest."""
        if not self._folder.is_as_announced(file):
            self._folder.drop(file)
            self._note_refused(file.key)
            return FileRefused(
                sender_id=file.sender_id,
                message_id=file.message_id,
                reason=FileRefusalReason.WRONG_CONTENT,
                detail=f"{file.manifest.name} does not have the hash that its manifest says, and each of its parts has",
            )
        path = self._folder.save(file)
        self._reported.add(file.key)
        return _received(file.sender_id, file.message_id, file.manifest, path, redelivered=False)

    def _known(self, message: MessageReceived, file_id: str, key: str, saved: SavedFile) -> FileOutcome:
        """Return the outcome for a message of an already saved file in parts.

        If the process ended between saving and finishing, the outcome reports the file again.
        """
        manifest = saved.manifest
        if manifest is None:
            why = "it has the id of a file that came in one message"
            return self._refuse(message, file_id, FileRefusalReason.MALFORMED, why)
        if message.redelivered and key not in self._reported:
            self._reported.add(key)
            path = self._folder.path / saved.name
            return _received(message.sender_id, file_id, manifest, path, redelivered=True)
        file = IncompleteFile(key=key, sender_id=message.sender_id, message_id=file_id, manifest=manifest)
        file.received.update(range(len(manifest.part_hashes)))
        return _arriving(file)

    def _refusal(self, message: MessageReceived, manifest: FileManifest) -> FileRefused | None:
        """Return the refusal of a new file in parts, or None."""
        limits, name, size_bytes = self._limits, manifest.name, manifest.size_bytes
        if size_bytes > limits.max_file_bytes:
            return self._refuse_size(message, name, size_bytes)
        if len(manifest.part_hashes) > limits.max_parts:
            parts = counted(len(manifest.part_hashes), "part")
            why = f"{name} has {parts}, at most {limits.max_parts:,} are accepted (max_parts)"
            return self._refuse(message, message.message_id, FileRefusalReason.TOO_MANY_PARTS, why)
        self._folder.drop_older_than(limits.max_age_ms)
        incomplete = self._folder.incomplete.values()
        announced_bytes = sum(file.manifest.size_bytes for file in incomplete)
        if len(incomplete) >= limits.max_incomplete_files or announced_bytes + size_bytes > limits.max_incomplete_bytes:
            why = (
                f"{name} of {counted(size_bytes, 'byte')} would come beside "
                f"{counted(len(incomplete), 'incomplete file')} of {counted(announced_bytes, 'byte')} "
                "(max_incomplete_files, max_incomplete_bytes)"
            )
            return self._refuse(message, message.message_id, FileRefusalReason.TOO_MANY_FILES, why)
        missing_bytes = sum(_missing_bytes(file) for file in incomplete)
        free_bytes = self._folder.free_bytes()
        if missing_bytes + size_bytes > free_bytes:
            why = (
                f"{name} has {counted(size_bytes, 'byte')}, incomplete files lack {missing_bytes:,}, and the disk has "
                f"room for {free_bytes:,}; make room, and ask its sender to send it again"
            )
            return self._refuse(message, message.message_id, FileRefusalReason.NO_ROOM, why)
        return None

    def _refuse_size(self, message: MessageReceived, name: str, size_bytes: int) -> FileRefused:
        limit = self._limits.max_file_bytes
        size = counted(size_bytes, "byte")
        why = f"{name} has {size}, at most {limit:,} are accepted (max_file_bytes, --max-file-bytes)"
        return self._refuse(message, message.message_id, FileRefusalReason.TOO_LARGE, why)

    def _refuse(self, message: MessageReceived, file_id: str, reason: FileRefusalReason, detail: str) -> FileRefused:
        return FileRefused(
            sender_id=message.sender_id,
            message_id=file_id,
            reason=reason,
            detail=detail,
            is_repeated=self._note_refused(self._key(message.sender_id, file_id)),
        )

    def _note_refused(self, key: str) -> bool:
        """Note a refused part of a file; return whether one was refused before."""
        before = key in self._refused
        self._refused[key] = None
        return before


def _arriving(file: IncompleteFile) -> FileArriving:
    return FileArriving(
        sender_id=file.sender_id,
        message_id=file.message_id,
        name=file.manifest.name,
        media_type=file.manifest.media_type,
        size_bytes=file.manifest.size_bytes,
        parts_received=len(file.received),
        total_parts=len(file.manifest.part_hashes),
    )


def _received(
    sender_id: str, message_id: str, manifest: FileManifest, path: Path, *, redelivered: bool
) -> FileReceived:
    return FileReceived(
        sender_id=sender_id,
        message_id=message_id,
        name=manifest.name,
        media_type=manifest.media_type,
        size_bytes=manifest.size_bytes,
        path=path,
        redelivered=redelivered,
    )


def _missing_bytes(file: IncompleteFile) -> int:
    return file.manifest.size_bytes - sum(map(file.manifest.part_bytes, file.received))
