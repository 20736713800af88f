"""`JsonLinesScan` and `CsvScan`: reads of messages saved as text, plain or gzipped; each task reads whole files.

A line of JSON is a page from ``/store/v3/messages``, or one message of a page. A table in CSV has a line of column
names; `fairway.pipeline.sources.message_columns` defines the names and values.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from fairway.errors import DecodeError
from fairway.nodes.rest.store_messages import saved_answer
from fairway.pipeline.sources.files_scan import FilesScan, State, with_folders
from fairway.pipeline.sources.message_columns import MessageColumns
from fairway.pipeline.sources.store_node import answered_messages
from fairway.pipeline.sources.waku_messages import arrow_batches, even_runs
from fairway.storage.archive import ArchivedMessage

_DELIMITERS: Final = ",;\t|"
_BLOCK_BYTES: Final = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextScan(FilesScan):
    """A read of whole files."""

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[tuple[State, ...]]:
        """Return runs of files of about equally many bytes, at least one run."""
        states = self.states_to_read()
        self.check(states[0][0])
        return even_runs(states, [size for _, size, _ in states], partitions, cores)

    def read(self, part: tuple[State, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some files."""
        for state in part:
            self.check_unchanged(state)
            try:
                yield from filter(len, map(self.chosen, self.batches(state[0])))
            except (OSError, pa.ArrowException) as error:
                raise self.unreadable(error, state[0]) from error

    def opened(self, name: str) -> pa.NativeFile:
        """Open a file, and decompress it according to its suffix."""
        return self.place.filesystem.open_input_stream(self.path_of(name), compression="detect")

    @abstractmethod
    def check(self, name: str) -> None:
        """Raise `ConfigurationError` if the beginning of a file shows that it has no messages."""

    @abstractmethod
    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a file in batches of `ARROW_SCHEMA`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLinesScan(_TextScan):
    """A read of answers of store nodes."""

    KIND: ClassVar[str] = "JSON lines"

    def check(self, name: str) -> None:
        """Accept each file: an undecodable line becomes a row in quarantine."""

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a file."""
        with self.opened(name) as file:
            yield from arrow_batches(_messages(io.BufferedReader(file)), self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvScan(_TextScan):
    """A read of tables in CSV."""

    KIND: ClassVar[str] = "CSV"

    def check(self, name: str) -> None:
        """Raise `ConfigurationError` if the first line does not name the columns of a message."""
        self._columns(name)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a file."""
        delimiter, names, columns = self._columns(name)
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", "NULL", "\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            check_utf8=False,
        )
        parse = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        read = pa_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
        with (
            self.opened(name) as file,
            pa_csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as batches,
        ):
            for batch in batches:
                yield columns.messages(with_folders(batch, name), self.source, is_labelled=self.is_labelled)

    def _columns(self, name: str) -> tuple[str, list[str], MessageColumns]:
        """Return the delimiter of a file, its column names, and its `MessageColumns`."""
        try:
            with self.opened(name) as file:
                line = io.BufferedReader(file).readline().decode("utf-8-sig", errors="replace")
        except (OSError, pa.ArrowException) as error:
            raise self.unreadable(error, name) from error
        delimiter = max(_DELIMITERS, key=line.count)
        names = next(csv.reader([line.strip()], delimiter=delimiter), [])
        shape = pa.schema([(column, pa.string()) for column in names])
        return delimiter, names, self.columns_of(shape, name)


def _messages(lines: Iterable[bytes]) -> Iterator[ArchivedMessage]:
    """Yield the messages of a file: a JSON object a line, or one object over all lines."""
    given = iter(lines)
    first = next(given, b"")
    try:
        saved_answer(first)
    except DecodeError:
        given, first = iter(()), first + b"".join(given)
    for line in chain([first], given):
        if stripped := line.strip():
            yield from _messages_of(stripped)


def _messages_of(line: bytes) -> Iterator[ArchivedMessage]:
    try:
        yield from answered_messages(saved_answer(line))
    except DecodeError:
        yield from answered_messages(undecodable=(line,))
