"""`RunFolder`: the folder of a run: its tables, and which version of each belongs to the run.

::

    DIR/run.json             the finished run: sources, options, balance, and the version of each table
    DIR/tables/NAME/         a Delta table (`fairway.pipeline.tables.delta`)
    DIR/work/attempt.json    an unfinished run: its finished jobs, and the files that they wrote
    DIR/work/NAME/           a table that only later jobs of the run need

``run.json`` is written last and read first, in one step. At its end a run commits the files of each table, and then
writes ``run.json``. Until then, and after any failure, readers find the previous run. An interrupted run continues with
its unfinished job.

The folder of a batch to be sent (`fairway.pipeline.outgoing`) is used table by table: ``run.json`` names a table of it
as soon as it is complete.

A lock lets one process at a time work on a folder of this machine. Other storage has no lock: two concurrent runs each
write complete tables, and ``run.json`` names the last run.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow.fs import FileType

from fairway.errors import ConfigurationError, StorageError, StoreLockedError
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.location import Location
from fairway.pipeline.run.failures import unusable
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.tables import SCHEMA_VERSION, TABLES, Table
from fairway.pipeline.tables.delta import TableFile, commit, compact, files_of, opened, vacuum
from fairway.pipeline.tables.statistics import statistics_of
from fairway.storage.store_lock import StoreLock

RUN: Final = "run.json"
ATTEMPT: Final = "work/attempt.json"
SALT_BYTES: Final = 16
"""Length of the salt for the digest of the keys in a description."""

_RUN_KIND: Final = "run"
_COMPLETE: Final = "complete"
_OTHER_SOURCES: Final = "the run before was over other sources"
_MANY_FILES: Final = 128
_SMALL_BYTES: Final = 8_388_608
"""Number and average size of files: a grown table with more and smaller files is compacted."""
_KEPT_HOURS: Final = 24
"""Time for which files without a version are kept on storage without a lock: another process may be writing them."""


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
    """Whether it is a work table for later steps; it is removed after them."""
    version: int | None = None
    """The version of the Delta table; None while it is not committed."""
    parts: tuple[TableFile, ...] = ()
    """Its files; JSON omits those of a committed table, whose log names them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its files."""
        return tuple(part.name for part in self.parts)

    @classmethod
    def of(cls, name: str, parts: Iterable[TableFile], seconds: float, *, work: bool = False) -> TableResult:
        """Return the result for some files."""
        files = tuple(sorted(parts, key=lambda part: part.name))
        return cls(
            name=name,
            rows=sum(part.rows for part in files),
            files=len(files),
            bytes=sum(part.bytes for part in files),
            seconds=seconds,
            work=work,
            parts=files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A finished run."""

    results: Mapping[str, TableResult]
    manifest: Mapping[str, Any]
    has_these_sources: bool
    """Whether its sources are the given ones, by their fingerprints."""


def make_folder(path: Path, keys: ChannelKeys | None) -> None:
    """Create a folder if missing; with keys only its owner may read it, because of its decrypted messages."""
    path.mkdir(mode=0o777 if keys is None else 0o700, parents=True, exist_ok=True)


