"""`RunFolder`: the folder of a run: its tables, and a manifest of the complete ones.

::

    DIR/manifest.json     sources, options, for each finished table its files, rows, bytes and seconds, and for each
                          finished job of a run what later jobs have to know
    DIR/tables/NAME/      one table
    DIR/work/             what is being written, and what only later jobs need

Invariant: a table in the manifest is complete. There are two ways to write one:

- The tasks of a job write files in their place (`fairway.pipeline.run.table_files`). The table is in the manifest, with
  the names of its files, once all tasks have ended; other files in its place are then removed.
- Spark writes the table below ``work`` under a new name; it is moved to its place in one step and then added to the
  manifest, each step durable before the next. (A table in the format of Iceberg cannot be moved, because its metadata
  contain full paths: it is written in its place.)

So a table of a killed run is either in the manifest, or the next run removes it.

One process works on a folder at a time: a lock ensures it, which ends with the process.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from fairway.errors import ConfigurationError, StoreLockedError
from fairway.pipeline.durable import make_durable, write_json
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.run.failures import unusable
from fairway.pipeline.tables import SCHEMA_VERSION
from fairway.storage.store_lock import StoreLock

MANIFEST: Final = "manifest.json"
SALT_BYTES: Final = 16
"""Length of the salt for the digest of the keys in a manifest."""

_MOVABLE: Final = frozenset({"parquet", "delta"})
_RUN_KIND: Final = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """A complete table."""

    name: str
    rows: int
    files: int
    bytes: int
    seconds: float
    """Time to write it, and the tables that were written with it."""
    work: bool = False
    """Whether only later steps need it; it is removed after them."""
    names: tuple[str, ...] = ()
    """The names of its files, in the order of its rows; none if the files of the folder are those of the table."""


def make_folder(path: Path, keys: ChannelKeys | None) -> None:
    """Create a folder if it is missing; with keys only its owner may read it, because it gets decrypted messages."""
    path.mkdir(mode=0o777 if keys is None else 0o700, parents=True, exist_ok=True)


class RunFolder:
    """A folder that this process works on, from `open_for` to `close`."""

    def __init__(self, path: Path, manifest: dict[str, Any], lock: StoreLock) -> None:
        self.path = path
        self._manifest = manifest
        self._lock = lock
        self._format = str(manifest["options"]["format"])

    @classmethod
    def open_for(
        cls, path: Path, described_sources: list[dict[str, Any]], options: Mapping[str, Any], keys: ChannelKeys | None
    ) -> RunFolder:
        """Open a folder for a run; keep the tables of the same run, and remove those of another.

        Raises `ConfigurationError` for a folder that holds something else, the tables of a batch that was sent when a
        run is to begin and the other way round included, or that another run uses.
        """
        path = path.absolute()
        with taking(path, "another run"):
            _refuse_foreign(path)
            make_folder(path, keys)
            lock = StoreLock(path / MANIFEST)
            try:
                plan = {"schema_version": SCHEMA_VERSION, "sources": described_sources, "options": dict(options)}
                known = _read(path / MANIFEST)
                _refuse_another_kind(path, known, plan)
                if known is None or not _same_run(known, plan, keys):
                    known = _new_manifest(plan, keys)
                    shutil.rmtree(path / "tables", ignore_errors=True)
                folder = cls(path, known, lock)
                folder._begin()
            except BaseException:
                lock.release()
                raise
        return folder

    @property
    def results(self) -> dict[str, TableResult]:
        """Return the complete tables by name."""
        return {name: _result_of(name, told) for name, told in self._manifest["tables"].items()}

    def is_whole(self, name: str) -> bool:
        """Return whether a table is complete."""
        return name in self._manifest["tables"]

    def facts(self, job: str) -> Mapping[str, Any] | None:
        """Return what a finished job told for later ones; None if it is not finished."""
        told = self._manifest.get("jobs", {}).get(job)
        return None if told is None else dict(told)

    def finish_job(self, job: str, results: Iterable[TableResult], facts: Mapping[str, Any]) -> None:
        """Add the tables of a job to the manifest, and what it tells for later jobs, as values for JSON."""
        for result in results:
            self._keep(result)
        self._manifest.setdefault("jobs", {})[job] = dict(facts)
        self._save()

    def forget_job(self, job: str, tables: Iterable[str]) -> None:
        """Take a job and its tables out of the manifest and remove the tables, so that they are written again."""
        self._manifest.get("jobs", {}).pop(job, None)
        for name in tables:
            self._manifest["tables"].pop(name, None)
        self._save()
        for name in tables:
            for work in (False, True):
                shutil.rmtree(self.place_of(name, work=work), ignore_errors=True)

    def place_of(self, name: str, *, work: bool = False) -> Path:
        """Return the path of a table."""
        return self.path / ("work" if work else "tables") / name

    def write_table(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> TableResult:
        """Call ``write`` with an unused path, and add the table that it writes there to the folder.

        ``write`` returns the number of rows; for None they are counted in the footers of the Parquet files.
        """
        began_s = time.monotonic()
        place = self.place_of(name, work=work)
        shutil.rmtree(place, ignore_errors=True)
        is_movable = self._format in _MOVABLE or work
        written = self.path / "work" / f"{name}.{secrets.token_hex(4)}" if is_movable else place
        rows = write(written)
        if is_movable:
            place.parent.mkdir(exist_ok=True)
            written.rename(place)
            make_durable(place.parent)
        files = [file for file in place.rglob("*.parquet") if not file.name.startswith((".", "_"))]
        result = TableResult(
            name=name,
            rows=sum(pq.read_metadata(file).num_rows for file in files) if rows is None else rows,
            files=len(files),
            bytes=sum(file.stat().st_size for file in files),
            seconds=round(time.monotonic() - began_s, 3),
            work=work,
        )
        self._keep(result)
        self._save()
        return result

    def drop_work(self, name: str) -> None:
        """Remove a table that no later step needs."""
        if self._manifest["tables"].pop(name, None) is not None:
            self._save()
        shutil.rmtree(self.place_of(name, work=True), ignore_errors=True)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write into the manifest that the run is finished, with its summary."""
        shutil.rmtree(self.path / "work", ignore_errors=True)
        self._manifest |= {"state": "complete", "finished": _now(), **summary}
        self._save()

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def _begin(self) -> None:
        """Remove the incomplete tables of an earlier run."""
        tables = self._manifest["tables"]
        for parent, work in (("tables", False), ("work", True)):
            for place in (self.path / parent).glob("*"):
                if tables.get(place.name, {}).get("work") is not work:
                    shutil.rmtree(place, ignore_errors=True)
        for name in [name for name, told in tables.items() if not self._is_there(_result_of(name, told))]:
            del tables[name]
        self._manifest["attempts"] += 1
        self._manifest["state"] = "running"
        self._save()

    def _is_there(self, result: TableResult) -> bool:
        place = self.place_of(result.name, work=result.work)
        return place.is_dir() and all((place / name).is_file() for name in result.names)

    def _keep(self, result: TableResult) -> None:
        told = asdict(result)
        del told["name"]
        self._manifest["tables"][result.name] = told

    def _save(self) -> None:
        write_json(self.path / MANIFEST, self._manifest)


