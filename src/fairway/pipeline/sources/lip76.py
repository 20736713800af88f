"""LIP-76 folders: `Lip76Scan` reads one, `Lip76Stream` follows one, whose file ``data`` only grows.

Both read whole archives, because the messages in an archive are not sorted. An offset is a place in ``data``: the first
byte of an archive, and the number of its messages that were read. After a whole archive the offset is its first byte
plus one, because the end of an archive is not always known. A stream reads messages of any timestamp, in the order of
the file, as soon as the index names their archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.options import SourceOptions
from fairway.pipeline.sources.source_stream import Offset, SourceStream, raise_or_warn
from fairway.pipeline.sources.waku_messages import MessageScan, Selection, arrow_batches, even_runs
from fairway.storage.archive import ArchiveCursor, ArchivedMessage
from fairway.storage.lip76 import Lip76Archive, StoredArchive


@dataclass(frozen=True, slots=True, kw_only=True)
class Lip76Scan(MessageScan):
    """A read of a LIP-76 folder. It does not open an archive that is outside the wanted time by the index."""

    archive: Lip76Archive
    source: str
    selection: Selection = field(default_factory=Selection)

    def plan(self, partitions: int | None = None, cores: int | None = None) -> list[tuple[StoredArchive, ...]]:
        """Return runs of archives of about equally many bytes, at least one run."""
        wanted = self.selection.part
        times = (wanted.after.timestamp_ns, wanted.through.timestamp_ns)
        archives = [archive for archive in self.archive.archives() if archive.may_hold(*times)]
        sizes = [archive.end - archive.offset for archive in archives]
        return even_runs(archives, sizes, partitions, cores)

    def read(self, part: tuple[StoredArchive, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some archives."""
        for archive in part:
            yield from self.batches(self.archive.messages(archive))

    def batches(self, messages: Iterable[ArchivedMessage]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted ones of some messages."""
        wanted = self.selection.chosen(filter(self.selection.wants, messages))
        return map(self.selection.matching, arrow_batches(wanted, self.source))


class _Place(NamedTuple):
    position: int
    """First byte of an archive; all archives before it are read."""
    messages: int
    """Number of messages of this archive that are read."""

    @classmethod
    def of(cls, offset: Offset) -> _Place:
        match offset:
            case {"position": int(position), "messages": int(messages), **rest} if not rest and position >= 0:
                return cls(position, messages)
        raise ConfigurationError(
            f'{offset!r} is no offset of a LIP-76 folder; expected one like {{"position": 0, "messages": 0}}'
        )

    @property
    def offset(self) -> Offset:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive messages of an archive."""

    archive: StoredArchive
    first: int
    end: int | None
    """The first message after the piece; None for the end of the archive."""


class Lip76Stream(SourceStream):
    """The stream of a LIP-76 folder."""

    def __init__(self, scan: Lip76Scan, options: SourceOptions) -> None:
        self._scan = scan
        self._options = options
        self._target: _Place | None = None

    def beginning(self) -> Offset:
        """Return the beginning of the file."""
        return _Place(0, 0).offset

    def present(self) -> Offset:
        """Return the place after the last archive of the index."""
        return self._behind_all().offset

    def place(self, given: ArchiveCursor | Offset) -> Offset:
        """Return a place in the file."""
        if isinstance(given, ArchiveCursor):
            raise ConfigurationError(
                "a LIP-76 folder is followed by places in its file, not by timestamps: leave startingOffsets out and "
                "give since"
            )
        return _Place.of(given).offset

    def hold(self) -> None:
        """Fix the end of the stream after the last archive that is now in the index."""
        self._target = self._behind_all()

    def reached(self, start: Offset, most: int | None) -> Offset:
        """Return a place within or after an archive."""
        place = _Place.of(start)
        for archive in self._ahead(place):
            done = place.messages if archive.offset == place.position else 0
            if most is not None:
                count = self._scan.archive.count(archive) - done
                if count > most:
                    return _Place(archive.offset, done + most).offset
                most -= count
            place = _behind(archive)
            if most == 0:
                break
        return place.offset

    def newest(self) -> Offset | None:
        """Return the place after the last archive of the index."""
        return self._behind_all().offset

    def parts(self, start: Offset, end: Offset) -> list[Any]:
        """Return runs of archives; the first and the last archive may be partial."""
        first, last = _Place.of(start), _Place.of(end)
        pieces = [
            _Piece(
                archive,
                first.messages if archive.offset == first.position else 0,
                last.messages if archive.offset == last.position else None,
            )
            for archive in self._scan.archive.archives()
            if first.position <= archive.offset <= last.position
        ]
        self._check_for_data_loss(first, last)
        sizes = [piece.archive.end - piece.archive.offset for piece in pieces]
        return [run for run in even_runs(pieces, sizes, self._options.min_partitions) if run]

    def read(self, part: tuple[_Piece, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of some archives."""
        for piece in part:
            messages = islice(self._scan.archive.messages(piece.archive), piece.first, piece.end)
            yield from self._scan.batches(messages)

    def _ahead(self, place: _Place) -> list[StoredArchive]:
        end = None if self._target is None else self._target.position
        archives = self._scan.archive.archives()
        return [one for one in archives if one.offset >= place.position and (end is None or one.offset < end)]

    def _behind_all(self) -> _Place:
        archives = self._scan.archive.archives()
        return _behind(archives[-1]) if archives else _Place(0, 0)

    def _check_for_data_loss(self, first: _Place, last: _Place) -> None:
        """Raise or warn if the file has no archive at an offset that was read: it is then another file."""
        begins = {archive.offset for archive in self._scan.archive.archives()}
        known = [place for place in (first, last) if place != (0, 0)]
        if all(place.position in begins or place.position - 1 in begins for place in known):
            return
        text = f"{self._scan.source}: the index names no archive where one was read, so 'data' is not the file it was"
        raise_or_warn(text, fail=self._options.fail_on_data_loss)


def _behind(archive: StoredArchive) -> _Place:
    return _Place(archive.offset + 1, 0)
