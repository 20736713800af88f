"""Delta tables: commits the files that tasks wrote as one transaction for each table, and opens versions of them.

::

    tasks: NAME/part-….parquet -> driver: NAME/_delta_log/00…07.json, one version -> any reader of Delta

A file is invisible until a commit names it. A commit states the complete new set of files, so that it can be repeated:
it adds missing files and removes the others. delta-rs writes the log, with a conditional put if the store has one, so
that one of two concurrent commits fails with an error.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable, Schema, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction, create_table_with_add_actions

from fairway.errors import StorageError
from fairway.pipeline.azure import AZURE_HOSTS, KEY_VARIABLE
from fairway.pipeline.location import Location
from fairway.units import NS_PER_MS

LOG: Final = "_delta_log"
"""The folder that makes a folder of Parquet files a Delta table."""

_COMPACT_BYTES: Final = 67_108_864
"""Size from which a file is not joined with others."""
_WRITTEN: Final = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=8_192)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table."""

    name: str
    rows: int
    bytes: int
    stats: dict[str, Any] = field(default_factory=dict, hash=False)
    """Statistics of its columns as Delta has them: ``minValues``, ``maxValues``, ``nullCount``."""


def is_delta(place: Location) -> bool:
    """Return whether a folder is a Delta table."""
    return (place / LOG).is_dir()


def opened(place: Location, version: int | None = None) -> DeltaTable | None:
    """Return a version of a table, by default the last one; None if the folder has no table.

    Raises `StorageError` if the log, or this version of it, cannot be read.
    """
    uri, options = storage_of(place)
    with _named_errors(place, "read"):
        try:
            return DeltaTable(uri, version=version, storage_options=options)
        except TableNotFoundError:
            if version is not None:
                raise
            return None


def file_names(table: DeltaTable) -> list[str]:
    """Return the names of the files of a version, relative to the table's folder, sorted."""
    return sorted(unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist())


def files_of(table: DeltaTable) -> list[TableFile]:
    """Return the files of a version, without their statistics, sorted by name."""
    told = pa.table(table.get_add_actions(flatten=True))
    columns = (told[name].to_pylist() for name in ("path", "num_records", "size_bytes"))
    return [TableFile(unquote(path), rows, size) for path, rows, size in sorted(zip(*columns, strict=True))]


def commit(
    place: Location, schema: pa.Schema, files: Sequence[TableFile], *, transaction: tuple[str, int] | None = None
) -> int:
    """Make these the files of a table, which is created if missing, and return the new version.

    The files are in the table's folder. ``transaction`` is the id of an application and the number of its transaction
    (`Transaction`). Raises `StorageError` if another process commits at the same time, or the log cannot be written.
    """
    table = opened(place)
    wanted = {file.name: file for file in files}
    with _named_errors(place, "committed"):
        if table is None or _has_other_columns(table, schema):
            _create(place, schema, files, transaction)
            made = opened(place)
            assert made is not None, "a table that was just committed is there"
            return made.version()
        known = {file.name: file for file in files_of(table)}
        actions: list[AddAction | RemoveAction] = [
            *(_added(file) for name, file in wanted.items() if name not in known),
            *(
                RemoveAction(file.name, True, _now_ms(), size=file.bytes)
                for name, file in known.items()
                if name not in wanted
            ),
        ]
        if actions or transaction is not None:
            table.create_write_transaction(
                actions, "append", Schema.from_arrow(schema), commit_properties=_properties(transaction)
            )
            table.update_incremental()
        if file_names(table) != sorted(wanted):
            raise StorageError(f"the table {place} was changed by another process meanwhile: give the command again")
        return table.version()


def append(place: Location, schema: pa.Schema, files: Sequence[TableFile], transaction: tuple[str, int]) -> bool:
    """Add files to a table, which is created if missing; return False if this transaction is already committed.

    The numbers of an application's transactions must increase.
    """
    table = opened(place)
    with _named_errors(place, "committed"):
        if table is None:
            _create(place, schema, files, transaction)
            return True
        last = table.transaction_version(transaction[0])
        if last is not None and last >= transaction[1]:
            return False
        table.create_write_transaction(
            [_added(file) for file in files],
            "append",
            Schema.from_arrow(schema),
            commit_properties=_properties(transaction),
        )
        return True


def compact(place: Location) -> tuple[int, int] | None:
    """Join the small files of a table, and return the versions before and after; None for a missing table."""
    table = opened(place)
    if table is None:
        return None
    before = table.version()
    with _named_errors(place, "compacted"):
        table.optimize.compact(target_size=_COMPACT_BYTES, writer_properties=_WRITTEN)
    return before, table.version()


