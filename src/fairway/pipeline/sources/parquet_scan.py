"""`ParquetScan`: reads Parquet tables of messages with Arrow, on any storage; a task reads one or several row groups.

``format("waku")`` uses it, because there Python supplies every row, a run does, because then no message goes through
the JVM, and `open_source` does for tables that are not on this machine: so that no jar for their storage is needed.
Tables on this machine `open_source` lets Spark read.
Invariant: both give the same rows and names (`fairway.pipeline.sources.open_source.conformed`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.location import Location
from fairway.pipeline.parquet_file import opened_parquet
from fairway.pipeline.sources.delta_tables import names_in_log
from fairway.pipeline.sources.waku_messages import (
    ARROW_SCHEMA,
    EXACT_TIME,
    TIME,
    MessageScan,
    Selection,
    even_runs,
    wrong_kind,
)
from fairway.storage.archive import ArchiveCursor

PATTERN: Final = "*?[{"
"""What names several paths for Spark."""
_PARTITIONS_PER_CORE: Final = 2
_PARTITION_BYTES: Final = 268_435_456
"""Of a large table each part has about so much, not compressed, however few cores there are: a part is what has to be
read again when a task fails."""
_BATCH_ROWS: Final = 4_000
_BATCH_BYTES: Final = 8_388_608
FOOTERS_AT_ONCE: Final = 16
"""Files whose footers are read at a time: from an object store each is a request or two."""
NEEDED_COLUMNS: Final = ("message_hash", "content_topic", "payload", EXACT_TIME)
_BYTES: Final = ("binary", "large_binary", "fixed_size_binary", "null")
_INTEGERS: Final = ("int", "uint", "decimal", "null")
_KINDS: Final = {
    "message_hash": _BYTES,
    "payload": _BYTES,
    "meta": _BYTES,
    "rate_limit_proof": _BYTES,
    "timestamp_ns": _INTEGERS,
    "version": _INTEGERS,
}
"""The accepted types of each column. Other types, such as times or text for bytes, would be misread silently."""
_STORES: Final = "sources"
"""A column of tables that were deduplicated: for each message the stores that had it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one task reads."""

    pieces: tuple[_Piece, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one or several row groups of a file."""

    groups: ds.ParquetFileFragment
    schema: pa.Schema
    """Of the file, with the columns that are the names of its folders."""
    first: int = 0
    end: int | None = None
    """The first row that is not meant; None for the rest."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a file that follow each other."""

    name: str
    """Its path in the folder."""
    first: int
    end: int | None
    """The first row that is not meant; None for the rest of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetScan(MessageScan):
    """A read of Parquet tables. Row groups without a wanted timestamp, by their statistics, are not read."""

    place: Location
    """A file, or a folder of them, ``name=value`` folders in it being columns."""
    source: str
    is_labelled: bool
    """Whether ``source`` replaces the source that rows name themselves."""
    selection: Selection = field(default_factory=Selection)
    only: frozenset[str] | None = None
    """The names of the files that are read, from the folder on, or the name of the one file; None for all."""
    version: int | None = None
    """Of a Delta table; None for the last one."""

    @property
    def _is_whole(self) -> bool:
        """Return whether all messages are wanted."""
        return self.selection == Selection()

    def gives_each_row_once(self) -> bool:
        """Return whether each row is a message, wanted, of the same store."""
        return self._is_whole and (self.is_labelled or not self.names_stores())

    def plan(self, partitions: int | None = None) -> list[_Part]:
        """Return runs of row groups of about equally many bytes, at least one run."""
        try:
            pieces = [
                _Piece(group, schema)
                for file, schema in self._files()
                for group in file.split_by_row_group(self._times(schema), schema)
            ]
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        sizes = [_size_bytes(piece.groups) for piece in pieces]
        most = max(_PARTITIONS_PER_CORE * machine.cores(), sum(sizes) // _PARTITION_BYTES)
        return list(map(_Part, even_runs(pieces, sizes, partitions or most)))

    def plan_files(self, files: Sequence[FileRows], most: int, least_rows: int) -> list[_Part]:
        """Return rows of some files as at most ``most`` runs of about equally many bytes, of ``least_rows`` or more.

        The rows of a file have an order, that of the file, and no statistics are looked at.
        """
        if not files:
            return []
        found = {file.path: (file, schema) for file, schema in self._files([file.name for file in files])}
        pieces: list[_Piece] = []
        sizes: list[int] = []
        rows = 0
        try:
            for file in files:
                (fragment, schema), begin = found[self._path_of(file.name)], 0
                for group in fragment.row_groups:
                    first = max(0, file.first - begin)
                    end = group.num_rows if file.end is None else min(group.num_rows, file.end - begin)
                    begin += group.num_rows
                    if first < end:
                        part = fragment.subset(row_group_ids=[group.id])
                        pieces.append(_Piece(part, schema, first, None if end == group.num_rows else end))
                        sizes.append(group.total_byte_size * (end - first) // group.num_rows)
                        rows += end - first
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        runs = even_runs(pieces, sizes, max(1, min(most, rows // least_rows)))
        return [_Part(run) for run in runs if run]

    def names_in_log(self) -> frozenset[str] | None:
        """Return the names of the files of a Delta table; None for another folder, or a file."""
        return names_in_log(self.place, self.version)

    def file_names(self) -> list[str]:
        """Return the paths of the files in the folder, oldest first, then by name; a file alone is ``.``."""
        itself = self.place.info()
        if itself.is_file:
            return ["."]
        if itself.type == FileType.NotFound:
            raise self._unreadable(FileNotFoundError())
        found = [(file.mtime_ns, self.place.beneath(file)) for file in self.place.files(recursive=True)]
        # Arrow and Spark pass over names like these, with which other files and unfinished ones are marked.
        hidden = (".", "_")
        names = [name for _, name in sorted(found) if not any(part.startswith(hidden) for part in name.split("/"))]
        known = self.names_in_log()
        return names if known is None else [name for name in names if name in known]

    def rows_of(self, name: str) -> int:
        """Return how many rows a file has, by its footer.

        Raises `FileNotFoundError` if it is not there, and `ConfigurationError` if it has no footer that can be read.
        """
        try:
            return int(pq.read_metadata(self._path_of(name), filesystem=self.place.filesystem).num_rows)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error, name) from error

    def written_ns(self, name: str) -> int | None:
        """Return when a file was last written; None if it is not there."""
        info = self.place.filesystem.get_file_info(self._path_of(name))
        return None if info.type == FileType.NotFound else int(info.mtime_ns)

    def names_stores(self) -> bool | None:
        """Return whether rows say which store they are of; None if there are no rows yet.

        Raises `ConfigurationError` for what is no table of Waku messages.
        """
        if not self.file_names():
            return None
        return any({"source", _STORES} & set(schema.names) for _, schema in self._files())

    def has_one_schema(self) -> bool:
        """Return whether all files have the same columns, so that one of them tells what is in each.

        Raises `ConfigurationError` for what is no table of Waku messages.
        """
        return len({tuple(schema) for _, schema in self._files()}) <= 1

    def _path_of(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.place.path, name))

    def read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some row groups, a row for each store that had one."""
        for piece in part.pieces:
            for rows in self._rows(piece):
                found = self._chosen(self._messages(rows))
                if found.num_rows:
                    yield found

    def read_columns(self, names: Sequence[str], part: _Part) -> Iterator[pa.RecordBatch]:
        """Yield some columns alone, as they are in some row groups: wanted or not, and null where they are."""
        for piece in part.pieces:
            for rows in self._rows(piece, names):
                yield pa.RecordBatch.from_arrays([_cast(rows, name) for name in names], names)

    def _rows(self, piece: _Piece, names: Sequence[str] = (*ARROW_SCHEMA.names, _STORES)) -> Iterator[pa.RecordBatch]:
        """Yield rows that may be wanted; of a piece that is not whole its rows."""
        begin = 0
        for rows in self._batches(piece.schema, piece.groups, names):
            first = max(0, piece.first - begin)
            end = rows.num_rows if piece.end is None else min(rows.num_rows, piece.end - begin)
            begin += rows.num_rows
            if first < end:
                yield rows.slice(first, end - first)
            if piece.end is not None and begin >= piece.end:
                return

    def _batches(
        self, schema: pa.Schema, groups: ds.ParquetFileFragment, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups of a file, in their order, with those columns that it has."""
        columns = {name: column for name in names if (column := _column_of(name, schema)) in schema.names}
        folders = ds.get_partition_keys(groups.partition_expression)
        own = [column for column in columns.values() if column in groups.physical_schema.names]
        rows = sum(each.num_rows for each in groups.row_groups)
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, _size_bytes(groups))))
        numbers = [each.id for each in groups.row_groups]
        try:
            with groups.open() as source, opened_parquet(source, self.place.filesystem, groups.metadata) as file:
                for batch in file.iter_batches(size, row_groups=numbers, columns=own, use_threads=False):
                    yield pa.RecordBatch.from_pydict(
                        {
                            name: batch.column(column)
                            if column in own
                            else pa.repeat(pa.scalar(folders[column], schema.field(column).type), batch.num_rows)
                            for name, column in columns.items()
                        }
                    )
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error

    def _files(self, names: Sequence[str] | None = None) -> list[tuple[ds.ParquetFileFragment, pa.Schema]]:
        """Return the files of these names, or all that are read, each with its own columns.

        An archive may have been written by several programs, or versions of one. Arrow's own table of all files has
        the columns of its first file, and would leave out or misread those of others. Raises `ConfigurationError` if a
        file is no table of messages.
        """
        if names is None and (logged := self.names_in_log()) is not None:
            names = sorted(logged)
        try:
            dataset = self._dataset(names)
            files = list(dataset.get_fragments())
            if not files:
                raise ConfigurationError(f"{self.place}: has no Parquet file; give a table of Waku messages")
            if self.only is not None:
                read = {self.place.path, *map(self._path_of, self.only)}
                files = [file for file in files if file.path in read]
            with ThreadPoolExecutor(FOOTERS_AT_ONCE) as readers:
                columns_of = list(readers.map(lambda file: file.physical_schema, files))
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        known: dict[tuple[Any, ...], pa.Schema] = {}
        found = []
        for file, columns in zip(files, columns_of, strict=True):
            folders = tuple(ds.get_partition_keys(file.partition_expression))
            key = (*columns, *folders)
            if key not in known:
                known[key] = _with_folders(columns, folders, dataset.schema)
                self._check(posixpath.relpath(file.path, self.place.path), known[key])
            found.append((file, known[key]))
        return found

    def _dataset(self, names: Sequence[str] | None) -> ds.Dataset:
        if names is None:
            return ds.dataset(self.place.path, filesystem=self.place.filesystem, format="parquet", partitioning="hive")
        options = ds.FileSystemFactoryOptions(
            partition_base_dir=self.place.path,
            partitioning=ds.HivePartitioning.discover(infer_dictionary=False),
        )
        paths = list(map(self._path_of, names))
        return ds.FileSystemDatasetFactory(self.place.filesystem, paths, ds.ParquetFileFormat(), options).finish()

    def _check(self, file: str, schema: pa.Schema) -> None:
        place = self.place if file == "." else self.place / file
        if lacking := ", ".join(name for name in NEEDED_COLUMNS if _column_of(name, schema) not in schema.names):
            raise ConfigurationError(f"{place}: is no table of Waku messages; it has no column {lacking}")
        for name, kinds in _KINDS.items():
            column = _column_of(name, schema)
            kind = str(schema.field(column).type) if column in schema.names else "null"
            if not kind.startswith(kinds):
                raise wrong_kind(place, column, kind, kinds)

    def _unreadable(self, error: Exception, file: str = ".") -> ConfigurationError:
        place = self.place if file == "." else self.place / file
        if isinstance(error, FileNotFoundError):
            place.refuse_missing_bucket()
            detail = "there is no such file or folder; give that of a table of Waku messages"
            if any(sign in place.path for sign in PATTERN):
                detail += ", not a pattern"
        else:  # Arrow says the path twice; what is wrong stands behind it.
            told, _, detail = str(error).rpartition("': ")
            path = told.rpartition("'")[2]
            if path.startswith(f"{place.path}/"):
                place /= posixpath.relpath(path, place.path)
        return ConfigurationError(f"{place}: cannot be read as Parquet: {detail}")

    def _times(self, schema: pa.Schema) -> ds.Expression | None:
        """Return the wanted times as a condition on the statistics; row groups without statistics are read."""
        name = _column_of(EXACT_TIME, schema)
        if self._is_whole or not pa.types.is_signed_integer(schema.field(name).type):
            return None
        column, part = ds.field(name), self.selection.part
        within = (column >= part.after.timestamp_ns) & (column <= part.through.timestamp_ns)
        return within | column.is_null()

    def _messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns and types of `ARROW_SCHEMA`, one for each store that had a message.

        What a row lacks makes it none the same as another, nor leaves it out of time: without a hash it gets that of
        its payload, without a timestamp the time 0, without a version the version 0, as on the wire.
        """
        columns = {name: _cast(rows, name) for name in ARROW_SCHEMA.names}
        if columns["message_hash"].null_count:
            given = zip(columns["message_hash"].to_pylist(), columns["payload"].to_pylist(), strict=True)
            columns["message_hash"] = pa.array([_hash_of(*row) for row in given], pa.binary())
        columns["timestamp_ns"] = columns["timestamp_ns"].fill_null(0)
        columns["version"] = columns["version"].fill_null(0)
        columns["source"] = columns["source"].fill_null(self.source)
        if self.is_labelled:
            columns["source"] = pa.array([self.source] * rows.num_rows, pa.string())
        messages = pa.RecordBatch.from_pydict(columns, schema=ARROW_SCHEMA)
        if self.is_labelled or _STORES not in rows.schema.names:
            return messages
        stores = [names or [None] for names in rows.column(_STORES).to_pylist()]
        messages = messages.take(pa.array([row for row, names in enumerate(stores) for _ in names], pa.int64()))
        named = pa.array([name or self.source for names in stores for name in names], pa.string())
        return messages.set_column(ARROW_SCHEMA.names.index("source"), ARROW_SCHEMA.field("source"), named)

    def _chosen(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted messages."""
        if self._is_whole:
            return messages
        chosen, part = self.selection, self.selection.part
        wanted = pc.and_not(_is_after(messages, part.after), _is_after(messages, part.through))
        if chosen.pubsub_topic is not None:
            wanted = pc.and_(wanted, pc.equal(messages["pubsub_topic"], chosen.pubsub_topic))
        if chosen.content_topics:
            wanted = pc.and_(wanted, pc.is_in(messages["content_topic"], pa.array(chosen.content_topics, pa.string())))
        if chosen.channels:
            wanted = pc.and_(wanted, pa.array(map(chosen.may_carry, messages["payload"].to_pylist()), pa.bool_()))
        return messages.filter(wanted)


def _with_folders(columns: pa.Schema, folders: Sequence[str], table: pa.Schema) -> pa.Schema:
    """Return the columns of a file with those of a table that the names of its folders are."""
    return pa.schema([*columns, *(table.field(name) for name in folders if name not in columns.names)])


def _column_of(name: str, schema: pa.Schema) -> str:
    """Return the column of a table that has what the column ``name`` of `ARROW_SCHEMA` is to have."""
    return TIME if name == EXACT_TIME and name not in schema.names else name


def _size_bytes(group: ds.ParquetFileFragment) -> int:
    return sum(each.total_byte_size for each in group.row_groups)


def _is_after(messages: pa.RecordBatch, place: ArchiveCursor) -> pa.BooleanArray:
    """Return for each message whether it comes after a place in the order of archives."""
    times = messages["timestamp_ns"]
    same = pc.and_(pc.equal(times, place.timestamp_ns), pc.greater(messages["message_hash"], place.message_hash))
    return pc.or_(pc.greater(times, place.timestamp_ns), same)


def _hash_of(given: bytes | None, payload: bytes | None) -> bytes:
    if given is not None:
        return given
    return b"" if payload is None else sha256(payload).digest()


def _cast(rows: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column with its type in `ARROW_SCHEMA`; null where it is missing, or a number does not fit."""
    kind = ARROW_SCHEMA.field(name).type
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(name)
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.array([_as(kind, value) for value in column.to_pylist()], kind)


def _as(kind: pa.DataType, value: Any) -> Any:
    """Return a value as one that fits a type of `ARROW_SCHEMA`; None for a number that does not."""
    if value is None or isinstance(value, bytes):
        return value
    if not pa.types.is_integer(kind):
        return str(value)
    limit = 2 ** (kind.bit_width - 1)
    return int(value) if -limit <= value < limit else None
