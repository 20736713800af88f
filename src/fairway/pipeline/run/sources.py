"""The sources of a run: their URIs, what may be shown of these, and whether they are what they were.

A URI is ``scheme:rest``, with a label in front if the store should have a name: ``a=sqlite:store.db``. A run that is
started again goes on only if its sources are the same, which size and time of change tell for files; of what is behind
a network address nothing is known but the address, so that a run over it which was broken off goes on with what it
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from pyspark.sql import DataFrame, SparkSession

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.sources.places import check_scheme

_URI: Final = re.compile(r"(?:(?P<label>[^=:/?#\s]+)=)?(?:(?P<scheme>[a-z][a-z0-9+.-]*):)?(?P<rest>.+)", re.DOTALL)
_SQLITE: Final = "sqlite"
_PARQUET: Final = "parquet"
_LIP76: Final = "lip76"
_FILE_SCHEMES: Final = frozenset({_SQLITE, _PARQUET, _LIP76})
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
"""Another file system of Spark's, such as ``hdfs:`` or ``s3a:``; two letters at least, so that a drive is a path."""
_KEYED_SCHEMES: Final = frozenset({_SQLITE})
"""Where a message hash is a primary key, so that no row comes twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """One source of a run."""

    label: str | None
    """The store's name in ``sources`` and ``store_completeness``; None for a table that has names of its own."""
    scheme: str
    rest: str
    """What stands behind the scheme; for files the path."""

    @classmethod
    def parse(cls, text: str) -> RunSource:
        """Return the source of a URI; raise `ConfigurationError` for what is none."""
        match = _URI.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{_without_secrets(text)!r} is not a source; expected [NAME=]SCHEME:WHERE, such as sqlite:store.db"
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
        """Return the URI for people: without label, user, password and query."""
        return f"{self.scheme}:{_without_secrets(self.rest)}"

    @property
    def has_unique_hashes(self) -> bool:
        """Return whether no message hash comes twice from it."""
        return self.scheme in _KEYED_SCHEMES

    def fingerprint(self) -> list[list[Any]]:
        """Return what changes when the source does, as JSON knows it: name, size and time of change of each file."""
        states: list[list[Any]] = []
        for path in self._paths():
            try:
                states += [list(_state_of(file, path)) for file in self._files_of(path)]
            except OSError as error:
                raise ConfigurationError(f"the source {path} cannot be read: {error.strerror}") from error
        return states

    def size_bytes(self) -> int:
        """Return the size of its files; 0 for what is no file."""
        return sum(size for _, size, _ in self.fingerprint())

    def described(self) -> dict[str, Any]:
        """Return what the manifest says about it."""
        return {"label": self.label, "uri": self.shown, "fingerprint": self.fingerprint()}

    def _paths(self) -> list[Path]:
        """Return the files and folders of it on this machine, none for what is elsewhere or only Spark can find."""
        if self.scheme not in _FILE_SCHEMES:
            return []
        if self.scheme == _LIP76:
            return [Path(self.rest.partition("?")[0])]  # behind it, how its messages were sharded
        if self.scheme != _PARQUET:
            return [Path(self.rest)]
        path = urlsplit(self.rest).path if self.rest.startswith("file:") else self.rest
        if _ELSEWHERE.match(path) or "{" in path:
            return []
        whole = Path(path)
        if not any(sign in path for sign in "*?["):
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
            yield from sorted(file for file in path.rglob("*") if file.is_file())


def parse_sources(uris: Sequence[str]) -> tuple[RunSource, ...]:
    """Return the sources of a run; raise `ConfigurationError` if there is none, or two have one name."""
    parsed = tuple(map(RunSource.parse, uris))
    if not parsed:
        raise ConfigurationError("a run needs at least one source, such as sqlite:store.db")
    labels = [source.label or source.shown for source in parsed]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigurationError(f"two sources have the name {twice[0]!r}; name them: a=sqlite:one.db b=sqlite:two.db")
    return parsed


def open_run_source(spark: SparkSession, source: RunSource) -> DataFrame:
    """Return ``waku_messages`` of a source, with its label in the column ``source``."""
    return open_source(spark, source.uri, label=source.label)


def _state_of(file: Path, root: Path) -> tuple[str, int, int]:
    state = file.stat()
    return (str(file.relative_to(root)) if root in file.parents else file.name, state.st_size, state.st_mtime_ns)


def _without_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment, which may hold secrets."""
    if not address.startswith("//") and "://" not in address:
        return address
    try:
        parts = urlsplit(address)
    except ValueError:
        return "..."
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
