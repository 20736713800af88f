"""`ParquetScan`: reads Parquet tables of messages in Python; a task reads one or several row groups.

``format("waku")`` uses it, because there Python supplies every row. `open_source` lets Spark read the files, which is
faster. Invariant: both give the same rows and names (`fairway.pipeline.sources.open_source.conformed`), except that
missing text and payloads are empty here and null there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, MessageScan, Selection, arrow_batch, even_runs
from fairway.storage.archive import MAX_TIMESTAMP_NS, MIN_TIMESTAMP_NS, ArchivedMessage

_PARTITIONS_PER_CORE: Final = 2
_BATCH_ROWS: Final = 1_000
NEEDED_COLUMNS: Final = ("message_hash", "content_topic", "payload", "timestamp")
_BYTES: Final = ("binary", "large_binary", "fixed_size_binary", "null")
_INTEGERS: Final = ("int", "uint", "decimal", "null")
_KINDS: Final = {
    "message_hash": _BYTES,
    "payload": _BYTES,
    "meta": _BYTES,
    "timestamp": _INTEGERS,
    "version": _INTEGERS,
}
"""The accepted types of each column. Other types, such as times or text for bytes, would be misread silently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetScan(MessageScan):
    """A read of Parquet tables. Row groups without a wanted timestamp, by their statistics, are not read."""

    path: str
    """A file, or a folder of them, ``name=value`` folders in it being columns; a local path or a URI of pyarrow's."""
    source: str
    is_labelled: bool
    """Whether ``source`` replaces the source that rows name themselves."""
    selection: Selection = field(default_factory=Selection)

    def plan(self, partitions: int | None = None) -> list[tuple[Any, ...]]:
        """Return runs of row groups of about equally many rows, at least one run."""
        dataset = self._dataset()
        wanted = self._times(dataset.schema)
        groups = [
            group for file in dataset.get_fragments(wanted) for group in file.split_by_row_group(wanted, dataset.schema)
        ]
        sizes = [sum(each.num_rows for each in group.row_groups) for group in groups]
        return even_runs(groups, sizes, partitions or _PARTITIONS_PER_CORE * machine.cores())

    def read(self, part: tuple[Any, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some row groups, one batch for each store that had them."""
        if not part:
            return
        schema = self._dataset().schema
        columns = [name for name in (*ARROW_SCHEMA.names, "sources") if name in schema.names]
        wanted = self._times(schema)
        for group in part:
            for batch in group.to_batches(schema, columns=columns, filter=wanted, batch_size=_BATCH_ROWS):
                pages: dict[str, list[ArchivedMessage]] = {}
                for row in batch.to_pylist():
                    message = _message(row)
                    if self.selection.wants(message):
                        for store in self._stores(row):
                            pages.setdefault(store, []).append(message)
                for store, page in pages.items():
                    yield arrow_batch(list(self.selection.chosen(page)), store)

    def _dataset(self) -> ds.Dataset:
        try:
            dataset = ds.dataset(self.path, format="parquet", partitioning="hive")
        except (OSError, pa.ArrowException) as error:
            raise ConfigurationError(f"{self.path}: cannot be read as Parquet: {error}") from error
        if lacking := ", ".join(name for name in NEEDED_COLUMNS if name not in dataset.schema.names):
            raise ConfigurationError(f"{self.path}: is no table of Waku messages; it has no column {lacking}")
        for name, kinds in _KINDS.items():
            kind = str(dataset.schema.field(name).type) if name in dataset.schema.names else "null"
            if not kind.startswith(kinds):
                raise ConfigurationError(f"{self.path}: its column {name} is {kind}; expected {' or '.join(kinds)}")
        return dataset

    def _times(self, schema: pa.Schema) -> ds.Expression | None:
        """Return the wanted times as a condition on the statistics; row groups without statistics are read."""
        if not pa.types.is_signed_integer(schema.field("timestamp").type):
            return None
        column, part = ds.field("timestamp"), self.selection.part
        within = (column >= part.after.timestamp_ns) & (column <= part.through.timestamp_ns)
        return within | column.is_null()

    def _stores(self, row: Mapping[str, Any]) -> list[str]:
        if self.is_labelled:
            return [self.source]
        if "sources" in row:  # deduplicated before: one row for each archive that had the message
            return [store or self.source for store in row["sources"] or [None]]
        return [self.source if row.get("source") is None else str(row["source"])]


def _message(row: Mapping[str, Any]) -> ArchivedMessage:
    """Return a row as a message; what a row lacks makes it none the same as another, nor leaves it out of time."""
    payload, given_hash, meta = row["payload"], row["message_hash"], row.get("meta")
    timestamp_ns = int(row["timestamp"] or 0)
    if given_hash is None:
        given_hash = b"" if payload is None else sha256(payload).digest()
    return ArchivedMessage(
        message_hash=given_hash,
        pubsub_topic=str(row.get("pubsub_topic") or ""),
        content_topic=str(row["content_topic"] or ""),
        payload=payload or b"",
        version=int(row.get("version") or 0),
        timestamp_ns=timestamp_ns if MIN_TIMESTAMP_NS <= timestamp_ns <= MAX_TIMESTAMP_NS else 0,
        meta=meta,
    )
