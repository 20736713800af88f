"""`Uploads`: the files that were given to the page, until they are delivered.

A browser gives a file once, and the channel may need it for days. So the content is kept in a folder before the
browser gets its answer, and the next start continues. An entry (JSON) beside the content has the file's name and
the request id of its send. Content without an entry was not accepted.

Invariant: after a crash at any moment an accepted file is sent, and not as a second one.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from fairway.channel.reliable_channel import ReliableChannel
from fairway.environment import environment
from fairway.errors import (
    ConfigurationError,
    DeliveryFailedError,
    FairwayError,
    FileChangedError,
    MessageTooLargeError,
    StorageError,
)
from fairway.files.outcomes import FileLimits
from fairway.files.sending import FileProgress, send_file
from fairway.owned_tasks import OwnedTasks
from fairway.storage.whole_file import replace_whole
from fairway.wire.file_message import name_problem

_MAX_FILES: Final = 16
"""Files that are sent at once."""
MAX_FILE_BYTES: Final = FileLimits().max_file_bytes
"""Size of a file; receivers refuse larger ones by default."""
_RETRY_S: Final = 30.0
"""Pause after a failed delivery."""
_ENTRY: Final = ".json"
_ID_BYTES: Final = 10


@dataclass(slots=True)
class Upload:
    """A file that is being sent."""

    entry: Path
    name: str
    request_id: str = ""
    """Request id of its first message; empty until `send_file` has chosen it."""
    progress: FileProgress | None = None
    failure: str = ""
    """Why the last attempt failed; another one follows."""

    @property
    def content(self) -> Path:
        """The path of the content."""
        return self.entry.with_suffix("")

    def write(self) -> None:
        """Write the entry, durably."""
        replace_whole(self.entry, json.dumps({"name": self.name, "request_id": self.request_id}).encode())

    def remove(self) -> None:
        """Remove entry and content."""
        self.entry.unlink(missing_ok=True)
        self.content.unlink(missing_ok=True)


class Uploads:
    """The files that one participant sends."""

    def __init__(
        self, channel: ReliableChannel, folder: Path, changed: Callable[[str], None], refused: Callable[[str], None]
    ) -> None:
        """Call ``changed`` with the request id of an upload that changed or ended, ``refused`` with a text."""
        self.by_request_id: Final[dict[str, Upload]] = {}
        self._channel = channel
        self._folder = folder
        self._changed = changed
        self._refused = refused
        self._arriving = 0
        self._tasks = OwnedTasks()

    def resume(self) -> None:
        """Continue the uploads of an earlier run, when the channel has started.

        Raises `StorageError` if the folder cannot be read.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            entries = set(self._folder.glob(f"*{_ENTRY}"))
            for path in set(self._folder.iterdir()) - entries:
                if path.with_suffix(_ENTRY) not in entries:
                    path.unlink()
            uploads = [Upload(entry, **json.loads(entry.read_bytes())) for entry in entries]
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"{self._folder} has the files to send, and cannot be used ({error})") from error
        for upload in uploads:
            if upload.request_id:
                self.by_request_id[upload.request_id] = upload
            self._tasks.spawn(self._send(upload))

    async def accept(self, name: str, content: AsyncIterator[bytes]) -> None:
        """Keep a file, durably, and begin to send it.

        Raises `ConfigurationError` for a name that receivers refuse, or for too many files. Raises
        `MessageTooLargeError` beyond `MAX_FILE_BYTES`, and `OSError` if the disk fails.
        """
        problem = name_problem(name)
        if problem is not None:
            raise ConfigurationError(f"the file cannot be sent: {problem}; rename it")
        if len(self._tasks) + self._arriving >= _MAX_FILES:
            raise ConfigurationError(f"{_MAX_FILES} files are being sent; wait until one of them is delivered")
        self._arriving += 1
        upload = Upload(self._folder / f"{environment().random_bytes(_ID_BYTES).hex()}{_ENTRY}", name)
        try:
            await self._keep(upload.content, content)
            await asyncio.to_thread(upload.write)
        except BaseException:
            upload.remove()
            raise
        finally:
            self._arriving -= 1
        self._tasks.spawn(self._send(upload))

    async def close(self) -> None:
        """Stop sending; the next start continues."""
        await self._tasks.close()

    async def _keep(self, path: Path, content: AsyncIterator[bytes]) -> None:
        size_bytes = 0
        with path.open("xb") as opened:
            async for chunk in content:
                size_bytes += len(chunk)
                if size_bytes > MAX_FILE_BYTES:
                    raise MessageTooLargeError(size_bytes, MAX_FILE_BYTES, "receivers refuse larger files by default")
                await asyncio.to_thread(opened.write, chunk)
            await asyncio.to_thread(opened.flush)
            await asyncio.to_thread(os.fsync, opened.fileno())

    async def _send(self, upload: Upload) -> None:
        """Send a file until it is delivered, and remove it."""
        try:
            # After a crash between its delivery and its removal, an upload must not be sent once more.
            is_sent = bool(upload.request_id) and self._channel.is_settled(upload.request_id)
            while not is_sent:
                is_sent = await self._attempt(upload)
        except (ConfigurationError, MessageTooLargeError, FileChangedError) as error:
            self._refused(f"{upload.name} cannot be sent: {error}")
        except OSError as error:
            self._refused(f"{upload.name} waits for the next start: {error}")
            return
        except FairwayError:
            return  # The channel has failed or is closed; the next start continues.
        await asyncio.to_thread(upload.remove)
        self.by_request_id.pop(upload.request_id, None)
        self._changed(upload.request_id)

    async def _attempt(self, upload: Upload) -> bool:
        """Send a file; return whether it is delivered, after a pause if it is not."""
        try:
            await send_file(self._channel, upload.content, name=upload.name, progress=partial(self._note, upload))
        except DeliveryFailedError as error:
            upload.failure = str(error)
            self._changed(upload.request_id)
            await asyncio.sleep(_RETRY_S)
            return False
        return True

    def _note(self, upload: Upload, progress: FileProgress) -> None:
        if upload.request_id != progress.request_id:
            upload.request_id = progress.request_id
            upload.write()
        upload.progress, upload.failure = progress, ""
        self.by_request_id[upload.request_id] = upload
        self._changed(upload.request_id)
