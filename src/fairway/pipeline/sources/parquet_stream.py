"""`ParquetStream`: follows a folder that gains Parquet files, on any storage.

An offset names the files that were read, each by 96 bits of the SHA-256 of its path in the folder (16 characters), and
the number of rows read of one more file. The modification times only decide the order of the present files. A stream
also reads a file that appears late or with an old date, and messages of any timestamp in it.

Files may be added and removed, but the rows of a file must never change. A stream reads a file as soon as it has a
footer. A file without a footer waits; if it was not modified for ``settleMs``, it counts as damaged.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.files_scan import State
from fairway.pipeline.sources.options import SourceOptions
from fairway.pipeline.sources.parquet_scan import FOOTERS_AT_ONCE, FileRows, ParquetScan
from fairway.pipeline.sources.source_stream import Offset, SourceStream, raise_or_warn
from fairway.storage.archive import ArchiveCursor

_NAME_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """The files of a folder that were read."""

    files: frozenset[bytes] = field(default_factory=frozenset)
    """The files that were read whole, by `digest_of`."""
    begun: str = ""
    """The path in the folder of the file that was read in part; empty if there is none."""
    rows: int = 0
    """Number of rows read of the file ``begun``."""

    @classmethod
    def of(cls, offset: Offset) -> FilesRead:
        """Return the files of an offset; raise `ConfigurationError` for an offset of another kind."""
        match offset:
            case {"files": str(names), "begun": str(begun), "rows": int(rows), **rest} if not rest and rows >= 0:
                try:
                    packed = b64decode(names, validate=True)
                except ValueError:
                    packed = b"?"
                if not len(packed) % _NAME_BYTES:
                    starts = range(0, len(packed), _NAME_BYTES)
                    files = frozenset(packed[start : start + _NAME_BYTES] for start in starts)
                    return cls(files=files, begun=begun, rows=rows)
        raise ConfigurationError(
            f"{str(offset)[:80]} is no offset of a folder of files; take one from a checkpoint, or 'earliest' or "
            "'latest'"
        )

    @property
    def offset(self) -> Offset:
        """Return the offset; equal values have equal offsets."""
        return {"files": b64encode(b"".join(sorted(self.files))).decode(), "begun": self.begun, "rows": self.rows}


def digest_of(name: str) -> bytes:
    """Return the digest of a file's path in the folder, by which an offset names the file."""
    return sha256(name.encode()).digest()[:_NAME_BYTES]


class ParquetStream(SourceStream):
    """The stream of a folder; it keeps nothing open between calls."""

    def __init__(self, scan: ParquetScan, options: SourceOptions, now_ns: Callable[[], int]) -> None:
        self._scan = scan
        self._options = options
        self._now_ns = now_ns
        self._target: frozenset[str] | None = None
        """The names of the files at the end of the stream; None for a stream without end."""

    def beginning(self) -> Offset:
        """Return the offset without files."""
        return FilesRead().offset

    def present(self) -> Offset:
        """Return the offset with all files that have a footer now."""
        return FilesRead(
            files=frozenset(digest_of(name) for name, _ in self._whole(self._scan.current_states()))
        ).offset

    def place(self, given: ArchiveCursor | Offset) -> Offset:
        """Return an offset of a folder of files."""
        if isinstance(given, ArchiveCursor):
            raise ConfigurationError(
                "a folder of Parquet is followed by its files, not by timestamps: leave startingOffsets out and give "
                "since"
            )
        return FilesRead.of(given).offset

    def hold(self) -> None:
        """Fix the end of the stream at the files that exist now."""
        self._target = frozenset(name for name, *_ in self._scan.current_states())

    def reached(self, start: Offset, most: int | None) -> Offset:
        """Return the offset after whole files, and perhaps after some rows of one more."""
        read = FilesRead.of(start)
        states = [
            state
            for state in self._scan.current_states()
            if digest_of(state[0]) not in read.files and (self._target is None or state[0] in self._target)
        ]
        # The oldest first, and before it the file read in part.
        states.sort(key=lambda state: (state[0] != read.begun, state[2]))
        files, left = set(read.files), most
        for name, rows in self._whole(states):
            done = read.rows if name == read.begun else 0
            if left is not None and rows - done > left:
                if not left and name != read.begun:
                    break
                return FilesRead(files=frozenset(files), begun=name, rows=done + left).offset
            files.add(digest_of(name))
            left = None if left is None else left - (rows - done)
        return FilesRead(files=frozenset(files)).offset

    def newest(self) -> Offset | None:
        """Return None: counting the messages of unread files would take a read of their footers."""
        return None

    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return parts of the files."""
        first, last = FilesRead.of(start), FilesRead.of(end)
        states = {digest_of(state[0]): state for state in sorted(self._scan.current_states(), key=itemgetter(2))}
        wanted = last.files - first.files
        begun = {digest_of(name) for name in (first.begun, last.begun) if name}
        self._check_for_data_loss(len((wanted | begun) - states.keys()))
        files = []
        for digest, state in states.items():
            since = first.rows if state[0] == first.begun else 0
            if digest in wanted:
                files.append(FileRows(state, since, None))
            elif state[0] == last.begun:
                files.append(FileRows(state, since, last.rows))
        return [part for part in self._scan.plan_rows(files, self._options.min_partitions) if part]

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some row groups."""
        return self._scan.read(part)

    def _whole(self, states: Iterable[State]) -> Iterator[tuple[str, int]]:
        """Yield the names of the files with a footer, in their order, with the numbers of their rows.

        Raises `ConfigurationError` for a damaged file.
        """
        left = iter(states)
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as readers:
            while some := list(islice(left, FOOTERS_AT_ONCE)):
                for (name, *_), rows in zip(some, readers.map(self._rows_of, some), strict=True):
                    if rows is not None:
                        yield name, rows

    def _rows_of(self, state: State) -> int | None:
        try:
            return self._scan.rows_of(state)
        except FileNotFoundError:
            return None  # removed since the folder was listed
        except ConfigurationError:
            if state[2] > self._now_ns() - self._options.settle_ns:
                return None
            raise

    def _check_for_data_loss(self, lost: int) -> None:
        if lost:
            text = f"{self._scan.source}: {lost} of the files of a micro-batch were removed before they were read"
            raise_or_warn(text, fail=self._options.fail_on_data_loss)
