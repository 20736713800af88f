"""`scan_of`: returns the read of the archive at a URI, by the scheme of the URI.

The table `_SCHEMES` has a line for each kind of archive. Invariant: an invalid URI raises a `ConfigurationError` with
examples of valid URIs, and the names of sources never contain credentials.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from fairway.errors import ConfigurationError
from fairway.pipeline.location import (
    SCHEMES,
    Location,
    is_on_this_machine,
    local_path,
    scheme_of,
    without_secrets,
)
from fairway.pipeline.sources.files_scan import FilesScan, split_pattern
from fairway.pipeline.sources.lip76 import Lip76Scan
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.store_node import StoreNodeArchive
from fairway.pipeline.sources.text_scans import CsvScan, JsonLinesScan
from fairway.pipeline.sources.waku_messages import ArchiveScan, MessageScan, Selection
from fairway.storage.lip76 import Lip76Archive, Shards
from fairway.storage.nwaku_archive import NwakuArchive, file_at
from fairway.storage.postgres_archive import PostgresArchive
from fairway.storage.postgres_session import place_without_credentials

PARQUET: Final = "parquet:"
"""Scheme of Parquet tables."""

_FILES: Final = (PARQUET, "json:", "csv:")
"""Schemes of files, on this machine or elsewhere."""
_ON_THIS_MACHINE: Final = ("sqlite:", "lip76:")
"""Schemes of archives that are files of this machine."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9]+:")
"""A scheme of at least two characters, so that a drive letter is a path."""
_VERSION: Final = re.compile(r"(.+)@v(\d+)")
"""``PATH@v3``, version 3 of a Delta table, as in Delta's own readers; a path without it is the last version."""


def scan_of(uri: str, selection: Selection, label: str | None = None) -> MessageScan:
    """Return the read of the archive at a URI; a path alone is a SQLite archive.

    ``label`` is the value of the column ``source``; the default is the place. The archive is not opened yet, but a file
    must exist. Raises `ConfigurationError` for an invalid URI.
    """
    for prefix, make in _SCHEMES.items():
        if uri.startswith(prefix):
            return make(uri, selection, label)
    if not uri or _SCHEME.match(uri):
        raise not_understood(uri)
    return scan_of(f"{kind_of(uri)}:{uri}", selection, label)


def kind_of(path: str) -> str:
    """Return the scheme of a path, by its suffix or the first bytes of the file, or raise `ConfigurationError`."""
    name = path.lower().removesuffix(".gz")
    for suffix, scheme in _SUFFIXES.items():
        if name.endswith(suffix):
            return scheme
    file = Path(path)
    if file.is_file():
        with file.open("rb") as opened:
            begin = opened.read(len(_SQLITE_HEADER))
        if begin == _SQLITE_HEADER or not begin:
            return "sqlite"
        what = "is no SQLite archive"
    elif file.is_dir():
        what = "is a folder"
    else:
        return "sqlite"  # its error says that the file is missing
    raise ConfigurationError(f"{path}: {what}, and its name does not say what it is; known are {', '.join(EXAMPLES)}")


def check_scheme(uri: str) -> None:
    """Raise `ConfigurationError` for a URI with an unknown scheme, before the start of a session.

    Also raise it for a remote place behind a scheme of local files.
    """
    if not uri.startswith(tuple(_SCHEMES)):
        raise not_understood(uri)
    for scheme in _ON_THIS_MACHINE:
        if uri.startswith(scheme):
            local_path(uri.removeprefix(scheme), _use(scheme))


def not_understood(uri: str) -> ConfigurationError:
    """Return the error for a URI with an unknown scheme."""
    scheme = uri.partition(":")[0] if _SCHEME.match(uri) else ""
    if scheme_of(uri) in SCHEMES:
        shown = without_secrets(uri)
        kinds = (*_ON_THIS_MACHINE, *_FILES) if is_on_this_machine(uri) else _FILES
        instead = " or ".join(kind + shown for kind in kinds)
        return ConfigurationError(f"{shown} does not say what kind of archive is there: write {instead}")
    given = f"the scheme {scheme!r}" if scheme else "an empty URI"
    return ConfigurationError(f"{given} names no archive; known are {', '.join(EXAMPLES)}")


