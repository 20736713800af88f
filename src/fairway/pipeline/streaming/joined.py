"""`JoinedBatches`: many micro-batches as a few folders with few files, so that a stream can go on for years.

A folder bears the first and the last number of the micro-batches that it stands for. It is written aside, made durable
and moved to its place in one step; what it stands for is removed afterwards, and need not be: a folder whose numbers
lie within those of another does not count. So a reader who keeps to that rule finds each micro-batch once at any
moment, and a process that is killed at any point leaves nothing worse than a folder that the next one removes.

Neighbouring folders are joined again when there are many, until they have `FINAL_BYTES`: a row is copied a few times.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.pipeline.instants import with_instants
from fairway.storage.whole_file import make_durable

FINAL_BYTES: Final = 268_435_456
"""A folder of so much is not joined with others any more."""
MANY_FOLDERS: Final = 64
"""So many smaller folders that follow each other are joined."""
_PART_BYTES: Final = 134_217_728
_GROUP_BYTES: Final = 16_777_216
_BATCH_ROWS: Final = 1_000


class BatchRange(NamedTuple):
    """A folder that stands for several micro-batches."""

    first: int
    last: int
    folder: Path

    def covers(self, other: BatchRange) -> bool:
        """Return whether it stands for the micro-batches of another one."""
        return self.first <= other.first and other.last <= self.last


Copy = Callable[[Sequence[Path], Path], None]
"""Writes into a new folder what is in some folders, in their order."""


class JoinedBatches:
    """The folders of one table that stand for several micro-batches; those from 0 on, without a gap."""

    def __init__(self, place: Path, aside: Path, prefix: str = "") -> None:
        """Keep them at ``place``, with ``prefix`` in their names; ``aside`` is on the same file system."""
        self.place: Final = place
        self._aside: Final = aside
        self._prefix: Final = prefix
        self._name: Final = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)")

    def ranges(self) -> list[BatchRange]:
        """Return the folders that count, in the order of their micro-batches."""
        found = self._all()
        return [one for one in found if not self._is_inside(one, found)]

    @property
    def through(self) -> int:
        """Return the last micro-batch that is in one of them, or -1."""
        return max((one.last for one in self._all()), default=-1)

    def join(self, last: int, sources: Sequence[Path], copy: Copy) -> None:
        """Add a folder for the micro-batches after `through` up to ``last``, which are in ``sources``."""
        self._put(self.through + 1, last, sources, copy)

    def join_small(self, copy: Copy, many: int = MANY_FOLDERS) -> bool:
        """Join the newest folders into one, if there are many small ones; return whether it was so.

        What does not count any more stays until `remove_inner`.
        """
        small: list[BatchRange] = []
        for one in reversed(self.ranges()):
            if size_bytes(one.folder) >= FINAL_BYTES:
                break
            small.insert(0, one)
        if len(small) >= many:
            self._put(small[0].first, small[-1].last, [one.folder for one in small], copy)
        return len(small) >= many

    def inner(self) -> list[BatchRange]:
        """Return the folders that do not count."""
        found = self._all()
        return [one for one in found if self._is_inside(one, found)]

    def remove_inner(self) -> None:
        """Remove the folders that do not count."""
        for one in self.inner():
            remove_whole(one.folder, self._aside)

    def _put(self, first: int, last: int, sources: Sequence[Path], copy: Copy) -> None:
        self._aside.mkdir(parents=True, exist_ok=True)
        self.place.mkdir(parents=True, exist_ok=True)
        aside = self._aside / f"joined-{first}-{last}-{secrets.token_hex(4)}"
        aside.mkdir()
        copy(sources, aside)
        for folder, _, _ in os.walk(aside):
            make_durable(Path(folder))
        aside.rename(self.place / f"{self._prefix}{first}-{last}")
        make_durable(self.place)

    def _all(self) -> list[BatchRange]:
        children = self.place.iterdir() if self.place.is_dir() else ()
        named = ((child, self._name.fullmatch(child.name)) for child in children)
        return sorted(BatchRange(int(match[1]), int(match[2]), child) for child, match in named if match)

    @staticmethod
    def _is_inside(one: BatchRange, others: Iterable[BatchRange]) -> bool:
        return any(other.folder != one.folder and other.covers(one) for other in others)


def remove_whole(folder: Path, aside: Path) -> None:
    """Remove a folder in one step: who lists it finds all of its files, or no folder."""
    aside.mkdir(parents=True, exist_ok=True)
    gone = aside / f"removed-{secrets.token_hex(4)}"
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def parquet_files(folder: Path) -> list[Path]:
    """Return the files of a folder that count, in the order of their names."""
    return sorted(file for file in folder.rglob("*.parquet") if not file.name.startswith((".", "_")))


def size_bytes(folder: Path) -> int:
    """Return the size of the files of a folder."""
    return sum(file.stat().st_size for file in parquet_files(folder))


def rows_in(folder: Path) -> int:
    """Return how many rows the files of a folder have."""
    return sum(int(pq.read_metadata(file).num_rows) for file in parquet_files(folder))


def batches_of(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files."""
    for file in files:
        with pq.ParquetFile(file) as rows:
            yield from rows.iter_batches(_BATCH_ROWS)


def write_parts(rows: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> None:
    """Write rows into few files of a folder, durably; none if there are no rows."""
    held: list[pa.RecordBatch] = []
    number = 0
    left = iter(rows)
    batch = next(left, None)
    while batch is not None:
        written = 0
        with (folder / f"part-{number:05d}.parquet").open("wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                while batch is not None and written < _PART_BYTES:
                    held.append(batch)
                    batch = next(left, None)
                    size = sum(one.nbytes for one in held)
                    if size >= _GROUP_BYTES or batch is None or written + size >= _PART_BYTES:
                        table = with_instants(pa.Table.from_batches(held), schema)
                        writer.write_table(table)
                        held, written = [], written + size
            file.flush()
            os.fsync(file.fileno())
        number += 1
