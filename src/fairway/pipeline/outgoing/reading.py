"""`PayloadSource`: reads payloads from rows of Parquet, lines of JSON or a folder of files into the table ``payloads``.

Invariant: every row, line or file is one row of the table, in the same order. An unreadable one becomes a row with a
``fault``, which `composed` refuses. Only faults of all rows, such as a missing column, raise an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError
from fairway.pipeline.instants import with_instants
from fairway.pipeline.outgoing.tables import PAYLOADS
from fairway.pipeline.schema import arrow_schema, exact_schema

_ARROW_SCHEMA: Final = exact_schema(PAYLOADS)
_TABLE_SCHEMA: Final = arrow_schema(PAYLOADS)
_GIVEN: Final = tuple(name for name in _ARROW_SCHEMA.names if name not in {"origin", "fault"})
_JSON_KINDS: Final[Mapping[str, type]] = {
    "channel_id": str,
    "sender_id": str,
    "seq": int,
    "payload": str,
    "payload_base64": str,
    "content_topic": str,
    "ephemeral": bool,
    "not_before_ms": int,
}
_LARGEST_NUMBER: Final = 2**63
_BATCH_ROWS: Final = 256
_BATCH_BYTES: Final = 8_388_608
_DIGEST_BLOCK_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadSource:
    """A place of payloads, and the defaults for missing fields."""

    path: Path
    """A ``.parquet`` file, a folder of those, a ``.jsonl`` file, or a folder whose files are the payloads."""
    channel_id: str | None = None
    sender_id: str | None = None
    content_topic: str | None = None
    max_bytes: int = 2**31 - 1
    """Size of the largest file in a folder that is read."""

    def described(self) -> list[dict[str, Any]]:
        """Return the files and the digests of their contents, which identify a batch."""
        defaults = {"channel_id": self.channel_id, "sender_id": self.sender_id, "content_topic": self.content_topic}
        files = [{"name": file.name, "sha256": _digest(file)} for file in self.files()]
        return [{"payloads": str(self.path), **defaults}, *files]

    def files(self) -> list[Path]:
        """Return the files with payloads; raise `ConfigurationError` if there are none."""
        if self.path.is_file():
            return [self.path]
        if not self.path.is_dir():
            raise ConfigurationError(f"{self.path}: there is no such file or folder; give the payloads to send")
        files = sorted(file for file in self.path.iterdir() if file.is_file() and not file.name.startswith("."))
        rows = [file for file in files if file.suffix == ".parquet"]
        if rows and all(file.name.startswith("_") for file in files if file not in rows):
            return rows  # beside the table that it writes, Spark leaves _SUCCESS
        if not files:
            raise ConfigurationError(f"{self.path} has no files: each file in the folder is one payload")
        return files

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of ``payloads``; raise `ConfigurationError` for a fault of all rows."""
        files = self.files()
        if all(file.suffix == ".parquet" for file in files):
            found = _of_parquet(files)
        elif self.path.is_dir():
            found = _of_files(files, self.max_bytes)
        elif self.path.suffix in {".jsonl", ".ndjson"}:
            found = _of_json_lines(self.path)
        else:
            raise ConfigurationError(
                f"{self.path} is neither .parquet nor .jsonl; to send the file itself, give the folder that it is in"
            )
        for number, row in enumerate(found):
            yield {
                **row,
                "channel_id": _or(row.get("channel_id"), self.channel_id),
                "sender_id": _or(row.get("sender_id"), self.sender_id),
                "content_topic": _or(row.get("content_topic"), self.content_topic),
                "seq": None if "fault" in row else row.get("seq", number),
            }


def write_payloads(source: PayloadSource, folder: Path) -> int:
    """Write the table ``payloads`` of a source into a new folder, batch by batch; return its number of rows."""
    folder.mkdir(parents=True)
    count = 0
    with pq.ParquetWriter(folder / "part-0.parquet", _TABLE_SCHEMA, compression="zstd") as writer:
        for rows in in_batches(source.rows()):
            writer.write_table(with_instants(pa.Table.from_pylist(rows, schema=_ARROW_SCHEMA), _TABLE_SCHEMA))
            count += len(rows)
    return count


def _or(given: Any, default: Any) -> Any:
    return default if given is None else given


def in_batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in lists with a bounded size of the column ``payload``."""
    waiting: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += len(row.get("payload") or b"")
        if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _of_parquet(files: list[Path]) -> Iterator[dict[str, Any]]:
    try:
        dataset = ds.dataset([str(file) for file in files], format="parquet")
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigurationError(f"{files[0]} cannot be read as Parquet: {error}") from error
    if "payload" not in dataset.schema.names:
        raise ConfigurationError(f"{files[0]} has no column payload; its columns: {', '.join(dataset.schema.names)}")
    columns = [name for name in _GIVEN if name in dataset.schema.names]
    number = 0
    for batch in dataset.to_batches(columns=columns, batch_size=_BATCH_ROWS, use_threads=False):
        try:
            table = pa.Table.from_batches([batch]).cast(pa.schema([_ARROW_SCHEMA.field(name) for name in columns]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            kinds = ", ".join(f"{name} {_ARROW_SCHEMA.field(name).type}" for name in columns)
            raise ConfigurationError(f"{files[0]}: a column has another type than {kinds}: {error}") from error
        for row in table.to_pylist():
            yield {**row, "origin": f"row {number}"}
            number += 1


def _of_files(files: list[Path], max_bytes: int) -> Iterator[dict[str, Any]]:
    for file in files:
        try:
            size = file.stat().st_size
            if size > max_bytes:
                yield {"origin": file.name, "fault": f"the file has {size} bytes, a message at most {max_bytes}"}
            else:
                yield {"origin": file.name, "payload": file.read_bytes()}
        except OSError as error:
            yield {"origin": file.name, "fault": f"the file cannot be read: {error.strerror}"}


def _of_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            origin = f"line {number}"
            try:
                yield {**_json_row(line), "origin": origin}
            except ValueError as error:
                yield {"origin": origin, "fault": str(error)}


def _json_row(line: bytes) -> dict[str, Any]:
    """Return the row of a line; raise `ValueError` for an invalid line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError('a line must be an object such as {"payload": "text"}')  # noqa: TRY004 - a fault of the row
    if unknown := sorted(row.keys() - _JSON_KINDS.keys()):
        raise ValueError(f"{unknown[0]!r} is not known; an object may have {', '.join(_JSON_KINDS)}")
    for name, value in row.items():
        kind = _JSON_KINDS[name]
        if value is not None and type(value) is not kind:
            raise ValueError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")
        if type(value) is int and abs(value) >= _LARGEST_NUMBER:
            raise ValueError(f"{name} does not fit 64 bits")
    text, encoded = row.pop("payload", None), row.pop("payload_base64", None)
    if (text is None) == (encoded is None):
        raise ValueError("an object needs payload, a text, or payload_base64, and not both")
    try:
        payload = text.encode() if encoded is None else base64.b64decode(encoded, validate=True)
        for value in row.values():
            str(value).encode()
    except binascii.Error as error:
        raise ValueError(f"payload_base64 is not base64: {error}") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"not Unicode text: {error.reason}") from error
    return {**row, "payload": payload}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_DIGEST_BLOCK_BYTES):
                digest.update(block)
    except OSError:
        return "unreadable"
    return digest.hexdigest()