class RunFolder:
    """A folder that this process works on, from `open_for` to `close`."""

    def __init__(
        self, place: Location, plan: Mapping[str, Any], keys: ChannelKeys | None, lock: StoreLock | None
    ) -> None:
        self.place = place
        self.held: HeldRun | None = None
        """The finished run of the folder, which may be grown or kept; None after the run is begun anew."""
        self.whole_because: str | None = None
        """The reason why existing tables are rebuilt; None if there are none, or if they are kept."""
        self._plan = plan
        self._keys = keys
        self._lock = lock
        self._state: dict[str, Any] = {}
        self._is_run = kind_of(plan) == _RUN_KIND
        self._schemas = {table.name: table.schema for table in TABLES}

    @classmethod
    def open_for(
        cls,
        out: str | PathLike[str],
        described_sources: list[dict[str, Any]],
        options: Mapping[str, Any],
        keys: ChannelKeys | None,
        *,
        tables: Iterable[Table] = TABLES,
        of_stream: bool = False,
    ) -> RunFolder:
        """Open a folder for a run, or for a batch with its own ``tables``.

        A finished run with the same options and keys is ``held``, whatever its sources were, until `begin_anew` or
        `end_grown`. An interrupted run over the same sources is continued. Readers see no change.

        Raises `ConfigurationError` for a folder that holds something else (a batch instead of a run, or a run instead
        of a batch), that a newer fairway made, or that another run uses. Raises `StorageError` if the storage does not
        answer or refuses access.
        """
        place = Location.of(out, "--out")
        with taking(place, "another run"):
            _refuse_foreign(place, of_stream=of_stream)
            lock = None
            if place.is_local:
                place = Location.of(place.local, "--out")
                make_folder(place.local, keys)
                if not of_stream:  # a stream has locked it
                    lock = StoreLock(place.local / RUN, user="run", kind="folder")
            else:
                place.make_folder()
            try:
                plan = {"schema_version": SCHEMA_VERSION, "sources": described_sources, "options": dict(options)}
                folder = cls(place, plan, keys, lock)
                folder._schemas = {table.name: table.schema for table in tables}
                folder._open()
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
        return folder

    def _open(self) -> None:
        finished = _read(self.place / RUN)
        interrupted = _read(self.place / ATTEMPT)
        for known in filter(None, (finished, interrupted)):
            _refuse_newer(self.place, known)
            _refuse_another_kind(self.place, known, self._plan)
        because = None if finished is None else _other_run(finished, self._plan, self._keys)
        interrupted = interrupted if self._is_run else finished
        if interrupted is not None and _other_run(interrupted, self._plan, self._keys) is None:
            self._state = interrupted
            self.whole_because = interrupted.get("because")
            self._begin()
            return
        if finished is not None and self._is_run and because in {None, _OTHER_SOURCES}:
            results = self._held_by(finished)
            if results is not None:
                self._state = finished
                self.held = HeldRun(results=results, manifest=finished, has_these_sources=because is None)
                return
            because = because or "a file of the tables in the folder is gone or damaged"
        self._begin_new(because)

    def begin_anew(self, because: str) -> None:
        """Begin a new run instead of the one in ``held``, for the reason ``because``."""
        self.held = None
        self._begin_new(because)

    def _begin_new(self, because: str | None) -> None:
        self._state = _new_state(self._plan, self._keys, because)
        self.whole_because = because
        self._begin()

    def _held_by(self, finished: Mapping[str, Any]) -> dict[str, TableResult] | None:
        """Return the tables of a finished run; None if a file of them is missing."""
        try:
            found = {name: self._committed(name, told) for name, told in finished["tables"].items()}
        except StorageError:  # the log of a table is gone
            return None
        return found if all(map(self._is_there, found.values())) else None

    def _committed(self, name: str, told: Mapping[str, Any]) -> TableResult:
        table = opened(self.place_of(name), int(told["version"]))
        assert table is not None, "a version that is not there raises an error"
        return TableResult(name=name, parts=tuple(files_of(table)), **told)

    @property
    def results(self) -> dict[str, TableResult]:
        """Return the complete tables by name."""
        return {name: _result_of(name, told) for name, told in self._state["tables"].items()}

    def is_whole(self, name: str) -> bool:
        """Return whether a table is complete."""
        return name in self._state["tables"]

    def facts(self, job: str) -> Mapping[str, Any] | None:
        """Return the facts of a finished job for later jobs; None if it is not finished."""
        told = self._state["jobs"].get(job)
        return None if told is None else dict(told)

    def finish_job(self, job: str, results: Iterable[TableResult], facts: Mapping[str, Any]) -> None:
        """Record the tables of a job, and its facts for later jobs, as values for JSON."""
        for result in results:
            self._keep(result)
        self._state["jobs"][job] = dict(facts)
        self._save()

    @property
    def path(self) -> Path:
        """Return the path of a folder on this machine."""
        return self.place.local

    def place_of(self, name: str, *, work: bool = False) -> Location:
        """Return the location of a table."""
        return self.place / ("work" if work else "tables") / name

    def files(self, name: str) -> list[Path]:
        """Return the files of a complete table of a folder on this machine, in the order of their names."""
        result = self.results[name]
        if result.version is not None:
            result = self._committed(name, _told(result))
        return [self.place_of(name, work=result.work).local / part.name for part in result.parts]

    def write_table(self, name: str, write: Callable[[Path], int | None], *, work: bool = False) -> TableResult:
        """Call ``write`` with an unused path, and make the Parquet files that it writes there a table of the folder."""
        began_s = time.monotonic()
        place = self.place_of(name, work=work).local
        written = self.path / "work" / f"{name}.{secrets.token_hex(4)}"
        written.parent.mkdir(exist_ok=True)
        write(written)
        place.mkdir(parents=True, exist_ok=True)
        parts = []
        for file in sorted(written.rglob("*.parquet")):
            if not file.name.startswith((".", "_")):
                footer = pq.read_metadata(file)
                parts.append(TableFile(file.name, footer.num_rows, file.stat().st_size, statistics_of(footer)))
                file.rename(place / file.name)
        shutil.rmtree(written)
        result = TableResult.of(name, parts, round(time.monotonic() - began_s, 3), work=work)
        self._keep(result if work else self._commit(result))
        self._save()
        return result

    def drop_work(self, name: str) -> None:
        """Remove a table that no later step needs."""
        if self._state["tables"].pop(name, None) is not None:
            self._save()
        self.place_of(name, work=True).remove()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Commit the tables of a run, and record it as finished, with its summary."""
        before = _read(self.place / RUN)
        for result in self.results.values():
            if result.version is None and not result.work:
                self._keep(self._commit(result))
        self._publish({"state": _COMPLETE, "finished": _now(), **summary})
        (self.place / "work").remove()
        self._tidy(before)

    def end_grown(self, results: Iterable[TableResult], facts: Mapping[str, Mapping[str, Any]], summary: Any) -> None:
        """Commit the tables of the ``held`` run after it grew, and write the facts of jobs and the summary."""
        before = _read(self.place / RUN)
        for result in results:
            committed = self._commit(result)
            is_split = result.files >= _MANY_FILES and result.bytes < _SMALL_BYTES * result.files
            self._keep(self._compacted(committed) if is_split else committed)
        self._state["jobs"] |= {job: dict(told) for job, told in facts.items()}
        self._publish({"sources": self._plan["sources"], "given_in": _here(), "finished": _now(), **summary})
        self._tidy(before)

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._lock.release()

    def _begin(self) -> None:
        """Begin an attempt. If a file is gone, a batch writes its table again, and a run makes all tables anew."""
        tables = self._state["tables"]
        lost = [name for name, result in self.results.items() if not self._is_there(result)]
        if lost and self._is_run:
            tables.clear()
            self._state["jobs"] = {}
        for name in lost:
            tables.pop(name, None)
        self._state["attempts"] += 1
        self._state["state"] = "running"
        self._state["given_in"] = _here()
        self._save()
        for found in (self.place / "work").children():
            if found.base_name not in tables and found.type == FileType.Directory:
                (self.place / "work" / found.base_name).remove()

    def _is_there(self, result: TableResult) -> bool:
        place = self.place_of(result.name, work=result.work)
        if result.version is not None and not result.parts and result.rows:
            result = self._committed(result.name, _told(result))
        sizes = {found.base_name: found.size for found in place.files()}
        return all(sizes.get(part.name) == part.bytes for part in result.parts)  # another size: truncated or changed

    def _commit(self, result: TableResult) -> TableResult:
        schema = arrow_schema(self._schemas[result.name])
        version = commit(self.place_of(result.name), schema, result.parts)
        return replace(result, version=version)

    def _compacted(self, result: TableResult) -> TableResult:
        """Return a committed table after its small files were joined."""
        place = self.place_of(result.name)
        compact(place)
        table = opened(place)
        assert table is not None, "it was just committed"
        made = TableResult.of(result.name, files_of(table), result.seconds)
        return replace(made, version=table.version())

    def _keep(self, result: TableResult) -> None:
        self._state["tables"][result.name] = _told(result)

    def _publish(self, further: Mapping[str, Any]) -> None:
        self._state |= further
        (self.place / RUN).put(_as_json(self._state))

    def _save(self) -> None:
        if not self._is_run:
            self._publish({})
            return
        place = self.place / ATTEMPT
        (self.place / "work").make_folder()
        place.put(_as_json(self._state))

    def _tidy(self, before: Mapping[str, Any] | None) -> None:
        """Delete files of no table; the versions of the previous run stay, for readers that have opened them."""
        told = {} if before is None else before["tables"]
        for name, result in self.results.items():
            keep = [int(each["version"]) for each in (told.get(name), _told(result)) if each and "version" in each]
            vacuum(self.place_of(name), keep, 0 if self.place.is_local else _KEPT_HOURS)


def _fields(result: TableResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("name", "rows", "files", "bytes", "seconds", "work")}


def _told(result: TableResult) -> dict[str, Any]:
    """Return a table as values for JSON: a committed one by its version, another by its files."""
    told = _fields(result)
    del told["name"]
    if result.version is not None:
        del told["work"]
        return told | {"version": result.version}
    return told | {"parts": [asdict(part) for part in result.parts]}


def _result_of(name: str, told: Mapping[str, Any]) -> TableResult:
    return TableResult(name=name, **{**told, "parts": tuple(TableFile(**part) for part in told.get("parts", ()))})


def _as_json(state: Mapping[str, Any]) -> bytes:
    return json.dumps(state, indent=2).encode()


@contextmanager
def taking(path: Path | Location, others: str) -> Iterator[None]:
    """Raise `ConfigurationError` if a folder is locked (``others`` names the other user), or not writable."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error
    except StoreLockedError as error:
        raise ConfigurationError(
            f"{others} works on {path}: wait for its end or choose another folder ({error})"
        ) from error


