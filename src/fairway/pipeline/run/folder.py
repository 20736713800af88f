"""`RunFolder`: the folder of a run: its tables, and a manifest of the complete ones.

::

    DIR/manifest.json     sources, and the folder in which they were given; options; for each finished table its files,
                          rows, bytes and seconds, and for each finished job of a run what later jobs have to know
    DIR/tables/NAME/      one table
    DIR/work/             what is being written, and what only later jobs need

Invariant: a table in the manifest is complete. There are two ways to write one:

- The tasks of a job write files in their place (`fairway.pipeline.run.table_files`). The table is in the manifest, with
  the names of its files, once all tasks have ended; other files in its place are then removed.
- Spark writes the table below ``work`` under a new name; it is moved to its place in one step and then added to the
  manifest, each step durable before the next. (A table in the format of Iceberg cannot be moved, because its metadata
  contain full paths: it is written in its place.)

So a table of a killed run is either in the manifest, or the next run removes it. The manifest is replaced in one step.
The first way holds on any storage (`fairway.pipeline.location`); the second one is for folders on this machine.

One process works on a folder at a time: a lock ensures it (`fairway.pipeline.folder_lock`).
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
from functools import partial
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow.fs import FileType

from fairway.errors import ConfigurationError, StorageError, StoreLockedError
from fairway.pipeline.folder_lock import FolderLock, lock_folder
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.location import Location
from fairway.pipeline.run.failures import unusable
from fairway.pipeline.tables import SCHEMA_VERSION
from fairway.storage.whole_file import make_durable

MANIFEST: Final = "manifest.json"
SALT_BYTES: Final = 16
"""Length of the salt for the digest of the keys in a manifest."""

_MOVABLE: Final = frozenset({"parquet", "delta"})
_PARQUET: Final = "parquet"
_RUN_KIND: Final = "run"
_OTHER_SOURCES: Final = "the run before, over other sources, had not ended"


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
    removed: str = ""
    """The name of the file that lists which rows of its files do not count (`RemovedRows`); empty where all do."""
    runs: tuple[int, ...] = ()
    """Of a sorted table that grew: how many of its files, one after the other, are sorted; none where all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A finished run."""

    results: Mapping[str, TableResult]
    manifest: Mapping[str, Any]
    has_these_sources: bool
    """Whether its sources are those that were given, as far as they tell."""


def make_folder(path: Path, keys: ChannelKeys | None) -> None:
    """Create a folder if it is missing; with keys only its owner may read it, because it gets decrypted messages."""
    path.mkdir(mode=0o777 if keys is None else 0o700, parents=True, exist_ok=True)


class RunFolder:
    """A folder that this process works on, from `open_for` to `close`."""

    def __init__(
        self,
        place: Location,
        manifest: dict[str, Any],
        lock: FolderLock,
        described_sources: list[dict[str, Any]],
        anew: Callable[[], dict[str, Any]],
    ) -> None:
        self.place = place
        self.held: HeldRun | None = None
        """A finished run of the folder that others may add to, or that needs nothing; until it is begun anew."""
        self.whole_because: str | None = None
        """Why the tables that were there are made anew; None where there were none, or where they are kept."""
        self.described_sources = described_sources
        self._anew = anew
        self._saved: bytes | None = None
        """The manifest as this process put it last."""
        self._manifest = manifest
        self._lock = lock
        self._format = str(manifest["options"]["format"])

    @classmethod
    def open_for(
        cls,
        out: str | PathLike[str],
        described_sources: list[dict[str, Any]],
        options: Mapping[str, Any],
        keys: ChannelKeys | None,
        *,
        holds_finished: bool = False,
    ) -> RunFolder:
        """Open a folder for a run; keep the tables of the same run, and remove those of another.

        With ``holds_finished`` those of a finished run with the same options and keys stay, whatever its sources were:
        it is ``held`` until `begin_anew` or `end_grown`.

        Raises `ConfigurationError` for a folder that holds something else, the tables of a batch that was sent when a
        run is to begin and the other way round included, that a newer fairway made, or that another run uses; and
        `StorageError` for storage that does not answer or refuses.
        """
        place = Location.of(out, "--out")
        if not place.is_local and options["format"] != _PARQUET:
            raise ConfigurationError(
                f"--out is {place}, where only Parquet is written, and --format {options['format']} is for folders on "
                "this machine: give a path, or leave --format out"
            )
        with taking(place, "another run"):
            _refuse_foreign(place)
            if place.is_local:
                place = Location.of(place.local, "--out")
                make_folder(place.local, keys)
            else:
                place.make_folder()
            lock = lock_folder(place, MANIFEST)
            try:
                plan = {"schema_version": SCHEMA_VERSION, "sources": described_sources, "options": dict(options)}
                known = _read(place / MANIFEST)
                if known is not None:
                    _refuse_newer(place, known)
                    _refuse_another_kind(place, known, plan)
                because = None if known is None else _other_run(known, plan, keys)
                anew = partial(_new_manifest, plan, keys)
                manifest = anew() if known is None or because else known
                folder = cls(place, manifest, lock, described_sources, anew)
                if known is not None and holds_finished and because in {None, _OTHER_SOURCES}:
                    folder._hold(known, because)
                if folder.held is None:
                    folder.whole_because = because
                    folder._begin()
            except BaseException:
                lock.release()
                raise
        return folder

    def begin_anew(self, because: str) -> None:
        """Begin a run from nothing in place of the one that is ``held``."""
        self.held = None
        self.whole_because = because
        self._manifest = self._anew()
        self._begin()

    def _hold(self, known: dict[str, Any], because: str | None) -> None:
        """Keep a finished run as it is, if all its files are there."""
        results = {name: _result_of(name, told) for name, told in known["tables"].items()}
        if known.get("state") != "complete" or not all(map(self._is_there, results.values())):
            return
        self._manifest = known
        self._saved = None
        self.held = HeldRun(results=results, manifest=known, has_these_sources=because is None)

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
                self.place_of(name, work=work).remove()

    @property
    def path(self) -> Path:
        """Return the path of a folder on this machine."""
        return self.place.local

    def place_of(self, name: str, *, work: bool = False) -> Location:
        """Return where a table is."""
        return self.place / ("work" if work else "tables") / name

    def write_table(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> TableResult:
        """Call ``write`` with an unused path, and add the table that it writes there to the folder on this machine.

        ``write`` returns the number of rows; for None they are counted in the footers of the Parquet files.
        """
        began_s = time.monotonic()
        place = self.place_of(name, work=work).local
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
        self.place_of(name, work=True).remove()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write into the manifest that the run is finished, with its summary."""
        (self.place / "work").remove()
        self._manifest |= {"state": "complete", "finished": _now(), **summary}
        self._save()

    def end_grown(self, results: Iterable[TableResult], facts: Mapping[str, Mapping[str, Any]], summary: Any) -> None:
        """Write the manifest of the run that is ``held`` after it grew: its tables, what jobs tell, its summary."""
        for result in results:
            self._keep(result)
        self._manifest["jobs"] |= {job: dict(told) for job, told in facts.items()}
        self._manifest |= {"sources": self.described_sources, "given_in": _here(), "finished": _now(), **summary}
        self._save()

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def _begin(self) -> None:
        """Begin the manifest of this attempt, and remove the incomplete tables of an earlier one."""
        tables = self._manifest["tables"]
        for name in [name for name, told in tables.items() if not self._is_there(_result_of(name, told))]:
            del tables[name]
        self._manifest["attempts"] += 1
        self._manifest["state"] = "running"
        self._manifest["given_in"] = _here()
        self._save()
        for parent, work in (("tables", False), ("work", True)):
            for found in (self.place / parent).children():
                if tables.get(found.base_name, {}).get("work") is not work:
                    (self.place / parent / found.base_name).remove()

    def _is_there(self, result: TableResult) -> bool:
        place = self.place_of(result.name, work=result.work)
        sizes = {found.base_name: found.size for found in place.files()}
        if not result.names:
            return place.is_dir()
        if not sizes.keys() >= {*result.names, *filter(None, [result.removed])}:
            return False
        return result.bytes == sum(int(sizes[name]) for name in result.names)  # else one was cut off or changed

    def _keep(self, result: TableResult) -> None:
        told = asdict(result)
        del told["name"]
        self._manifest["tables"][result.name] = told

    def _save(self) -> None:
        content = json.dumps(self._manifest, indent=2).encode()
        manifest = self.place / MANIFEST
        self._lock.check()
        # In an object store a process that was silent for long may have lost its lock a moment ago.
        if self._saved is not None and not self.place.is_local and manifest.read() != self._saved:
            raise StorageError(f"{manifest} was written by another process meanwhile: this one ends")
        manifest.put(content)
        self._saved = content


