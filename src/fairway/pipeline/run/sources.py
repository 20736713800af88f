"""`RunSource`: a source of a run: its URI, the URI without secrets, and a fingerprint of its files.

A URI is ``scheme:rest``, with a label in front to name the store: ``a=sqlite:store.db``. A run that is started again
continues only if its sources are the same. Files are compared by size and modification time. Network sources are
compared only by address, so that an interrupted run continues with the rows that it has read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from fairway.errors import ConfigurationError
from fairway.pipeline.location import local_path, scheme_of, without_secrets
from fairway.pipeline.sources.files_scan import FilesScan, State
from fairway.pipeline.sources.parquet_scan import Footers, ParquetScan
from fairway.pipeline.sources.places import check_scheme, kind_of, scan_of
from fairway.pipeline.sources.waku_messages import ArchiveScan, MessageScan, Selection
from fairway.storage.nwaku_archive import file_at

_ALL: Final = Selection()
_ROW_BYTES: Final = 1_024
"""Assumed size of a message of a network archive."""
_URI: Final = re.compile(r"(?:(?P<label>[^=:/?#\s]+)=)?(?:(?P<scheme>[a-z][a-z0-9+.-]*):)?(?P<rest>.+)", re.DOTALL)
_SQLITE: Final = "sqlite"
_PARQUET: Final = "parquet"
_CSV: Final = "csv"
_JSON: Final = "json"
_LIP76: Final = "lip76"
_FILE_SCHEMES: Final = frozenset({_SQLITE, _PARQUET, _LIP76, _CSV, _JSON})


Mark = tuple[str, int, int]
"""The path, inode and change time of a file, which differ if it was replaced by one of the same size and time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """One source of a run."""

    label: str | None
    """The store's name in ``sources`` and ``store_completeness``; None for a table with store names of its own."""
    scheme: str
    rest: str
    """The URI without its scheme; for files the path."""
    states: tuple[State, ...] | None = None
    """The listed files to read; None: the files at the time of the read."""
    wanted: Selection = _ALL
    """The messages that a read returns."""
    footers: Footers | None = None
    """The facts in the footers of the listed files."""
    marks: tuple[Mark, ...] = ()
    """The marks of its files on this machine when they were listed."""

    @classmethod
    def parse(cls, text: str) -> RunSource:
        """Return the source of a URI; raise `ConfigurationError` for an invalid one."""
        match = _URI.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{without_secrets(text)!r} is not a source; expected [NAME=]SCHEME:WHERE, such as sqlite:store.db"
            )
        parsed = cls(label=match["label"], scheme=match["scheme"] or kind_of(match["rest"]), rest=match["rest"])
        check_scheme(parsed.uri)
        if parsed.label is not None or parsed.scheme in {_PARQUET, _CSV}:
            return parsed
        return cls(label=parsed.shown, scheme=parsed.scheme, rest=parsed.rest)

    @property
    def uri(self) -> str:
        """Return the URI without the label."""
        return f"{self.scheme}:{self.rest}"

    @property
    def shown(self) -> str:
        """Return the URI without label, user, password and query, for display; for LIP-76 with its shards."""
        if self.scheme == _LIP76:
            return self.uri  # hashes depend on the shards: other shards make another source
        return f"{self.scheme}:{without_secrets(self.rest)}"

    @property
    def has_unique_hashes(self) -> bool:
        """Return whether the source has each message hash once."""
        return self.scheme == _SQLITE  # there it is a primary key

    def listed(self, wanted: Selection = _ALL) -> Self:
        """Return the source with its present files: a run reads the listed files, and the next run reads later ones."""
        listed = replace(self, states=tuple(map(tuple, self.fingerprint())), wanted=wanted)
        return replace(listed, marks=tuple(_marks_of(listed)))

    def check_unchanged(self) -> None:
        """Raise `ConfigurationError` if a listed file was replaced or changed meanwhile, whatever its size and time.

        Rows that a node adds to a SQLite archive are no change. Only files on this machine are checked.
        """
        for before, now in zip(self.marks, _marks_of(self), strict=True):
            if before != now:
                raise ConfigurationError(
                    f"{before[0]}: was changed or removed after it was listed; run again when its writer is done"
                )

    def checked(self) -> Self:
        """Return the source with the footers that the driver reads; raise the error of an unreadable source."""
        scan = self.scan()
        if isinstance(scan, ParquetScan):
            return replace(self, footers=scan.footers_on_driver())
        scan.plan(1)
        return self

    def scan(self) -> MessageScan:
        """Return the read of the wanted messages; if files were listed, of these alone."""
        scan = scan_of(self.uri, self.wanted, self.label)
        if isinstance(scan, ParquetScan):
            return replace(scan, states=self.states, footers=self.footers)
        return replace(scan, states=self.states) if isinstance(scan, FilesScan) else scan

    def fingerprint(self) -> list[list[Any]]:
        """Return name, size and modification time of each file, as values for JSON; empty for a network address."""
        if self.states is not None:
            return list(map(list, self.states))
        if self.scheme not in _FILE_SCHEMES:
            return []
        scan = scan_of(self.uri, Selection(), self.label)
        if isinstance(scan, FilesScan):
            return list(map(list, scan.current_states()))
        path = self._path
        try:
            return [list(_state_of(file, path)) for file in self._files_of(path)]
        except OSError as error:
            raise ConfigurationError(
                f"the source {path} cannot be read: {error.strerror}; give an archive that is there, and that you may "
                "read"
            ) from error

    def size_bytes(self) -> int:
        """Return the size of its files; for a network archive about that of its rows, 0 if unknown."""
        if self.scheme in _FILE_SCHEMES:
            return sum(size for _, size, _ in self.fingerprint())
        scan = self.scan()
        if not isinstance(scan, ArchiveScan):
            return 0
        with scan.open() as archive:
            return (archive.estimate(scan.selection.part) or 0) * _ROW_BYTES

    def described(self) -> dict[str, Any]:
        """Return the description of the source in ``run.json``."""
        return {"label": self.label, "uri": self.shown, "fingerprint": self.fingerprint()}

    def files(self) -> Iterator[Path]:
        """Yield the listed files on this machine, without the write-ahead log of SQLite."""
        scan = self.scan() if self.states else None
        for name, *_ in self.states or ():
            if isinstance(scan, FilesScan):
                if scan.place.is_local:
                    yield Path(scan.path_of(name))
            elif self.scheme != _SQLITE:
                yield self._path / name
            elif name == self._path.name:
                yield self._path

    @property
    def _path(self) -> Path:
        """Return the file or folder on this machine."""
        if self.scheme == _LIP76:
            return local_path(self.rest.partition("?")[0], "the folder")  # the query says how its messages were sharded
        return file_at(str(local_path(self.rest, "the archive")))

    def _files_of(self, path: Path) -> Iterator[Path]:
        if not path.is_dir():
            yield path
            log = path.with_name(f"{path.name}-wal")  # rows that SQLite has not yet moved into its file
            if log.is_file() and log.stat().st_size:
                yield log
        elif self.scheme == _SQLITE:
            raise ConfigurationError(f"the source {path} is a folder; a SQLite archive is a file in it")
        else:
            yield from sorted(file for file in path.rglob("*") if file.is_file())


