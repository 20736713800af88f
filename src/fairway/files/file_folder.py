"""`FileFolder`: incomplete and saved files in a folder, safe against a crash at any moment.

Incomplete files are in the subfolder ``.fairway``: the content of each, and an entry (JSON) with the manifest. The
received parts are not recorded: after a restart the content is compared with the hashes of the manifest.

A complete file gets its name by a hard link. The link fails if the name is taken, so no file is ever replaced. The
content keeps its first name until the entry records that the file was saved. After a crash in between, both names refer
to one file. Entries of saved files are kept for messages that are delivered again after a crash.

If the disk refuses a name, the file gets another one (`names_for`). An error of one file does not affect other files.

Invariant: a file under its name in the folder is complete, checked and durable.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fairway.environment import time_ns
from fairway.errors import ConfigurationError, DecodeError, StorageError, StoreFullError
from fairway.files.file_names import names_for, numbered
from fairway.storage.whole_file import BESIDE, make_durable, replace_whole
from fairway.units import NS_PER_MS, NS_PER_S
from fairway.wire.file_message import FileManifest, decode_file_message, encode_file_message

_SUBFOLDER: Final = ".fairway"
_ENTRY: Final = ".json"
_CONTENT: Final = ".content"
_KEPT_ENTRIES: Final = 1_000
"""Entries of saved files; a message that is delivered again after a crash is among the newest."""
_WHOLE: Final = {"state": "whole"}
"""The entry of a file in one message until it is saved."""
_REDELIVERED_WITHIN_NS: Final = 30 * 86_400 * NS_PER_S
"""Age at which an entry is removed."""
_READ_AT_ONCE_BYTES: Final = 1_048_576
_PROBE_BYTES: Final = 4_096
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""Errors of file systems without hard links."""


