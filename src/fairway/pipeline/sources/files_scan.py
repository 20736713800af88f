"""`FilesScan`: a read of the files in a folder or of a pattern, on any storage.

Folders are read as in Spark. Names that begin with ``.`` or ``_`` are ignored, except ``_name=value``; empty files are
ignored too. ``name=value`` in the path of a file is a column, and overrides a column of this name in the file. Its
value is text, with ``%XX`` for characters that a path cannot contain. A pattern (``*``, ``?``, ``[ab]``, ``{a,b}``)
matches several files and folders.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo, FileType

from fairway.errors import ConfigurationError
from fairway.pipeline.location import Location
from fairway.pipeline.sources.message_columns import MessageColumns
from fairway.pipeline.sources.waku_messages import MessageScan, Selection
from fairway.storage.archive import ArchiveCursor

_PATTERN: Final = frozenset("*?[{")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder name of Hive and Spark for null."""

State = tuple[str, int, int]
"""The recorded state of a file: its name, size in bytes and modification time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesScan(MessageScan):
    """A read of files with messages."""

    KIND: ClassVar[str]
    """Name of the format, for errors."""

    place: Location
    """A file, or a folder of files."""
    pattern: str | None = None
    """Pattern, in Hadoop's syntax, of the files and folders that are read; None for all."""
    source: str
    is_labelled: bool
    """Whether ``source`` replaces the source in the rows."""
    selection: Selection = field(default_factory=Selection)
    states: tuple[State, ...] | None = None
    """The files to read, with their states at the listing; None for all files at the place."""

    def current_states(self) -> tuple[State, ...]:
        """Return the present files, sorted by name; a single file has the name ``.``.

        Raises `ConfigurationError` if the file or folder does not exist.
        """
        return tuple(sorted((name, int(file.size), int(file.mtime_ns)) for name, file in self._found()))

    def states_to_read(self) -> tuple[State, ...]:
        """Return the files that are read; raise `ConfigurationError` if there is none."""
        states = self.current_states() if self.states is None else self.states
        if not states:
            raise ConfigurationError(f"{self.place}: has no {self.KIND} file; give a table of Waku messages")
        return states

    def for_tasks(self) -> Self:
        """Return the read for tasks, without the list of files; each part has its own files."""
        return replace(self, states=None)

    def path_of(self, name: str) -> str:
        """Return the path of a file on the file system of its place."""
        return posixpath.normpath(posixpath.join(self.place.path, name))

    def shown(self, name: str) -> str:
        """Return a file as errors show it."""
        return str(self.place if name == "." else self.place / name)

    def check_unchanged(self, state: State) -> None:
        """Raise `ConfigurationError` if a file has changed since it was listed."""
        name, *known = state
        there = self.place.filesystem.get_file_info(self.path_of(name))
        if there.type == FileType.NotFound or known != [int(there.size), int(there.mtime_ns)]:
            raise ConfigurationError(
                f"{self.shown(name)}: was changed or removed after it was listed; run again when its writer is done"
            )

    def columns_of(self, schema: pa.Schema, name: str) -> MessageColumns:
        """Return the columns of a file with this schema; raise `ConfigurationError` if it is no table of messages."""
        named = dict(folders_of(name))
        own = [field for field in schema if field.name not in named]
        return MessageColumns.of(pa.schema([*own, *((each, pa.string()) for each in named)]), self.shown(name))

    def chosen(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted messages."""
        if self.selection == Selection():
            return messages
        chosen, part = self.selection, self.selection.part
        wanted = pc.and_not(_is_after(messages, part.after), _is_after(messages, part.through))
        if chosen.pubsub_topic is not None:
            wanted = pc.and_(wanted, pc.equal(messages["pubsub_topic"], chosen.pubsub_topic))
        if chosen.content_topics:
            wanted = pc.and_(wanted, pc.is_in(messages["content_topic"], pa.array(chosen.content_topics, pa.string())))
        if chosen.channels:
            wanted = pc.and_(wanted, pa.array(map(chosen.may_carry, messages["payload"].to_pylist()), pa.bool_()))
        return chosen.matching(messages.filter(wanted))

    def unreadable(self, error: Exception, name: str) -> ConfigurationError:
        """Return the error for a file that cannot be read."""
        cause = str(error).rpartition("': ")[2]  # Arrow names the path twice before it
        return ConfigurationError(f"{self.shown(name)}: cannot be read as {self.KIND}: {cause}")

    def names_in_log(self) -> frozenset[str] | None:
        """Return the names of the files in a log, if the folder has one; None if all files count."""
        return None

    def _found(self) -> Iterator[tuple[str, FileInfo]]:
        if self.pattern is None:
            itself = self.place.info()
            if itself.is_file:
                yield ".", itself
                return
            if itself.type == FileType.NotFound:
                raise self._missing(".")
        known = self.names_in_log()
        patterns = list(_patterns_of(self.pattern or "*"))
        is_there = False
        for file in self.place.files(recursive=True):
            name = self.place.beneath(file)
            if any(_matches(name, pattern) for pattern in patterns) and (
                not _is_hidden(name) if known is None else name in known
            ):
                is_there = True
                if file.size:
                    yield name, file
        if self.pattern is not None and not is_there:
            raise self._missing(self.pattern)

    def _missing(self, name: str) -> ConfigurationError:
        self.place.refuse_missing_bucket()
        return ConfigurationError(
            f"{self.shown(name)}: cannot be read as {self.KIND}: there is no such file or folder; give that of a table "
            "of Waku messages"
        )


def split_pattern(place: Location) -> tuple[Location, str | None]:
    """Return the folder of a pattern, and the pattern: None for an existing place, or one without a pattern."""
    parts = place.path.split("/")
    fixed = next((number for number, part in enumerate(parts) if not _PATTERN.isdisjoint(part)), None)
    if fixed is None or place.info().type != FileType.NotFound:
        return place, None
    pattern = "/".join(parts[fixed:])
    shown = place.shown.removesuffix(pattern).rstrip("/")
    return Location(place.filesystem, "/".join(parts[:fixed]) or "/", shown or "."), pattern


def _patterns_of(pattern: str) -> Iterator[list[str]]:
    """Yield the patterns of each part of a path, for each choice in braces."""
    if (braces := re.search(r"\{([^{}]*)\}", pattern)) is None:
        yield pattern.replace("[^", "[!").split("/")
    else:
        for choice in braces[1].split(","):
            yield from _patterns_of(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _matches(name: str, pattern: Sequence[str]) -> bool:
    """Return whether a file has a path that matches, or is in a folder that does."""
    parts = name.split("/")
    return len(parts) >= len(pattern) and all(map(fnmatchcase, parts, pattern))


def _is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file: its name marks it as one without rows, or as unfinished."""
    parts = name.split("/")
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def with_folders(rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return rows of a file, with the columns of its path added."""
    named = dict(zip(rows.schema.names, rows.columns, strict=True))
    named |= {column: pa.array([value] * rows.num_rows, pa.string()) for column, value in folders_of(name)}
    return pa.RecordBatch.from_pydict(named)


def folders_of(name: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns in the path of a table's file, with their values."""
    parts = [part.split("=", 1) for part in posixpath.dirname(name).split("/") if "=" in part[1:]]
    return tuple((unquote(column), None if value == _NO_VALUE else unquote(value)) for column, value in parts)


def _is_after(messages: pa.RecordBatch, place: ArchiveCursor) -> pa.BooleanArray:
    """Return for each message whether it is after a place in the order of archives."""
    times = messages["timestamp_ns"]
    same = pc.and_(pc.equal(times, place.timestamp_ns), pc.greater(messages["message_hash"], place.message_hash))
    return pc.or_(pc.greater(times, place.timestamp_ns), same)
