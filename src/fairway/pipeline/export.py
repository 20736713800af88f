"""Exports the messages of a run folder: as files, as lines of JSON, or as one Parquet file, without Spark.

Every row of ``delivered`` is one message. Messages of a channel are in the order of SDS. Participants choose the names
in a channel: a file name contains such a name only if its characters are safe, and never leads out of the folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import NativeFile

from fairway.errors import ConfigurationError
from fairway.pipeline.exported_files import FileJoiner, Row, file_name, whole_file_in
from fairway.pipeline.location import Location
from fairway.pipeline.run.reading import RunTables
from fairway.wire.file_message import FileManifest, WholeFile

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
_HARMLESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHORT: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Counts of what was written."""

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

    ``files`` writes each payload into a file of its own, in a folder for each channel, and ``messages.jsonl`` that says
    what each is; files that were sent as such (docs/files.md) get their names back, and those in parts are joined, and
    count as one message. The other formats have the payloads as they are. ``jsonl`` writes ``messages.jsonl`` alone,
    with ``payload_base64``; ``parquet`` writes ``messages.parquet``. Raises `ConfigurationError` for another format, a
    folder with something in it, or a channel that is not there, and `StorageError` if it cannot be written.
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
        return write(tables.batches("delivered", _COLUMNS, where), folder)


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
        """Write a payload, or the content of a file, whose name and media type go into the index."""
        # The same payload may be sent twice: the SDS message ids tell the two apart.
        carrier = hashlib.sha256("\0".join(row["sds_ids"]).encode()).hexdigest()[:_SHORT]
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


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {**row, "timestamp": row["timestamp"].isoformat(timespec="microseconds").replace("+00:00", "Z")}


def _safe(name: str) -> str:
    """Return the folder name of a channel: its id if the characters are safe, else an underscore and a digest."""
    if _HARMLESS.fullmatch(name):
        return name
    return f"_{hashlib.sha256(name.encode()).hexdigest()[:32]}"


_WRITERS: Final[dict[str, Callable[[Iterator[pa.RecordBatch], Location], Export]]] = {
    "files": _write_files,
    "jsonl": _write_lines,
    "parquet": _write_parquet,
}
