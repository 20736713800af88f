"""`RunSource`: a source of a run: its URI, the URI without secrets, and a fingerprint of its files.

A URI is ``scheme:rest``, with a label in front to name the store: ``a=sqlite:store.db``. A run that is started again
continues only if its sources are the same. For files, size and modification time decide; for network addresses only the
address, so that an interrupted run continues with the rows that it has read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from fairway.errors import ConfigurationError
from fairway.pipeline.location import Location, is_in_object_store, local_path, scheme_of, without_secrets
from fairway.pipeline.sources.delta_tables import names_in_log, without_version
from fairway.pipeline.sources.open_source import scan_for_arrow
from fairway.pipeline.sources.places import check_scheme
from fairway.storage.nwaku_archive import file_at

_URI: Final = re.compile(r"(?:(?P<label>[^=:/?#\s]+)=)?(?:(?P<scheme>[a-z][a-z0-9+.-]*):)?(?P<rest>.+)", re.DOTALL)
_SQLITE: Final = "sqlite"
_PARQUET: Final = "parquet"
_PATTERN: Final = "*?["
_UNREAD: Final = ("_", ".")
"""What the names of files begin with that are no rows of a table."""
_LIP76: Final = "lip76"
_FILE_SCHEMES: Final = frozenset({_SQLITE, _PARQUET, _LIP76})
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
"""A file system of Spark, such as ``hdfs:`` or ``s3a:``; at least two letters, so that a drive letter is a path."""
_UNCHANGED_SCHEMES: Final = frozenset({_PARQUET, _LIP76})
_KEYED_SCHEMES: Final = frozenset({_SQLITE})
"""Schemes of archives in which the message hash is a primary key, so that no row comes twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """One source of a run."""

    label: str | None
    """The store's name in ``sources`` and ``store_completeness``; None for a table that has names of its own."""
    scheme: str
    rest: str
    """The URI without its scheme; for files the path."""

    @classmethod
    def parse(cls, text: str) -> RunSource:
        """Return the source of a URI; raise `ConfigurationError` for an invalid one."""
        match = _URI.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{without_secrets(text)!r} is not a source; expected [NAME=]SCHEME:WHERE, such as sqlite:store.db"
            )
        # A path alone is that of a SQLite archive.
        parsed = cls(label=match["label"], scheme=match["scheme"] or _SQLITE, rest=match["rest"])
        check_scheme(parsed.uri)
        if parsed.label is not None or parsed.scheme == _PARQUET:
            return parsed
        return cls(label=parsed.shown, scheme=parsed.scheme, rest=parsed.rest)

    @property
    def uri(self) -> str:
        """Return the URI without the label."""
        return f"{self.scheme}:{self.rest}"

    @property
    def shown(self) -> str:
        """Return the URI without label, user, password and query, for display; of LIP-76 with its shards."""
        if self.scheme == _LIP76:
            return self.uri  # hashes rest on the shards: with others it is another source
        return f"{self.scheme}:{without_secrets(self.rest)}"

    @property
    def has_unique_hashes(self) -> bool:
        """Return whether the source has each message hash once."""
        return self.scheme in _KEYED_SCHEMES

    @property
    def stays_the_same(self) -> bool:
        """Return whether it has the same rows each time it is read, which one that somebody writes to has not."""
        return self.scheme in _UNCHANGED_SCHEMES

    def fingerprint(self) -> list[list[Any]]:
        """Return name, size and modification time of each file, as values for JSON."""
        if self.scheme == _PARQUET and is_in_object_store(self.rest):
            folder, version = without_version(self.rest)
            place = Location.of(folder, f"what follows '{_PARQUET}:'")
            return _states_at(place, names_in_log(place, version))
        states: list[list[Any]] = []
        for path in self._paths():
            try:
                states += [list(_state_of(file, path)) for file in self._files_of(path)]
            except OSError as error:
                raise ConfigurationError(
                    f"the source {path} cannot be read: {error.strerror}; give an archive that is there, and that you "
                    "may read"
                ) from error
        return states

    def size_bytes(self) -> int:
        """Return the size of its files; 0 for a network address."""
        return sum(size for _, size, _ in self.fingerprint())

    def described(self) -> dict[str, Any]:
        """Return the description of the source in ``run.json``."""
        return {"label": self.label, "uri": self.shown, "fingerprint": self.fingerprint()}

    def _paths(self) -> list[Path]:
        """Return its files and folders on this machine; none if it is elsewhere, or only Spark can list them."""
        if self.scheme not in _FILE_SCHEMES:
            return []
        if self.scheme == _LIP76:
            return [local_path(self.rest.partition("?")[0], "the folder")]  # behind it, how its messages were sharded
        if self.scheme != _PARQUET:
            return [file_at(str(local_path(self.rest, "the archive")))]
        rest, _ = without_version(self.rest)
        path = urlsplit(rest).path if rest.startswith("file:") else rest
        if _ELSEWHERE.match(path) or "{" in path:
            return []
        whole = Path(path)
        if not any(sign in path for sign in _PATTERN):
            return [whole]
        # Spark takes a pattern as well; one that nothing matches is a file that is not there.
        return sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))) or [whole]

    def _files_of(self, path: Path) -> Iterator[Path]:
        if not path.is_dir():
            yield path
            log = path.with_name(f"{path.name}-wal")  # what SQLite has not yet moved into its file
            if log.is_file() and log.stat().st_size:
                yield log
        elif self.scheme == _SQLITE:
            raise ConfigurationError(f"the source {path} is a folder; a SQLite archive is a file in it")
        else:
            files = sorted(file for file in path.rglob("*") if file.is_file())
            if self.scheme != _PARQUET:
                yield from files
                return
            _, version = without_version(self.rest)
            names = names_in_log(Location.of(path, f"what follows '{_PARQUET}:'"), version)
            within = [file.relative_to(path) for file in files]
            yield from (path / file for file in within if _has_rows(file) and (names is None or str(file) in names))