def _result_of(name: str, told: Mapping[str, Any]) -> TableResult:
    return TableResult(name=name, **{**told, "names": tuple(told.get("names", ()))})


@contextmanager
def taking(path: Path, others: str) -> Iterator[None]:
    """Raise `ConfigurationError` if a folder cannot be taken: locked by what ``others`` says, or not writable."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error
    except StoreLockedError as error:
        raise ConfigurationError(f"{others} works on {path}: wait for its end or choose another folder") from error


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a run folder; raise `ConfigurationError` if there is none that can be read."""
    manifest = _read(path / MANIFEST)
    if manifest is None:
        raise ConfigurationError(
            f"{path} is no run folder: it has no {MANIFEST}; 'fairway pipeline run --out' makes one"
        )
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path} was written with version {manifest['schema_version']} of the tables, this fairway reads version "
            f"{SCHEMA_VERSION}: run the pipeline again"
        )
    return manifest


def kind_of(manifest: Mapping[str, Any]) -> str:
    """Return which command's tables a folder holds, by its manifest: ``run`` or ``send``."""
    return str(manifest["options"].get("kind", _RUN_KIND))


def _refuse_foreign(path: Path) -> None:
    """Raise unless a folder is empty, is not there, or belongs to a run: nothing else must be overwritten."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file; --out takes a folder")
    if (path / "stream" / "stream.json").is_file():
        raise ConfigurationError(f"{path} holds a stream: choose another folder for a run")
    if path.is_dir() and not (path / MANIFEST).is_file():
        strangers = [child.name for child in path.iterdir() if not child.name.startswith((MANIFEST, f".{MANIFEST}"))]
        if strangers:
            raise ConfigurationError(
                f"{path} holds something else ({strangers[0]}): choose an empty folder, or a new one"
            )


def _refuse_another_kind(path: Path, known: Mapping[str, Any] | None, plan: Mapping[str, Any]) -> None:
    """Raise if a folder has the tables of another command, which would be removed as those of other options are."""
    if known is None:
        return
    held, wanted = kind_of(known), kind_of(plan)
    if held != wanted:
        raise ConfigurationError(
            f"{path} holds the tables of 'fairway pipeline {held}': choose another folder for those of "
            f"'fairway pipeline {wanted}', or remove that one"
        )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}): remove the folder and run again") from error
    if not isinstance(manifest, dict) or not {"schema_version", "tables", "options", "sources"} <= manifest.keys():
        raise ConfigurationError(f"{path} is not the manifest of a run: choose another folder")
    return manifest


def _same_run(known: Mapping[str, Any], plan: Mapping[str, Any], keys: ChannelKeys | None) -> bool:
    is_planned = all(known.get(name) == told for name, told in json.loads(json.dumps(plan)).items())
    return is_planned and known.get("keys") == digest_of(keys, known.get("salt", ""))


def _new_manifest(plan: Mapping[str, Any], keys: ChannelKeys | None) -> dict[str, Any]:
    salt = secrets.token_hex(SALT_BYTES)
    return {
        **plan,
        "fairway": metadata.version("fairway"),
        "salt": salt,
        "keys": digest_of(keys, salt),
        "state": "running",
        "started": _now(),
        "attempts": 0,
        "tables": {},
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