def read_run(path: Path | Location) -> dict[str, Any]:
    """Return the description of the finished run, or the batch, in a folder.

    Raises `ConfigurationError` if the folder has no readable one.
    """
    place = Location.of(path, "the run folder") if isinstance(path, Path) else path
    found = _read(place / RUN)
    if found is None:
        place.refuse_missing_bucket()
        if (place / ATTEMPT).is_file():
            raise ConfigurationError(
                f"the run in {path} did not end: start it again, and it continues where it stopped"
            )
        raise ConfigurationError(f"{path} is no run folder: it has no {RUN}; 'fairway pipeline run --out' makes one")
    _refuse_newer(place, found)
    if found["schema_version"] != SCHEMA_VERSION:
        raise ConfigurationError(
            f"{_made_by(place, found)}, and {_this_one()} reads version {SCHEMA_VERSION}: give the command that "
            "made the folder again, which makes its tables anew"
        )
    return found


def holds_run(out: str | PathLike[str]) -> bool:
    """Return whether a folder has a finished run; raise `ConfigurationError` as `Location`."""
    return (Location.of(out, "--out") / RUN).is_file()


def kind_of(described: Mapping[str, Any]) -> str:
    """Return the command that made a folder, by its description: ``run`` or ``send``."""
    return str(described["options"].get("kind", _RUN_KIND))