def absolute_uri(uri: str, folder: str) -> str:
    """Return the URI of a source, as ``run.json`` has it, with a path from a folder made absolute."""
    scheme, colon, rest = uri.partition(":")
    if scheme not in _FILE_SCHEMES or scheme_of(rest) is not None:
        return uri
    return f"{scheme}{colon}{os.path.join(folder, rest)}"  # noqa: PTH118 - with its options a URI is no path


def parse_sources(uris: Sequence[str]) -> tuple[RunSource, ...]:
    """Return the sources of a run; raise `ConfigurationError` if there is none, or two have one name."""
    parsed = tuple(map(RunSource.parse, uris))
    if not parsed:
        raise ConfigurationError("there is no source, and one is needed: --source sqlite:store.db")
    labels = [source.label or source.shown for source in parsed]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigurationError(f"two sources have the name {twice[0]!r}; name them: a=sqlite:one.db b=sqlite:two.db")
    return parsed


def check_readable(sources: Iterable[RunSource]) -> None:
    """Raise the error of a source that cannot be read, so that there is none once there is a folder for its tables.

    What only Spark can read is not looked at.
    """
    for source in sources:
        scan = scan_for_arrow(source.uri, source.label)
        if scan is not None:
            scan.plan(1)


def _states_at(place: Location, names: frozenset[str] | None) -> list[list[Any]]:
    """Return name, size and modification time of the files of a table that is not on this machine.

    ``names`` are those of its files; None for all.
    """
    if any(sign in place.path for sign in _PATTERN):
        raise ConfigurationError(f"the source {place} is a pattern: give the folder of the table")
    itself = place.info()
    if itself.is_file:
        return [[itself.base_name, itself.size, itself.mtime_ns]]
    found = place.files(recursive=True)
    if not found:
        place.refuse_missing_bucket()
        raise ConfigurationError(f"the source {place} cannot be read: there is no such file or folder")
    states = ([place.beneath(file), file.size, file.mtime_ns] for file in found)
    return [state for state in states if _has_rows(PurePath(state[0])) and (names is None or state[0] in names)]


def _has_rows(name: PurePath) -> bool:
    """Return whether Spark and Arrow read a file of a table: they pass over ``_SUCCESS`` and ``.part-0.parquet.crc``.

    Spark writes ``_SUCCESS`` again whenever rows are appended.
    """
    return not any(part.startswith(_UNREAD) and "=" not in part for part in name.parts)


def _state_of(file: Path, root: Path) -> tuple[str, int, int]:
    state = file.stat()
    return (str(file.relative_to(root)) if root in file.parents else file.name, state.st_size, state.st_mtime_ns)