def _sqlite(uri: str, selection: Selection, label: str | None) -> MessageScan:
    path = uri.removeprefix("sqlite:")
    if not path:
        raise ConfigurationError("'sqlite:' names no file; an example is sqlite:store.sqlite3")
    file = file_at(str(local_path(path, _use("sqlite:")))).absolute()
    if file.is_dir():
        raise ConfigurationError(f"{file}: is a folder; a SQLite archive is a file in it")
    name = str(file)
    return ArchiveScan(open=partial(NwakuArchive, name, read_only=True), source=label or name, selection=selection)


def _postgresql(uri: str, selection: Selection, label: str | None) -> MessageScan:
    name = place_without_credentials(uri)
    return ArchiveScan(open=partial(PostgresArchive, uri), source=label or name, selection=selection)


def _http(uri: str, selection: Selection, label: str | None) -> MessageScan:
    name = StoreNodeArchive(uri).name
    return ArchiveScan(open=partial(StoreNodeArchive, uri), source=label or name, selection=selection)


def _files(kind: type[FilesScan], scheme: str, uri: str, selection: Selection, label: str | None) -> MessageScan:
    path = uri.removeprefix(scheme)
    if not path:
        raise ConfigurationError(f"{scheme!r} names no file or folder; an example is {scheme}waku_messages")
    match = _VERSION.fullmatch(path) if kind is ParquetScan else None
    path, version = (path, None) if match is None else (match[1], int(match[2]))
    folder, pattern = split_pattern(Location.of(path, _use(scheme)))
    scan = kind(
        place=folder,
        pattern=pattern,
        source=label or without_secrets(path),
        is_labelled=label is not None,
        selection=selection,
    )
    return replace(scan, version=version) if isinstance(scan, ParquetScan) else scan


def _lip76(uri: str, selection: Selection, label: str | None) -> MessageScan:
    path, _, query = uri.removeprefix("lip76:").partition("?")
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    if not path or given.keys() - {"pubsubTopic", "cluster", "shards"}:
        raise ConfigurationError(
            "a LIP-76 folder is given as lip76:DIR, with ?cluster=1&shards=8 or ?pubsubTopic=... behind it where its "
            "messages were not sent over the shards of The Waku Network"
        )
    try:
        cluster_id, shard_count = int(given.get("cluster", "1")), int(given.get("shards", "8"))
    except ValueError as error:
        raise ConfigurationError(f"cluster and shards are whole numbers, not {query!r}") from error
    shards = Shards(pubsub_topic=given.get("pubsubTopic"), cluster_id=cluster_id, shard_count=shard_count)
    folder = str(local_path(path, _use("lip76:")).absolute())
    return Lip76Scan(archive=Lip76Archive(folder, shards=shards), source=label or folder, selection=selection)


def _use(scheme: str) -> str:
    return f"what follows {scheme!r}"


_SCHEMES: Final[dict[str, Callable[[str, Selection, str | None], MessageScan]]] = {
    "sqlite:": _sqlite,
    "postgresql:": _postgresql,
    "postgres:": _postgresql,
    PARQUET: partial(_files, ParquetScan, PARQUET),
    "json:": partial(_files, JsonLinesScan, "json:"),
    "csv:": partial(_files, CsvScan, "csv:"),
    "lip76:": _lip76,
    "http:": _http,
    "https:": _http,
}
"""The function that makes the read of a URI, by its prefix."""

_SUFFIXES: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}
"""The schemes of paths without one."""
_SQLITE_HEADER: Final = b"SQLite format 3\0"

EXAMPLES: Final = (
    "sqlite:store.sqlite3",
    "postgresql://user@127.0.0.1:5432/postgres",
    "parquet:folder",
    "json:answers.jsonl.gz",
    "csv:messages.csv",
    "lip76:folder",
    "http://127.0.0.1:8645",
)
"""One URI of each kind."""