def _result_of(name: str, told: Mapping[str, Any]) -> TableResult:
    lists = {key: tuple(told.get(key, ())) for key in ("names", "runs")}
    return TableResult(name=name, **{**told, **lists})


@contextmanager
def taking(path: Path | Location, others: str) -> Iterator[None]:
    """Raise `ConfigurationError` if a folder cannot be taken: locked by what ``others`` says, or not writable."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error
    except StoreLockedError as error:
        raise ConfigurationError(
            f"{others} works on {path}: wait for its end or choose another folder ({error})"
        ) from error


def read_manifest(path: Path | Location) -> dict[str, Any]:
    """Return the manifest of a run folder; raise `ConfigurationError` if there is none that can be read."""
    place = Location.of(path, "the run folder") if isinstance(path, Path) else path
    manifest = _read(place / MANIFEST)
    if manifest is None:
        place.refuse_missing_bucket()
        raise ConfigurationError(
            f"{path} is no run folder: it has no {MANIFEST}; 'fairway pipeline run --out' makes one"
        )
    _refuse_newer(place, manifest)
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{_made_by(place, manifest)}, and {_this_one()} reads version {SCHEMA_VERSION}: give the command that "
            "made the folder again, which makes its tables anew"
        )
    return manifest


def holds_run(out: str | PathLike[str]) -> bool:
    """Return whether a folder has the manifest of a run, finished or not; raise `ConfigurationError` as `Location`."""
    return (Location.of(out, "--out") / MANIFEST).is_file()


def kind_of(manifest: Mapping[str, Any]) -> str:
    """Return which command's tables a folder holds, by its manifest: ``run`` or ``send``."""
    return str(manifest["options"].get("kind", _RUN_KIND))