def _refuse_foreign(path: Location, *, of_stream: bool) -> None:
    """Raise unless a folder is missing, empty, or of a run: other contents must not be overwritten."""
    if path.info().type not in {FileType.Directory, FileType.NotFound}:
        raise ConfigurationError(f"{path} is a file; --out takes a folder")
    if of_stream:
        return
    if (path / "stream" / "stream.json").is_file():
        raise ConfigurationError(f"{path} holds a stream: choose another folder for a run")
    if not (path / RUN).is_file() and not (path / ATTEMPT).is_file():
        names = [found.base_name for found in path.children()]
        strangers = [name for name in names if not name.startswith((RUN, f".{RUN}")) and name != "work"]
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
    """Raise if a folder has the tables of another command, which must not be replaced."""
    held, wanted = kind_of(known), kind_of(plan)
    if held != wanted:
        raise ConfigurationError(
            f"{path} holds the tables of 'fairway pipeline {held}': choose another folder for those of "
            f"'fairway pipeline {wanted}', or remove that one"
        )


def _read(path: Location) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}): see that it can be, and give the same command again"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is damaged ({error}): remove the folder and run again") from error
    if not isinstance(found, dict) or not {"schema_version", "tables", "options", "sources"} <= found.keys():
        raise ConfigurationError(f"{path} does not describe a run: choose another folder")
    return found


def _other_run(known: Mapping[str, Any], plan: Mapping[str, Any], keys: ChannelKeys | None) -> str | None:
    """Return the difference between the described run and the planned one; None if they are the same."""
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


def _new_state(plan: Mapping[str, Any], keys: ChannelKeys | None, because: str | None) -> dict[str, Any]:
    salt = secrets.token_hex(SALT_BYTES)
    return {
        **plan,
        "fairway": metadata.version("fairway"),
        "salt": salt,
        "keys": digest_of(keys, salt),
        "state": "running",
        "because": because,
        "started": _now(),
        "attempts": 0,
        "tables": {},
        "jobs": {},
    }


def _here() -> str:
    """Return the base folder of relative paths of sources."""
    return str(Path.cwd())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