def absolute_uri(uri: str, folder: str) -> str:
    """Return the URI of a source, as ``run.json`` has it, with a path from a folder made absolute."""
    scheme, colon, rest = uri.partition(":")
    if scheme not in _FILE_SCHEMES or scheme_of(rest) is not None:
        return uri
    return f"{scheme}{colon}{os.path.join(folder, rest)}"  # noqa: PTH118 - a URI with options is not a path


def parse_sources(uris: Sequence[str]) -> tuple[RunSource, ...]:
    """Return the sources of a run; raise `ConfigurationError` if there is none, or if two share a name."""
    parsed = tuple(map(RunSource.parse, uris))
    if not parsed:
        raise ConfigurationError("there is no source, and one is needed: --source sqlite:store.db")
    labels = [source.label or source.shown for source in parsed]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigurationError(f"two sources have the name {twice[0]!r}; name them: a=sqlite:one.db b=sqlite:two.db")
    return parsed


def _marks_of(source: RunSource) -> Iterator[Mark]:
    for file in source.files():
        try:
            found = file.stat()
        except OSError:
            yield str(file), 0, 0
        else:
            yield str(file), found.st_ino, 0 if source.scheme == _SQLITE else found.st_ctime_ns


def _state_of(file: Path, root: Path) -> tuple[str, int, int]:
    state = file.stat()
    return (str(file.relative_to(root)) if root in file.parents else file.name, state.st_size, state.st_mtime_ns)
