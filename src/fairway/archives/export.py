"""Exports the messages of a run folder: as files, as lines of JSON, or as one Parquet file, without Spark.

Every row of ``delivered`` is one message, or a batch of several (`fairway.wire.batch`), which are exported singly.
Messages of a channel are in the order of SDS. Participants choose the names in a channel: a file name contains such a
name only if its characters are safe, so no path leaves the folder.

`FileJoiner` joins files that were sent in parts (`fairway.wire.file_message`). It keeps manifests and parts on the disk
until all messages are read; they may arrive in any order. A file is whole if every part and the whole file match the
hashes of the manifest. A part belongs to a manifest of its own sender and channel. Messages that belong to no whole
file are exported unchanged, so every message is exported once. Memory holds one message at a time.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import NativeFile

from fairway.errors import ConfigurationError, DecodeError
from fairway.pipeline.location import Location
from fairway.pipeline.run.reading import RunTables
from fairway.protocol.segmentation.segmenter import logical_message_id
from fairway.wire.batch import decode_batch, id_in_batch
from fairway.wire.file_message import FileManifest, FileMessage, FilePart, WholeFile, decode_file_message

_COLUMNS: Final = (
    "channel_id",
    "sender_id",
    "message_id",
    "lamport",
    "timestamp",
    "timestamp_ns",
    "segments",
    "recovered",
    "size_bytes",
    "sds_ids",
    "payload",
)
_INDEX: Final = "messages.jsonl"
_SAFE_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHORT: Final = 16
_SAFE_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MANIFEST: Final = "manifest"
_TWICE: Final = "twice"
Row = dict[str, Any]
"""The columns of a message without its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Counts of an export."""

    messages: int
    bytes: int
    """Size of the payloads."""
    to: Location


def export(
    tables: RunTables,
    to: str | PathLike[str],
    *,
    channel_id: str | None = None,
    format: str = "files",  # noqa: A002 - as in `run`
) -> Export:
    """Write the messages of all channels, or of one, into a folder on any storage (`Location`), created if missing.

    ``files`` writes each payload into its own file, in a folder for each channel, and ``messages.jsonl`` with a line
    for each file. Files that were sent as such (docs/files.md) get their names back; files in parts are joined, and
    count as one message. The other formats keep the payloads unchanged. ``jsonl`` writes only ``messages.jsonl``, with
    ``payload_base64``; ``parquet`` writes ``messages.parquet``. Raises `ConfigurationError` for another format, a
    folder that is not empty, or an unknown channel, and `StorageError` if a write fails.
    """
    folder = Location.of(to, "--to")
    write = _WRITERS.get(format)
    if write is None:
        raise ConfigurationError(f"format must be one of {', '.join(_WRITERS)}, not {format!r}")
    if channel_id is not None and not any(
        row["channel_id"] == channel_id for row in tables.all("channel_stats", ["channel_id"])
    ):
        raise ConfigurationError(
            f"there is no channel {channel_id!r} in {tables.place}: 'fairway pipeline report' names those that are"
        )
    if folder.is_file() or folder.children():
        raise ConfigurationError(f"{folder} is there already: choose an empty folder, or a new one")
    where = None if channel_id is None else ds.field("channel_id") == channel_id
    with folder.being_written("remove what is there of it before you start the command again"):
        folder.make_folder()
        return write(single_messages(tables.batches("delivered", _COLUMNS, where)), folder)


def _write_files(batches: Iterator[pa.RecordBatch], to: Location) -> Export:
    with (to / _INDEX).opened() as index, FileJoiner() as joiner:
        writing = _Files(to, index)
        for row in _rows(batches):
            payload = row.pop("payload")
            if joiner.take(row, payload):
                continue
            whole = whole_file_in(payload)
            if whole is None:
                writing.write(row, [payload])
            else:
                writing.write(row, [whole.content], file=whole)
        for joined in joiner.joined():
            writing.write(joined.row, joined.pieces(), file=joined.file, parts=len(joined.parts))
        for row, payload in joiner.rest():
            writing.write(row, [payload])
    return Export(messages=writing.messages, bytes=writing.bytes, to=to)


class _Files:
    """Writes a file for each message, and the lines of the index."""

    def __init__(self, to: Location, index: NativeFile) -> None:
        self.messages = self.bytes = 0
        self._to = to
        self._index = index
        self._folders: set[str] = set()

    def write(
        self, row: Row, pieces: Iterable[bytes], *, file: WholeFile | FileManifest | None = None, parts: int = 1
    ) -> None:
        """Write a payload, or the content of a file; the index gets its name and media type."""
        # The same payload may be sent twice: the SDS message ids distinguish the two.
        carrier = sha256("\0".join(row["sds_ids"]).encode()).hexdigest()[:_SHORT]
        folder, name = _safe(row["channel_id"]), f"{row['message_id'][:_SHORT]}-{carrier}"
        told: Row = {}
        if file is None:
            name += ".bin"
        else:
            folder, name = f"{folder}/{name}", file_name(file.name)
            told = {"name": file.name, "media_type": file.media_type, "parts": parts}
        if folder not in self._folders:
            (self._to / folder).make_folder()
            self._folders.add(folder)
        size_bytes = 0
        with (self._to / f"{folder}/{name}").opened() as written:
            for piece in pieces:
                written.write(piece)
                size_bytes += len(piece)
        if file is not None:
            told["file_bytes"] = size_bytes
        self._index.write((json.dumps({"file": f"{folder}/{name}", **told, **row}) + "\n").encode())
        self.messages += 1
        self.bytes += size_bytes


def _write_lines(batches: Iterator[pa.RecordBatch], to: Location) -> Export:
    messages = size = 0
    with (to / _INDEX).opened() as lines:
        for row in _rows(batches):
            payload = row.pop("payload")
            encoded = base64.b64encode(payload).decode()
            lines.write((json.dumps({**row, "payload_base64": encoded}) + "\n").encode())
            messages += 1
            size += len(payload)
    return Export(messages=messages, bytes=size, to=to)


def _write_parquet(batches: Iterator[pa.RecordBatch], to: Location) -> Export:
    messages = size = 0
    first = next(batches, None)
    if first is not None:
        with (
            (to / "messages.parquet").opened() as file,
            pq.ParquetWriter(file, first.schema, compression="zstd") as writer,
        ):
            for batch in chain([first], batches):
                writer.write_batch(batch)
                messages += batch.num_rows
                size += sum(batch.column("size_bytes").to_pylist())
    return Export(messages=messages, bytes=size, to=to)


def single_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``delivered``, and for a batch its messages, with the ids that receivers give them."""
    for batch in batches:
        rows: list[Row] = []
        for row in batch.to_pylist():
            messages = decode_batch(row["payload"]) if row["segments"] == 1 else None
            if messages is None:
                rows.append(row)
                continue
            for index, payload in enumerate(messages):
                own = {"message_id": logical_message_id(payload), "size_bytes": len(payload), "payload": payload}
                rows.append({**row, **own, "sds_ids": [id_in_batch(row["sds_ids"][0], index)]})
        yield batch if len(rows) == batch.num_rows else pa.RecordBatch.from_pylist(rows, batch.schema)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {**row, "timestamp": row["timestamp"].isoformat(timespec="microseconds").replace("+00:00", "Z")}