@dataclass(slots=True, kw_only=True)
class IncompleteFile:
    """An incomplete file."""

    key: str
    sender_id: str
    message_id: str
    """Of the manifest."""
    manifest: FileManifest
    received: set[int] = field(default_factory=set)
    """The parts that are on the disk."""

    @property
    def is_complete(self) -> bool:
        """Whether all parts are saved."""
        return len(self.received) == len(self.manifest.part_hashes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """A recently saved file."""

    name: str
    """Its name in the folder."""
    manifest: FileManifest | None
    """None for a file in one message."""


class FileFolder:
    """The files in one folder; every call reads or writes the disk.

    Calls raise `StoreFullError` if the disk is full, and `StorageError` for other errors of the disk. Earlier content
    is not lost, so the call can be repeated later.
    """

    def __init__(self, folder: Path) -> None:
        """Use a folder, which is created if missing; raise `ConfigurationError` if that fails."""
        self.path = folder
        self._inner = folder / _SUBFOLDER
        try:
            self._inner.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{folder} cannot be used to save into ({error.strerror}); name a folder that may be written"
            ) from error
        self.incomplete: dict[str, IncompleteFile] = {}
        self.saved: dict[str, SavedFile] = {}
        """Recently saved files by key, the oldest first."""
        self._restore()

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        with _errors_of(self._inner):
            return shutil.disk_usage(self._inner).free

    def can_be_written(self) -> bool:
        """Return whether a small file can be written."""
        probe = self._inner / f"probe{BESIDE}"
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))
        except OSError:
            return False
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return True

    def begin(self, key: str, sender_id: str, message_id: str, manifest: FileManifest) -> IncompleteFile:
        """Create an incomplete file."""
        file = IncompleteFile(key=key, sender_id=sender_id, message_id=message_id, manifest=manifest)
        try:
            with _errors_of(self._content(key)):
                self._content(key).touch()
            self._write_entry(key, _as_entry(file))
        except StorageError:
            with suppress(OSError):
                self._content(key).unlink(missing_ok=True)
            raise
        self.incomplete[key] = file
        return file

    def write_part(self, file: IncompleteFile, index: int, content: bytes) -> None:
        """Write a checked part durably."""
        path = self._content(file.key)
        with _errors_of(path), path.open("r+b", buffering=0) as opened:
            size_bytes = os.fstat(opened.fileno()).st_size
            try:
                opened.seek(index * file.manifest.part_size_bytes)
                _write_all(opened, content)
                os.fsync(opened.fileno())
            except OSError:
                with suppress(OSError):  # free the room of a half-written part
                    opened.truncate(size_bytes)
                raise
        file.received.add(index)

    def is_as_announced(self, file: IncompleteFile) -> bool:
        """Return whether a complete file has the hash of its manifest."""
        whole = sha256()
        with _errors_of(self._content(file.key)), self._content(file.key).open("rb") as opened:
            while piece := opened.read(_READ_AT_ONCE_BYTES):
                whole.update(piece)
        return whole.digest() == file.manifest.content_hash

    def save(self, file: IncompleteFile) -> Path:
        """Give a complete file its name, or a similar free one; return its path."""
        path = self._name(file.key, file.manifest.name, file)
        del self.incomplete[file.key]
        return path

    def save_whole(self, key: str, name: str, content: bytes) -> Path:
        """Save a file of one message; return its path.

        If the process crashed after the file got its name, the content exists and is not written again.
        """
        path = self._content(key)
        self._write_entry(key, _WHOLE)
        with _errors_of(path):
            if not path.exists() or path.read_bytes() != content:
                path.unlink(missing_ok=True)
                try:
                    with path.open("xb", buffering=0) as opened:
                        _write_all(opened, content)
                        os.fsync(opened.fileno())
                except OSError:
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
                    raise
        return self._name(key, name, None)

    def drop(self, file: IncompleteFile) -> None:
        """Remove an incomplete file and its content."""
        self.incomplete.pop(file.key, None)
        self._remove(file.key)

    def drop_older_than(self, age_ms: int) -> None:
        """Remove incomplete files without a new part for ``age_ms``."""
        oldest_ns = time_ns() - age_ms * NS_PER_MS
        for file in list(self.incomplete.values()):
            try:
                is_old = self._content(file.key).stat().st_mtime_ns < oldest_ns
            except OSError:
                is_old = True  # its content was removed by another program
            if is_old:
                self.drop(file)

    def holds(self, name: str, content: bytes) -> bool:
        """Return whether a saved file still exists with this content."""
        path = self.path / name
        try:
            return path.stat().st_size == len(content) and path.read_bytes() == content
        except OSError:
            return False

    def _content(self, key: str) -> Path:
        return self._inner / f"{key}{_CONTENT}"

    def _entry(self, key: str) -> Path:
        return self._inner / f"{key}{_ENTRY}"

    def _name(self, key: str, name: str, file: IncompleteFile | None) -> Path:
        """Give content its name, and record it."""
        content = self._content(key)
        with _errors_of(self.path / name):
            path = self._give_name(content, name, key)
            make_durable(self.path)
        self._write_entry(key, (_as_entry(file) if file is not None else {}) | {"saved": path.name})
        self.saved[key] = SavedFile(name=path.name, manifest=None if file is None else file.manifest)
        with _errors_of(content):
            content.unlink(missing_ok=True)
        while len(self.saved) > _KEPT_ENTRIES:
            oldest = next(iter(self.saved))
            del self.saved[oldest]
            self._remove(oldest)
        return path

    def _give_name(self, content: Path, name: str, key: str) -> Path:
        """Give content the first of its names that the disk accepts and that is free; return the path."""
        refusal: OSError | None = None
        for wanted in names_for(name, key):
            try:
                return next(path for path in map(self.path.joinpath, numbered(wanted)) if _claim(content, path))
            except UnicodeEncodeError as error:  # a locale without UTF-8
                refusal = OSError(errno.EILSEQ, str(error))
            except OSError as error:
                if error.errno in _FULL or not content.exists():
                    raise
                refusal = error
        assert refusal is not None, "there is at least one name"
        raise refusal

    def _write_entry(self, key: str, entry: dict[str, Any]) -> None:
        path = self._entry(key)
        with _errors_of(path):
            replace_whole(path, json.dumps(entry).encode())

    def _remove(self, key: str) -> None:
        with _errors_of(self._entry(key)):
            # The content is removed last: content without an entry is removed at the next start.
            self._entry(key).unlink(missing_ok=True)
            self._content(key).unlink(missing_ok=True)

    def _restore(self) -> None:
        """Read the files of an earlier run."""
        with _errors_of(self._inner):
            for path in sorted(self._inner.glob(f"*{_ENTRY}"), key=lambda each: each.lstat().st_mtime_ns):
                with suppress(OSError):  # an unreadable entry stays, and its file begins anew
                    self._restore_entry(path.stem, path)
            for path in self._inner.iterdir():
                is_left = path.suffix == _CONTENT and (path.stem in self.saved or not self._entry(path.stem).exists())
                if path.suffix == BESIDE or is_left:
                    with suppress(OSError):
                        path.unlink(missing_ok=True)

    def _restore_entry(self, key: str, path: Path) -> None:
        file = _read_entry(key, path)
        if isinstance(file, SavedFile):
            self.saved[key] = file
        elif file == _WHOLE and time_ns() - path.stat().st_mtime_ns < _REDELIVERED_WITHIN_NS:
            return  # its message is delivered again
        elif not isinstance(file, IncompleteFile) or not self._content(key).exists():
            # Another program changed this entry: `FileFolder` writes entries atomically.
            with suppress(StorageError):
                self._remove(key)
        else:
            self.incomplete[key] = file
            with self._content(key).open("rb") as opened:
                for index, expected in enumerate(file.manifest.part_hashes):
                    if sha256(opened.read(file.manifest.part_bytes(index))).digest() == expected:
                        file.received.add(index)


