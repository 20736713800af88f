"""`open_target`: opens the target of a backfill, by the prefix of its address.

The table `_KINDS` has a line for each kind. Invariant: an invalid address raises `ConfigurationError` before any target
is opened, and names never contain credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairway.archives.backfill.archive_targets import PostgresTarget, SqliteTarget
from fairway.archives.backfill.node_target import NodeTarget
from fairway.archives.backfill.parquet_target import ParquetTarget
from fairway.archives.backfill.target import Target, TargetOptions
from fairway.errors import ConfigurationError
from fairway.pipeline.location import is_on_this_machine, local_path, without_secrets
from fairway.storage.nwaku_archive import file_at


def open_target(address: str, options: TargetOptions) -> Target:
    """Open the target of a backfill.

    Raises `ConfigurationError` for an address that cannot be written to, and the errors of the archive or node.
    """
    for prefixes, make in _KINDS:
        if address.startswith(prefixes):
            return make(address, options)
    raise ConfigurationError(
        f"{address!r} is nothing that can be written to; examples are {', '.join(TARGET_EXAMPLES)}"
    )


def is_same_place(source_uri: str, address: str) -> bool:
    """Return whether a source and a target are visibly the same archive."""
    return _place(source_uri) == _place(address)


def _place(address: str) -> tuple[str, str]:
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        return scheme, str(file_at(rest).absolute())
    if scheme == "parquet":
        is_here = is_on_this_machine(rest)
        return scheme, str(local_path(rest, "--to").absolute()) if is_here else without_secrets(rest).rstrip("/")
    return scheme, rest.rstrip("/")


def _sqlite(address: str, options: TargetOptions) -> Target:
    return SqliteTarget(address.removeprefix("sqlite:"), create=options.create)


def _postgresql(address: str, options: TargetOptions) -> Target:
    return PostgresTarget(address, oldest_ns=options.oldest_ns, create=options.create)


def _parquet(address: str, options: TargetOptions) -> Target:
    return ParquetTarget(address.removeprefix("parquet:"), create=options.create, repair=options.repair)


def _node(address: str, options: TargetOptions) -> Target:
    if options.repair:
        raise ConfigurationError(
            f"{without_secrets(address)}: a node replaces no message of its store; repair the archive of that store "
            "(--to sqlite:... or postgresql:...)"
        )
    return NodeTarget(address, kept_s=options.kept_s)


def _lip76(address: str, _options: TargetOptions) -> Target:
    raise ConfigurationError(
        f"{address!r}: the archives of a LIP-76 folder are sealed and cannot get further messages; write into a "
        "sqlite: or parquet: archive"
    )


_Maker = Callable[[str, TargetOptions], Target]

_KINDS: Final[tuple[tuple[tuple[str, ...], _Maker], ...]] = (
    (("http:", "https:", "/ip4/", "/ip6/", "/dns"), _node),
    (("postgresql:", "postgres:"), _postgresql),
    (("parquet:",), _parquet),
    (("sqlite:",), _sqlite),
    (("lip76:",), _lip76),
)
"""Prefixes of addresses, and the function that opens such a target."""

TARGET_EXAMPLES: Final = (
    "sqlite:store.sqlite3",
    "postgresql://user@127.0.0.1:5432/postgres",
    "parquet:folder",
    "http://127.0.0.1:8645",
    "/ip4/192.0.2.7/tcp/60000/p2p/16Uiu2...",
)
"""One address of each kind."""