def vacuum(place: Location, keep: Sequence[int], retention_hours: int, *, uncommitted: bool = True) -> None:
    """Delete files older than ``retention_hours`` that are neither in the last version nor in one of ``keep``.

    Without ``uncommitted``, only files of earlier versions are deleted: another thread may be about to commit others.
    """
    table = opened(place)
    if table is None:
        return
    told: dict[str, Any] = {
        "retention_hours": retention_hours,
        "enforce_retention_duration": False,
        "full": uncommitted,
    }
    kept = [version for version in keep if version <= table.version()]
    with _named_errors(place, "vacuumed"):
        if table.vacuum(dry_run=True, keep_versions=kept, **told):
            table.vacuum(dry_run=False, keep_versions=kept, **told)


def storage_of(place: Location) -> tuple[str, dict[str, str]]:
    """Return the URI of a location for delta-rs, and its options, which may be secrets."""
    if place.is_local:
        return place.path, {}
    parts = urlsplit(place.uri)
    options = _OPTIONS.get(parts.scheme.lower())
    if options is None:  # one of Hadoop's file systems
        return place.uri, {}
    return options(place, parts, {name: values[-1] for name, values in parse_qs(parts.query).items()})


def _s3(place: Location, parts: Any, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    options = {"aws_region": given["region"]} if "region" in given else {}
    endpoint = given.get("endpoint_override")
    if endpoint is not None:
        endpoint = f"{given.get('scheme', 'https')}://{endpoint.rpartition('//')[2]}"
        options["aws_endpoint"] = endpoint
    if (endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://"):
        options["aws_allow_http"] = "true"
    if parts.username:
        options |= {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}
    return f"s3://{place.path}", options


def _gcs(place: Location, parts: Any, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    options: dict[str, str] = {}
    anonymous = parts.username == "anonymous"
    if anonymous:
        options["google_skip_signature"] = "true"
    if "endpoint_override" in given:
        address = f"{given.get('scheme', 'https')}://{given['endpoint_override'].rpartition('//')[2]}"
        key = {"gcs_base_url": address, "disable_oauth": anonymous}
        key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        options |= {"google_service_account_key": json.dumps(key), "allow_http": "true"}
    return f"gs://{place.path}", options


def _azure(place: Location, parts: Any, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    host = parts.hostname or ""
    key = unquote(parts.password or "") or os.environ.get(KEY_VARIABLE, "")
    options = {"azure_storage_account_key": key} if key else {}
    container, _, path = place.path.partition("/")
    if host.endswith(AZURE_HOSTS):
        options["azure_storage_account_name"] = host.partition(".")[0]
    else:  # another server with the same interface
        scheme = "https" if given.get("enable_tls", "true") == "true" else "http"
        options["azure_storage_account_name"] = parts.username or ""
        options["azure_endpoint"] = f"{scheme}://{host}:{parts.port}/{parts.username}"
        options["azure_allow_http"] = "true" if scheme == "http" else "false"
    return f"az://{container}/{path}", options


_OPTIONS: Final[dict[str, Callable[..., tuple[str, dict[str, str]]]]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _s3),
    **dict.fromkeys(("gs", "gcs"), _gcs),
    **dict.fromkeys(("abfs", "abfss"), _azure),
}
"""By scheme: the options of delta-rs for a URI of Arrow."""


def _create(
    place: Location, schema: pa.Schema, files: Sequence[TableFile], transaction: tuple[str, int] | None
) -> None:
    uri, options = storage_of(place)
    place.make_folder()
    create_table_with_add_actions(
        uri,
        Schema.from_arrow(schema),
        [_added(file) for file in files],
        mode="overwrite",
        storage_options=options,
        commit_properties=_properties(transaction),
    )


def _has_other_columns(table: DeltaTable, schema: pa.Schema) -> bool:
    return bool(table.schema() != Schema.from_arrow(schema))


def _added(file: TableFile) -> AddAction:
    # ASCII JSON splits characters beyond 16 bits into surrogates, which readers of the log reject.
    stats = json.dumps({"numRecords": file.rows, **file.stats}, ensure_ascii=False)
    return AddAction(file.name, file.bytes, {}, _now_ms(), True, stats)


def _properties(transaction: tuple[str, int] | None) -> CommitProperties | None:
    return None if transaction is None else CommitProperties(app_transactions=[Transaction(*transaction)])


def _now_ms() -> int:
    return time.time_ns() // NS_PER_MS


@contextmanager
def _named_errors(place: Location, what: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        place.refuse_missing_bucket()
        told = str(error).partition("\n")[0]
        raise StorageError(f"the table {place} cannot be {what} ({told}): give the command again") from error