def _as_entry(file: IncompleteFile) -> dict[str, str]:
    payload = b64encode(encode_file_message(file.manifest)).decode()
    return {"sender_id": file.sender_id, "message_id": file.message_id, "manifest": payload}


def _read_entry(key: str, path: Path) -> IncompleteFile | SavedFile | dict[str, str] | None:
    """Return the file of an entry, `_WHOLE` for a file in one message, or None if it cannot be read."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        encoded = entry.get("manifest")
        manifest = None if encoded is None else decode_file_message(b64decode(encoded))
        match entry, manifest:
            case {"saved": str(name)}, FileManifest() | None:
                return SavedFile(name=name, manifest=manifest)
            case {"sender_id": str(sender_id), "message_id": str(message_id)}, FileManifest():
                return IncompleteFile(key=key, sender_id=sender_id, message_id=message_id, manifest=manifest)
            case _ if entry == _WHOLE:
                return _WHOLE
    except (AttributeError, TypeError, ValueError, DecodeError):
        return None
    return None


def _write_all(opened: io.FileIO, content: bytes) -> None:
    """Write all bytes to an unbuffered file, which may accept fewer at once."""
    rest = memoryview(content)
    while rest:
        rest = rest[opened.write(rest) :]


def _claim(content: Path, path: Path) -> bool:
    """Give content a further name; return False if the name is taken."""
    try:
        path.hardlink_to(content)
    except FileExistsError:
        # It may have got the name before a crash.
        return os.path.samestat(path.lstat(), content.stat())
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            path.open("xb").close()
        except FileExistsError:
            return False
        content.replace(path)
    return True


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a `StorageError` with the path."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(
                f"{path} cannot be written ({error.strerror}); make room and start again: the received parts stay, and "
                "the message is kept until then"
            ) from error
        raise StorageError(
            f"{path} cannot be used ({error.strerror}); remove the cause and start again: the message is kept"
        ) from error
