"""`FileJoiner`: puts files that went over a channel in parts together, from messages in any order.

Manifests and parts (`fairway.wire.file_message`) are set aside on the disk, and joined when all messages have been
seen. A file is whole if each part has the hash that its manifest says, and the whole has, too; what does not make a
file whole is a message like any other. A part belongs to a manifest of its own sender and channel.

Invariant: each message that was taken comes out once, in a whole file or by itself; memory holds one of them at a time.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fairway.errors import DecodeError
from fairway.wire.file_message import FileManifest, FileMessage, FilePart, WholeFile, decode_file_message

_HARMLESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MANIFEST: Final = "manifest"
_TWICE: Final = "twice"

Row = dict[str, Any]
"""What is told of a message, without its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFile:
    """A file that is whole."""

    row: Row
    """Of the message that has its name: the manifest."""
    file: FileManifest
    parts: tuple[Path, ...]
    """Where the messages with its parts are set aside, in their order."""

    def pieces(self) -> Iterator[bytes]:
        """Return the content, part by part."""
        for path in self.parts:
            part = _content(_kept(path)[1])
            assert isinstance(part, FilePart), "it was one when it was taken"
            yield part.content


class FileJoiner:
    """The parts and manifests of an export; a context manager, which removes what was set aside."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fairway-export-")
        self._aside = Path(self._folder.name)
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def take(self, row: Row, payload: bytes) -> bool:
        """Set a message aside if it may belong to a file in parts; return whether that was so."""
        message = _content(payload)
        if isinstance(message, FileManifest):
            file_id, name = row["message_id"], _MANIFEST
        elif isinstance(message, FilePart):
            file_id, name = message.manifest_id.hex(), _part_name(message.index, sha256(message.content).digest())
        else:
            return False
        told = "\0".join((row["channel_id"], row["sender_id"], file_id))
        folder = self._aside / sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
        folder.mkdir(exist_ok=True)
        if (folder / name).exists():
            name = f"{_TWICE}-{next(self._numbers)}"
        head = json.dumps(row).encode()
        (folder / name).write_bytes(b"%d\n%s%s" % (len(head), head, payload))
        return True

    def joined(self) -> Iterator[JoinedFile]:
        """Return the files that are whole. A file's messages are forgotten when the next one is asked for."""
        for folder in sorted(self._aside.iterdir()):
            if not (folder / _MANIFEST).exists():
                continue
            row, payload = _kept(folder / _MANIFEST)
            manifest = _content(payload)
            assert isinstance(manifest, FileManifest), "it was one when it was taken"
            parts = tuple(folder / _part_name(index, digest) for index, digest in enumerate(manifest.part_hashes))
            file = JoinedFile(row=row, file=manifest, parts=parts)
            if all(path.exists() for path in parts) and _is_as_announced(file):
                yield file
                for path in {folder / _MANIFEST, *parts}:
                    path.unlink()

    def rest(self) -> Iterator[tuple[Row, bytes]]:
        """Return the messages that belong to no file that is whole, with their payloads."""
        for folder in sorted(self._aside.iterdir()):
            for path in sorted(folder.iterdir()):
                yield _kept(path)


def file_name(name: str) -> str:
    """Return the name under which a file is exported: its own, if no storage takes offence at that."""
    if _HARMLESS.fullmatch(name):
        return name
    suffix = Path(name).suffix
    return f"file{suffix}" if _HARMLESS.fullmatch(f"file{suffix}") else "file"


def whole_file_in(payload: bytes) -> WholeFile | None:
    """Return the file that a message holds alone, or None."""
    message = _content(payload)
    return message if isinstance(message, WholeFile) else None


def _content(payload: bytes) -> FileMessage | None:
    try:
        return decode_file_message(payload)
    except DecodeError:
        return None


def _part_name(index: int, digest: bytes) -> str:
    return f"{index}-{digest.hex()}"


def _kept(path: Path) -> tuple[Row, bytes]:
    size, _, rest = path.read_bytes().partition(b"\n")
    return json.loads(rest[: int(size)]), rest[int(size) :]


def _is_as_announced(file: JoinedFile) -> bool:
    whole, size_bytes = sha256(), 0
    for piece in file.pieces():
        whole.update(piece)
        size_bytes += len(piece)
    return (size_bytes, whole.digest()) == (file.file.size_bytes, file.file.content_hash)
