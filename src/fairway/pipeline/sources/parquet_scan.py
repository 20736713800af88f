"""`ParquetScan`: reads Parquet tables of messages with Arrow, on any storage; a task reads some row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.sources.files_scan import FilesScan, Folders, State, folders_of
from fairway.pipeline.sources.message_columns import STORES, MessageColumns
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, EXACT_TIME, Selection, even_runs
from fairway.pipeline.tables import delta

_PARTITIONS_PER_CORE: Final = 2
_PARTITION_BYTES: Final = 268_435_456
"""Rough size of a part of a large table, uncompressed, for any number of cores. A failed task repeats its part."""
_BATCH_ROWS: Final = 4_000
_BATCH_BYTES: Final = 8_388_608
FOOTERS_AT_ONCE: Final = 16
"""Files whose footers are read concurrently; from an object store each takes one or two requests."""
_FORMAT: Final = ds.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one task."""

    pieces: tuple[_Piece, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one or several row groups of a file."""

    groups: ds.ParquetFileFragment
    table: _FileTable
    state: State | None
    """The state of the file at the listing; None if it is not checked."""
    first: int = 0
    end: int | None = None
    """The first row after the piece; None for the end."""


@dataclass(frozen=True, slots=True)
class _FileTable:
    """The columns of the files with the same schema and folders."""

    columns: MessageColumns
    folders: Folders
    time: pa.DataType | None
    """The type of the time column in the file; None if the time is in its path."""

    def with_folders(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a file, with the columns of its path added."""
        named = dict(zip(rows.schema.names, rows.columns, strict=True))
        named |= {name: pa.array([value] * rows.num_rows, pa.string()) for name, value in self.folders}
        return pa.RecordBatch.from_pydict(named)


_File = tuple[ds.ParquetFileFragment, _FileTable, State | None]


@dataclass(frozen=True, slots=True)
class FileRows:
    """Consecutive rows of a file."""

    name: str
    """Its path in the folder."""
    first: int
    end: int | None
    """The first row after them; None for the end of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetScan(FilesScan):
    """A read of Parquet tables. Row groups without a wanted timestamp, by their statistics, are not read."""

    KIND: ClassVar[str] = "Parquet"

    @property
    def _is_whole(self) -> bool:
        """Return whether all messages are wanted."""
        return self.selection == Selection()

    def gives_each_row_once(self) -> bool:
        """Return whether all rows are wanted, have a message hash, and belong to one store."""
        tables = [table for _, table, _ in self._files()]
        has_hashes = all("message_hash" in table.columns.columns for table in tables)
        names_stores = any({"source", STORES} & table.columns.columns.keys() for table in tables)
        return self._is_whole and has_hashes and (self.is_labelled or not names_stores)

    version: int | None = None
    """Version of a Delta table; None for the last one."""

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
        """Return the read for tasks, without the list of files; each part has its own files."""
        return replace(self, states=None)

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[_Part]:
        """Return runs of row groups of about equally many bytes, at least one run."""
        try:
            pieces = [
                _Piece(group, table, state)
                for file, table, state in self._files()
                for group in file.split_by_row_group(self._times(table), file.physical_schema)
            ]
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error) from error
        sizes = [_size_bytes(piece.groups) for piece in pieces]
        most = max(_PARTITIONS_PER_CORE * (cores or machine.cores()), sum(sizes) // _PARTITION_BYTES)
        return list(map(_Part, even_runs(pieces, sizes, partitions or most)))

    def plan_files(self, files: Sequence[FileRows], most: int, least_rows: int) -> list[_Part]:
        """Return rows of some files as at most ``most`` runs of about equal size, each of about ``least_rows`` or more.

        The rows keep the order of their file; statistics are not used.
        """
        if not files:
            return []
        found = {file.path: (file, table) for file, table, _ in self._files([file.name for file in files])}
        pieces: list[_Piece] = []
        sizes: list[int] = []
        rows = 0
        try:
            for file in files:
                (fragment, table), begin = found[self.path_of(file.name)], 0
                for group in fragment.row_groups:
                    first = max(0, file.first - begin)
                    end = group.num_rows if file.end is None else min(group.num_rows, file.end - begin)
                    begin += group.num_rows
                    if first < end:
                        part = fragment.subset(row_group_ids=[group.id])
                        pieces.append(_Piece(part, table, None, first, None if end == group.num_rows else end))
                        sizes.append(group.total_byte_size * (end - first) // group.num_rows)
                        rows += end - first
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error) from error
        runs = even_runs(pieces, sizes, max(1, min(most, rows // least_rows)))
        return [_Part(run) for run in runs if run]

    def rows_of(self, name: str) -> int:
        """Return the number of a file's rows, by its footer.

        Raises `FileNotFoundError` for a missing file, and `ConfigurationError` for an unreadable footer.
        """
        try:
            return int(pq.read_metadata(self.path_of(name), filesystem=self.place.filesystem).num_rows)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error, name) from error

    def written_ns(self, name: str) -> int | None:
        """Return the modification time of a file in nanoseconds; None if it does not exist."""
        info = self.place.filesystem.get_file_info(self.path_of(name))
        return None if info.type == FileType.NotFound else int(info.mtime_ns)

    def names_stores(self) -> bool | None:
        """Return whether the rows name their stores; None if there are no files yet.

        Raises `ConfigurationError` if a file is not a table of Waku messages.
        """
        if not self.file_names():
            return None
        return any({"source", STORES} & table.columns.columns.keys() for _, table, _ in self._files())

    def read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some row groups, a row for each store that had one."""
        for piece in part.pieces:
            for rows in self._rows(piece):
                messages = piece.table.columns.messages(rows, self.source, is_labelled=self.is_labelled)
                found = self.chosen(messages)
                if found.num_rows:
                    yield found

    def read_columns(self, names: Sequence[str], part: _Part) -> Iterator[pa.RecordBatch]:
        """Yield only some columns of some row groups: of all rows, also of unwanted ones, with their nulls."""
        for piece in part.pieces:
            for rows in self._rows(piece, names):
                yield pa.RecordBatch.from_arrays([piece.table.columns.column(rows, name) for name in names], names)

    def _rows(self, piece: _Piece, names: Sequence[str] = (*ARROW_SCHEMA.names, STORES)) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, with the columns of ``names`` that the table has."""
        begin = 0
        if piece.state is not None:
            self.check_unchanged(piece.state)
        for rows in self._batches(piece.table, piece.groups, names):
            first = max(0, piece.first - begin)
            end = rows.num_rows if piece.end is None else min(rows.num_rows, piece.end - begin)
            begin += rows.num_rows
            if first < end:
                yield rows.slice(first, end - first)
            if piece.end is not None and begin >= piece.end:
                return

    def _batches(
        self, table: _FileTable, groups: ds.ParquetFileFragment, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups of a file in order, with the columns of ``names`` that the table has."""
        folders = dict(table.folders)
        wanted = {table.columns.columns[name] for name in names if name in table.columns.columns}
        own = [name for name in groups.physical_schema.names if name in wanted and name not in folders]
        rows = sum(each.num_rows for each in groups.row_groups)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, _size_bytes(groups))))
        numbers = [each.id for each in groups.row_groups]
        try:
            with groups.open() as source, opened_parquet(source, self.place.filesystem, groups.metadata) as file:
                # At least one column, because a batch without columns has no number of rows.
                for batch in file.iter_batches(
                    size, row_groups=numbers, columns=own or groups.physical_schema.names[:1], use_threads=False
                ):
                    yield table.with_folders(batch)
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error) from error

    def _files(self, names: Sequence[str] | None = None) -> list[_File]:
        """Return the files of these names, or all files to read, each with its own columns.

        Different programs or versions may have written the files of an archive. Raises `ConfigurationError` if a file
        is not a table of messages.
        """
        names = self.names_to_read() if names is None else names
        files = [_FORMAT.make_fragment(self.path_of(name), self.place.filesystem) for name in names]
        try:
            for state in self.states or ():
                self.check_unchanged(state)
            with ThreadPoolExecutor(FOOTERS_AT_ONCE) as readers:
                schemas = list(readers.map(lambda file: file.physical_schema, files))
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error) from error
        known: dict[tuple[Any, ...], _FileTable] = {}
        states = {state[0]: state for state in self.states or ()}
        found = []
        for name, file, schema in zip(names, files, schemas, strict=True):
            folders = folders_of(name)
            key = (*schema, folders)
            if key not in known:
                known[key] = self._table(file, schema, folders)
            found.append((file, known[key], states.get(name)))
        return found

    def _table(self, file: ds.ParquetFileFragment, schema: pa.Schema, folders: Folders) -> _FileTable:
        named = dict(folders)
        shape = [*(each for each in schema if each.name not in named), *(pa.field(name, pa.string()) for name in named)]
        columns = MessageColumns.of(pa.schema(shape), self.shown(file.path))
        time = columns.columns[EXACT_TIME]
        if time in named:
            return _FileTable(columns, folders, None)
        kind = schema.field(time).type
        table = _FileTable(columns, folders, kind)
        if pa.types.is_integer(kind) and columns.unit_of(*_least_and_most(file.metadata, time)):
            rows = next(self._batches(table, file.subset(row_group_ids=[0]), ARROW_SCHEMA.names))
            columns.messages(rows, self.source, is_labelled=True)
        return table

    def _times(self, table: _FileTable) -> ds.Expression | None:
        """Return the wanted times as a condition on statistics; row groups without statistics are read."""
        kind = table.time
        if self._is_whole or kind is None:
            return None
        column, part = ds.field(table.columns.columns[EXACT_TIME]), self.selection.part
        first, last = part.after.timestamp_ns, part.through.timestamp_ns
        if pa.types.is_timestamp(kind):
            per = _NS_PER[kind.unit]
            ends = [pa.scalar(time_ns // per, pa.int64()).cast(kind) for time_ns in (first, last)]
        elif pa.types.is_signed_integer(kind):
            ends = [pa.scalar(first), pa.scalar(last)]
        else:
            return None
        return ((column >= ends[0]) & (column <= ends[1])) | column.is_null()


_NS_PER: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _least_and_most(footer: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column; None if the footer has no statistics."""
    places = [place for place in range(footer.num_columns) if footer.schema.column(place).path == column]
    chunks = [footer.row_group(group).column(place) for group in range(footer.num_row_groups) for place in places]
    found = [chunk.statistics for chunk in chunks]
    if not found or not all(each is not None and each.has_min_max for each in found):
        return None, None
    return min(each.min for each in found), max(each.max for each in found)


def _size_bytes(group: ds.ParquetFileFragment) -> int:
    return sum(each.total_byte_size for each in group.row_groups)