def _refuse_foreign(path: Location) -> None:
    """Raise unless a folder is empty, is not there, or belongs to a run: nothing else must be overwritten."""
    if path.info().type not in {FileType.Directory, FileType.NotFound}:
        raise ConfigurationError(f"{path} is a file; --out takes a folder")
    if (path / "stream" / "stream.json").is_file():
        raise ConfigurationError(f"{path} holds a stream: choose another folder for a run")
    if not (path / MANIFEST).is_file():
        names = [found.base_name for found in path.children()]
        strangers = [name for name in names if not name.startswith((MANIFEST, f".{MANIFEST}"))]
        if strangers:
            raise ConfigurationError(
                f"{path} holds something else ({strangers[0]}): choose an empty folder, or a new one"
            )


def _refuse_newer(path: Location, known: Mapping[str, Any]) -> None:
    """Raise if a newer fairway made a folder: this one cannot read its tables, and must not replace them."""
    version = known["schema_version"]
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"{_made_by(path, known)}, and {_this_one()} knows them up to version {SCHEMA_VERSION}: use fairway "
            f"{known.get('fairway')} or a newer one, or give another folder"
        )


def _made_by(path: Location, known: Mapping[str, Any]) -> str:
    return f"{path} was made by fairway {known.get('fairway')}, with version {known['schema_version']} of the tables"


def _this_one() -> str:
    return f"this one, fairway {metadata.version('fairway')},"


def _refuse_another_kind(path: Location, known: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Raise if a folder has the tables of another command, which would be removed as those of other options are."""
    held, wanted = kind_of(known), kind_of(plan)
    if held != wanted:
        raise ConfigurationError(
            f"{path} holds the tables of 'fairway pipeline {held}': choose another folder for those of "
            f"'fairway pipeline {wanted}', or remove that one"
        )


def _read(path: Location) -> dict[str, Any] | None:
    try:
        manifest = json.loads(path.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}): see that it can be, and give the same command again"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is damaged ({error}): remove the folder and run again") from error
    if not isinstance(manifest, dict) or not {"schema_version", "tables", "options", "sources"} <= manifest.keys():
        raise ConfigurationError(f"{path} is not the manifest of a run: choose another folder")
    return manifest


def _other_run(known: Mapping[str, Any], plan: Mapping[str, Any], keys: ChannelKeys | None) -> str | None:
    """Return why the run that a manifest is of is not the one that is planned; None if it is."""
    planned = json.loads(json.dumps(plan))
    if known["schema_version"] != planned["schema_version"]:
        return f"the folder had version {known['schema_version']} of the tables, this fairway writes {SCHEMA_VERSION}"
    if known["options"] != planned["options"]:
        names = {*known["options"], *planned["options"]}
        other = sorted(name for name in names if known["options"].get(name) != planned["options"].get(name))
        return f"the tables in the folder had other options ({', '.join(other)})"
    if known.get("keys") != digest_of(keys, known.get("salt", "")):
        return "the tables in the folder were made with other keys"
    return None if known["sources"] == planned["sources"] else _OTHER_SOURCES


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


def _here() -> str:
    """Return the folder from which the paths of the sources are, where they are relative."""
    return str(Path.cwd())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
