"""Joins the micro-batches of a stream into few files, and removes those that are needed no more.

Recorded rows are joined before each refresh, which reads them joined. Deliveries are joined when there are many; their
folders stay for a while after that, for readers who follow them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.streaming.channel_core import DELIVERED, EMITTED, FOUND, MISSING
from fairway.pipeline.streaming.folder import RECORDED_SCHEMA, StreamFolder
from fairway.pipeline.streaming.joined import batches_of, parquet_files, write_parts
from fairway.pipeline.streaming.recorded import taken_through

BATCH: Final = pa.field("batch", pa.int32())
JOINED_SCHEMA: Final = pa.schema([*(field for field in arrow_schema(EMITTED) if field.name != "what"), BATCH])
"""The columns of joined deliveries."""


def compact(folder: StreamFolder, many: int) -> None:
    """Join micro-batches if there are so many, and remove what was joined the time before; call it in one thread."""
    if len(folder.recorded.loose()) >= many:
        join_recorded(folder)
    emitted = folder.emitted
    before = emitted.joined.through
    if len(loose := emitted.loose()) >= many:
        emitted.joined.join(loose[-1], [emitted.folder(number) for number in loose], _copy_numbered)
        emitted.remove_through(before)
        emitted.joined.remove_inner()
        emitted.joined.join_small(copy_emitted)


def join_recorded(folder: StreamFolder) -> None:
    """Join all recorded rows; remove the folders of those that were joined before and went through the cores."""
    recorded = folder.recorded
    before = folder.rows.through
    if loose := recorded.loose():
        folder.rows.join(loose[-1], [recorded.folder(number) for number in loose], copy_rows)
    recorded.remove_through(min(before, taken_through(folder.taken)))


def copy_rows(folders: Sequence[Path], target: Path) -> None:
    """Write recorded rows of some folders into few files."""
    write_parts(batches_of(file for folder in folders for file in parquet_files(folder)), RECORDED_SCHEMA, target)


def _copy_numbered(folders: Sequence[Path], target: Path) -> None:
    """Join the folders of micro-batches, whose names have the number."""
    _copy_each_kind(folders, target, _numbered)


def copy_emitted(folders: Sequence[Path], target: Path) -> None:
    """Write deliveries of some folders, which are joined already, into few files."""
    _copy_each_kind(folders, target, lambda folder, what: batches_of(parquet_files(folder / what)))


def _copy_each_kind(
    folders: Sequence[Path], target: Path, rows_of: Callable[[Path, str], Iterator[pa.RecordBatch]]
) -> None:
    for kind in (DELIVERED, MISSING, FOUND):
        what = f"what={kind}"
        (target / what).mkdir()
        write_parts((batch for folder in folders for batch in rows_of(folder, what)), JOINED_SCHEMA, target / what)


def _numbered(folder: Path, what: str) -> Iterator[pa.RecordBatch]:
    number = pa.scalar(int(folder.name.partition("=")[2]), BATCH.type)
    for batch in batches_of(parquet_files(folder / what)):
        yield batch.append_column(BATCH, pa.repeat(number, batch.num_rows))