def _safe(name: str) -> str:
    """Return the folder name of a channel: its id if the characters are safe, else an underscore and a digest."""
    if _SAFE_FOLDER.fullmatch(name):
        return name
    return f"_{sha256(name.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFile:
    """A whole file that was sent in parts."""

    row: Row
    """The row of the manifest's message."""
    file: FileManifest
    parts: tuple[Path, ...]
    """Paths of the stored messages with its parts, in order."""

    def pieces(self) -> Iterator[bytes]:
        """Return the content, part by part."""
        for path in self.parts:
            part = _content(_kept(path)[1])
            assert isinstance(part, FilePart), "it was one when it was taken"
            yield part.content


class FileJoiner:
    """The parts and manifests of an export; a context manager, which removes the stored messages."""

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
        """Store a message if it may belong to a file in parts; return whether it was stored."""
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
        """Yield the whole files. The request for the next file deletes the stored messages of the last one."""
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
        """Yield the messages that belong to no whole file, with their payloads."""
        for folder in sorted(self._aside.iterdir()):
            for path in sorted(folder.iterdir()):
                yield _kept(path)


def file_name(name: str) -> str:
    """Return the name of an exported file: its own if it is safe on every storage, else ``file`` with its suffix."""
    if _SAFE_FILE.fullmatch(name):
        return name
    suffix = Path(name).suffix
    return f"file{suffix}" if _SAFE_FILE.fullmatch(f"file{suffix}") else "file"


def whole_file_in(payload: bytes) -> WholeFile | None:
    """Return the file of a message with a whole file, or None."""
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


_WRITERS: Final[dict[str, Callable[[Iterator[pa.RecordBatch], Location], Export]]] = {
    "files": _write_files,
    "jsonl": _write_lines,
    "parquet": _write_parquet,
}
