"""`ParquetScan`: reads Parquet tables of messages with Arrow, on any storage; a task reads some rows of some files.

Files are planned from one listing, by name, size and time. The driver reads the footers of at most `MOST_FOOTERS`
files: of a table with more files, of the largest. It cuts these files between row groups; other files are read whole.
Each task reads the footers of its own files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import itemgetter
from typing import Any, ClassVar, Final, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.files_scan import FilesScan, State, folders_of, with_folders
from fairway.pipeline.sources.message_columns import NS_PER, STORES, MessageColumns
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, EXACT_TIME, Selection, even_runs
from fairway.pipeline.tables import delta

MOST_FOOTERS: Final = 1_000
"""Largest number of footers that the driver reads."""
FOOTERS_AT_ONCE: Final = 16
"""Files whose footers are read concurrently; from an object store each takes a request."""
_BATCH_ROWS: Final = 4_000
_BATCH_BYTES: Final = 8_388_608
_FORMAT: Final = ds.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class FileRows:
    """Consecutive rows of a file."""

    state: State
    """The state of the file at the listing."""
    first: int = 0
    end: int | None = None
    """The first row after them; None for the end of the file."""


FACTS: Final = "have_hashes boolean, name_stores boolean, error string"
"""Facts of several files, as in `Footers`, and the error of a file that is not a table of Waku messages, if any."""

Part = tuple[FileRows, ...]
"""The part of one task."""


@dataclass(frozen=True, slots=True)
class Footers:
    """The facts in the footers of some files."""

    groups: Mapping[str, Sequence[tuple[int, int, int]]]
    """For each file the row groups that may have a wanted message: first row, first row after it, and size in bytes."""
    files: int
    """Number of the files."""
    have_hashes: bool
    """Whether all files have message hashes."""
    name_stores: bool
    """Whether the rows of a file name their stores."""

    @classmethod
    def together(cls, several: Iterable[Footers]) -> Footers:
        """Return the facts of several groups of files as one."""
        groups: dict[str, Sequence[tuple[int, int, int]]] = {}
        files, have_hashes, name_stores = 0, True, False
        for each in several:
            groups.update(each.groups)
            files += each.files
            have_hashes &= each.have_hashes
            name_stores |= each.name_stores
        return cls(groups, files, have_hashes, name_stores)


@dataclass(frozen=True, slots=True)
class _File:
    """A file whose footer was read."""

    rows: ds.ParquetFileFragment
    columns: MessageColumns
    time: pa.DataType | None
    """The type of the time column in the file; None if the time is in its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetScan(FilesScan):
    """A read of Parquet tables. Row groups without a wanted timestamp, by their statistics, are not read."""

    KIND: ClassVar[str] = "Parquet"

    version: int | None = None
    """Version of a Delta table; None for the last one."""
    footers: Footers | None = field(default=None, repr=False)
    """The facts of all files, or of the largest; None if no footer was read."""

    def names_in_log(self) -> frozenset[str] | None:
        """Return the names of the files in the log of a Delta table; None for another folder.

        Raises `ConfigurationError` for a version of another folder, and `StorageError` for a missing version.
        """
        if self.pattern is not None:
            return None
        if not delta.is_delta(self.place):
            if self.version is None:
                return None
            raise ConfigurationError(
                f"{self.place}@v{self.version}: is no Delta table, and has no versions; leave @v{self.version} out"
            )
        table = delta.opened(self.place, self.version)
        return frozenset() if table is None else frozenset(delta.file_names(table))

    def for_tasks(self) -> Self:
        """Return the read for tasks, without the data of all files; each part has its own files."""
        return replace(self, states=None, footers=None)

    def footers_on_driver(self) -> Footers:
        """Return the facts in the footers of the largest files, at most `MOST_FOOTERS`.

        Raises `ConfigurationError` for a file that is not a table of Waku messages.
        """
        return self._footers(_largest(self.states_to_read()))

    def read_facts(self, states: Iterable[State]) -> Iterator[pa.RecordBatch]:
        """Yield one row of `FACTS` of some files, without their row groups."""
        try:
            found = self._footers(states)
            facts = [found.have_hashes, found.name_stores, ""]
        except ConfigurationError as error:
            facts = [False, False, str(error)]
        yield pa.RecordBatch.from_arrays([pa.array([each]) for each in facts], schema=arrow_schema(FACTS))

    def _footers(self, states: Iterable[State]) -> Footers:
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as readers:
            return Footers.together(readers.map(self._footer, states))

    def gives_each_row_once(self) -> bool:
        """Return whether all rows are wanted, have a message hash, and belong to one store; false if unknown."""
        known = self.footers
        if known is None or known.files < len(self.states_to_read()) or self.selection != Selection():
            return False
        return known.have_hashes and (self.is_labelled or not known.name_stores)

    def names_stores(self) -> bool:
        """Return whether rows name their stores, by the footers that the driver reads; false without files."""
        return self._footers(_largest(self.current_states())).name_stores

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[Part]:
        """Return runs of rows of about equally many bytes, at least one run."""
        return self.plan_rows(map(FileRows, self.states_to_read()), partitions, cores)

    def plan_rows(
        self, files: Iterable[FileRows], partitions: int | None = None, cores: int | None = None
    ) -> list[Part]:
        """Return some rows of files, in their order, as runs of about equally many bytes, at least one run."""
        files = tuple(files)
        known = self.footers or self._footers(_largest(file.state for file in files))
        pieces: list[FileRows] = []
        sizes: list[int] = []
        for file in files:
            name, size_bytes, _ = file.state
            if name not in known.groups:
                pieces.append(file)
                sizes.append(size_bytes)
            for first, end, group_bytes in known.groups.get(name, ()):
                begin, last = max(first, file.first), end if file.end is None else min(end, file.end)
                if begin < last:
                    pieces.append(FileRows(file.state, begin, last))
                    sizes.append(group_bytes)
        return [_joined(run) for run in even_runs(pieces, sizes, partitions, cores)]

    def rows_of(self, state: State) -> int:
        """Return the number of a file's rows, by its footer.

        Raises `FileNotFoundError` for a missing file, and `ConfigurationError` for an unreadable footer.
        """
        try:
            return int(self._fragment(state).metadata.num_rows)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error, state[0]) from error

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some rows, a row for each store that had one."""
        for columns, rows in self._rows(part, (*ARROW_SCHEMA.names, STORES)):
            found = self.chosen(columns.messages(rows, self.source, is_labelled=self.is_labelled))
            if found.num_rows:
                yield found

    def read_columns(self, names: Sequence[str], part: Part) -> Iterator[pa.RecordBatch]:
        """Yield only some columns of a part, with their nulls, if all messages are wanted."""
        for columns, rows in self._rows(part, names):
            yield pa.RecordBatch.from_arrays([columns.column(rows, name) for name in names], names)

    def _rows(self, part: Part, names: Sequence[str]) -> Iterator[tuple[MessageColumns, pa.RecordBatch]]:
        """Yield the rows of a part, with the columns of ``names`` that their file has."""
        for piece in part:
            name = piece.state[0]
            self.check_unchanged(piece.state)
            with self._named_errors(piece.state):
                file = self._opened(piece.state)
                for first, rows in self._batches(file, piece, names):
                    begin = max(0, piece.first - first)
                    end = rows.num_rows if piece.end is None else min(rows.num_rows, piece.end - first)
                    if begin < end:
                        yield file.columns, with_folders(rows.slice(begin, end - begin), name)

    def _batches(self, file: _File, piece: FileRows, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of the row groups of a piece, with the numbers of their first rows in the file."""
        wanted = {file.columns.columns[name] for name in names if name in file.columns.columns}
        every = file.rows.physical_schema.names
        # At least one column, because a batch without columns has no number of rows.
        columns = [name for name in every if name in wanted] or every[:1]
        with (
            file.rows.open() as source,
            opened_parquet(source, self.place.filesystem, file.rows.metadata) as opened,
        ):
            for number, begin, end, size_bytes in self._groups(file):
                if end <= piece.first or (piece.end is not None and begin >= piece.end):
                    continue
                most_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * (end - begin) // max(1, size_bytes)))
                first = begin
                for rows in opened.iter_batches(most_rows, row_groups=[number], columns=columns, use_threads=False):
                    yield first, rows
                    first += rows.num_rows

    def _groups(self, file: _File) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, first row, first row after it, and size of the row groups that may have a wanted message."""
        pieces = file.rows.split_by_row_group(self._times(file), file.rows.physical_schema)
        wanted = {group.id for piece in pieces for group in piece.row_groups}
        first = 0
        for group in file.rows.row_groups:
            if group.id in wanted:
                yield group.id, first, first + group.num_rows, group.total_byte_size
            first += group.num_rows

    def _fragment(self, state: State) -> ds.ParquetFileFragment:
        name, size_bytes, _ = state
        return _FORMAT.make_fragment(self.path_of(name), self.place.filesystem, file_size=size_bytes)

    def _opened(self, state: State) -> _File:
        """Return a file with its columns; raise `ConfigurationError` if it is not a table of messages.

        Different programs or versions may have written the files of an archive.
        """
        rows, name = self._fragment(state), state[0]
        columns = self.columns_of(rows.physical_schema, name)
        time = columns.columns[EXACT_TIME]
        return _File(rows, columns, None if time in dict(folders_of(name)) else rows.physical_schema.field(time).type)

    def _footer(self, state: State) -> Footers:
        with self._named_errors(state):
            file = self._opened(state)
            groups = {state[0]: [group[1:] for group in self._groups(file)]}
            time, columns = file.time, file.columns
            if time is not None and pa.types.is_integer(time):
                ends = _least_and_most(file.rows.metadata, columns.columns[EXACT_TIME])
                if columns.unit_of(*ends):  # unless the hashes of some messages fit their times
                    rows = next(rows for _, rows in self._rows((FileRows(state),), ARROW_SCHEMA.names))
                    columns.messages(rows, self.source, is_labelled=True)
        names = columns.columns.keys()
        return Footers(groups, 1, "message_hash" in names, not names.isdisjoint({"source", STORES}))

    @contextmanager
    def _named_errors(self, state: State) -> Iterator[None]:
        """Raise the errors of Arrow about a file as `ConfigurationError`."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            self.check_unchanged(state)
            raise self.unreadable(error, state[0]) from error

    def _times(self, file: _File) -> ds.Expression | None:
        """Return the wanted times as a condition on statistics; row groups without statistics are read."""
        kind = file.time
        if kind is None or self.selection == Selection():
            return None
        column, part = ds.field(file.columns.columns[EXACT_TIME]), self.selection.part
        first, last = part.after.timestamp_ns, part.through.timestamp_ns
        if pa.types.is_timestamp(kind):
            per = NS_PER[kind.unit]
            ends = [pa.scalar(time_ns // per, pa.int64()).cast(kind) for time_ns in (first, last)]
        elif pa.types.is_signed_integer(kind):
            ends = [pa.scalar(first), pa.scalar(last)]
        else:
            return None
        return ((column >= ends[0]) & (column <= ends[1])) | column.is_null()


def _largest(states: Iterable[State]) -> list[State]:
    """Return the files whose footers the driver reads."""
    return nlargest(MOST_FOOTERS, states, key=itemgetter(1))


def _joined(pieces: Iterable[FileRows]) -> Part:
    """Return pieces with those joined that follow each other in a file, so that a task opens it once."""
    joined: list[FileRows] = []
    for piece in pieces:
        if joined and joined[-1].state == piece.state and joined[-1].end == piece.first:
            piece = replace(joined.pop(), end=piece.end)  # noqa: PLW2901 - the same rows
        joined.append(piece)
    return tuple(joined)


def _least_and_most(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column; None if the footer has no statistics."""
    places = [place for place in range(footer.num_columns) if footer.schema.column(place).path == column]
    chunks = [footer.row_group(group).column(place) for group in range(footer.num_row_groups) for place in places]
    found = [chunk.statistics for chunk in chunks]
    if not found or not all(each is not None and each.has_min_max for each in found):
        return None, None
    return min(each.min for each in found), max(each.max for each in found)
