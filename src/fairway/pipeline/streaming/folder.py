"""`StreamFolder`: the folder of a stream: a run folder that is replaced at each refresh, and the stream's own files.

::

    DIR/manifest.json, DIR/tables/    a run folder, as it was at the last refresh; links into stream/current
    DIR/stream/stream.json            whose stream this is; written once
    DIR/stream/recorded/batch=N/      the rows that the archives gave, each as often as they gave it, until they are in
                                      rows/ and have gone through the cores
    DIR/stream/rows/A-B/              the same, joined: those of the micro-batches A to B
    DIR/stream/emitted/batch=N/       what the cores said: what=delivered, what=missing, what=found
    DIR/stream/emitted/batches=A-B/   the same, joined, with the number of the micro-batch in the column batch
    DIR/stream/checkpoints/           Spark's: offsets, and the state of the cores
    DIR/stream/run/                   the run over rows/
    DIR/stream/generations/N/         its tables as they were after a refresh; stream/current is a link to the last one
    DIR/stream/aside/                 what is being written

Invariant: a reader of DIR finds one generation of tables, complete. A refresh changes one link in one step; the
generation before stays until the next refresh, for readers that have opened it. The files of a generation are further
names of those of the run, so that this can remove its own.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fairway.errors import ConfigurationError
from fairway.pipeline.durable import write_json
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.run.folder import MANIFEST, SALT_BYTES, make_folder, taking
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES
from fairway.pipeline.streaming.batches import Batches
from fairway.pipeline.streaming.joined import JoinedBatches, write_parts
from fairway.pipeline.streaming.options import StreamOptions
from fairway.pipeline.tables import SCHEMA_VERSION
from fairway.storage.store_lock import StoreLock
from fairway.storage.whole_file import make_durable

STREAM: Final = "stream"
"""The folder within a run folder that makes it one of a stream."""

RECORDED_SCHEMA: Final = arrow_schema(WAKU_MESSAGES)
"""The columns of recorded rows."""
_IDENTITY: Final = "stream.json"
_LAYOUT: Final = 2
"""Which files a folder has; 1, without joined micro-batches, was before."""
_NO_ROWS: Final = "0"
"""A folder among the joined rows that has none, so that there is always something to read."""


class StreamFolder:
    """A folder that this process works on, from `open_for` to `close`."""

    def __init__(self, path: Path, lock: StoreLock) -> None:
        self.path = path
        self._lock = lock
        self.own = path / STREAM
        aside = self.own / "aside"
        self.rows = JoinedBatches(self.own / "rows", aside)
        self.recorded = Batches(self.own / "recorded", aside, self.rows)
        self.emitted = _emitted(self.own)
        self.taken = self.own / "taken.json"
        """Tells up to which micro-batch the recorded rows went through the cores."""
        self.state_partitions = 0

    @classmethod
    def open_for(
        cls, path: Path, sources: tuple[RunSource, ...], options: StreamOptions, keys: ChannelKeys | None
    ) -> StreamFolder:
        """Open a folder for a stream, a new one or one to continue with.

        Raises `ConfigurationError` for a folder that holds something else, belongs to another stream, or is in use.
        """
        path = path.absolute()
        with taking(path, "another stream or run"):
            _refuse_foreign(path)
            make_folder(path, keys)
            (path / STREAM).mkdir(exist_ok=True)
            lock = StoreLock(path / MANIFEST, user="stream", kind="folder")
            try:
                folder = cls(path, lock)
                folder._identify(sources, options, keys)
                folder._begin()
            except BaseException:
                lock.release()
                raise
        return folder

    def checkpoint(self, name: str) -> str:
        """Return the folder of Spark's checkpoint of a query."""
        return str(self.own / "checkpoints" / name)

    @property
    def run(self) -> Path:
        """Return the run folder over the joined rows."""
        return self.own / "run"

    @property
    def next_generation(self) -> Path:
        """Return where the next generation of tables is made, of the files of the run."""
        return self.own / "generations" / "next"

    def generation(self) -> dict[str, Any] | None:
        """Return the manifest of the present tables, None before the first refresh."""
        try:
            told: dict[str, Any] = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return told

    def prepare_generation(self) -> None:
        """Give the files of the run's tables names in `next_generation`, too."""
        shutil.rmtree(self.next_generation, ignore_errors=True)
        for folder, _, names in os.walk(self.run / "tables"):
            place = self.next_generation / Path(folder).relative_to(self.run)
            place.mkdir(parents=True)
            for name in names:
                _also_name(Path(folder, name), place / name)

    def show(self, manifest: Mapping[str, Any]) -> None:
        """Make the tables of `next_generation` those of the folder, under this manifest."""
        number = 1 + max((int(one.name) for one in self._generations()), default=0)
        write_json(self.next_generation / MANIFEST, manifest)
        shown = self.next_generation.with_name(str(number))
        self.next_generation.rename(shown)
        make_durable(shown.parent)
        _link(self.own / "current", Path("generations") / str(number))
        for name in ("tables", MANIFEST):
            if not (self.path / name).is_symlink():
                _link(self.path / name, Path(STREAM) / "current" / name)
        for old in self._generations():
            if int(old.name) < number - 1:
                shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def _generations(self) -> list[Path]:
        return [one for one in (self.own / "generations").glob("*") if one.name.isdigit()]

    def _begin(self) -> None:
        """Remove incomplete files and what is joined in others, and write rows without any if there are none."""
        self.recorded.clear_aside()
        for joined in (self.rows, self.emitted.joined):
            joined.remove_inner()
        if not (self.rows.place / _NO_ROWS).is_dir():
            aside = self.own / "aside" / _NO_ROWS
            aside.mkdir(parents=True)
            write_parts([pa.RecordBatch.from_pylist([], RECORDED_SCHEMA)], RECORDED_SCHEMA, aside)
            self.rows.place.mkdir(exist_ok=True)
            aside.rename(self.rows.place / _NO_ROWS)

    def _identify(self, sources: tuple[RunSource, ...], options: StreamOptions, keys: ChannelKeys | None) -> None:
        place = self.own / _IDENTITY
        try:
            known = json.loads(place.read_text(encoding="utf-8"))
        except FileNotFoundError:
            salt = secrets.token_hex(SALT_BYTES)
            known = {
                "layout": _LAYOUT,
                "schema_version": SCHEMA_VERSION,
                "fairway": metadata.version("fairway"),
                "sources": _described(sources),
                "options": options.identity(),
                "state_partitions": options.state_partitions,
                "salt": salt,
                "keys": digest_of(keys, salt),
            }
            write_json(place, known)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{place} cannot be read ({error}): choose another folder") from error
        if (known.get("layout", 1), known.get("schema_version")) != (_LAYOUT, SCHEMA_VERSION):
            raise ConfigurationError(
                f"{self.path} was made by fairway {known.get('fairway')}, and this one writes other files: use that "
                "fairway to go on, or choose another folder to begin anew; nothing was changed"
            )
        given = {
            "sources": _described(sources),
            "options": options.identity(),
            "keys": digest_of(keys, str(known.get("salt", ""))),
        }
        for name, told in given.items():
            if known.get(name) != told:
                raise ConfigurationError(_other_stream(self.path, name, known.get(name), told))
        self.state_partitions = int(known["state_partitions"])


def emitted_in(path: Path) -> Batches:
    """Return what the cores said in the folder of a stream, for readers; raise `ConfigurationError` for another one."""
    if not (path / STREAM / _IDENTITY).is_file():
        raise ConfigurationError(f"{path} holds no stream; 'fairway pipeline stream --out' makes one")
    return _emitted(path / STREAM)


def _emitted(own: Path) -> Batches:
    place, aside = own / "emitted", own / "aside"
    return Batches(place, aside, JoinedBatches(place, aside, "batches="))


def _other_stream(path: Path, name: str, known: object, given: object) -> str:
    if isinstance(known, dict) and isinstance(given, dict):
        others = [each for each in {**known, **given} if known.get(each) != given.get(each)]
        known, given = ({each: options.get(each) for each in others} for options in (known, given))
    what = "keys" if name == "keys" else f"{name} {json.dumps(known)}, and now they are {json.dumps(given)}"
    told = "other keys than before were given" if name == "keys" else f"it was begun with the {what}"
    return (
        f"{path} holds another stream: {told}. Give the same options to go on, or choose another folder to "
        "begin anew; nothing was changed"
    )


def _described(sources: tuple[RunSource, ...]) -> list[dict[str, Any]]:
    return [{"label": source.label, "uri": source.shown} for source in sources]


def _refuse_foreign(path: Path) -> None:
    """Raise unless a folder is empty, is not there, or belongs to a stream: nothing else must be overwritten."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file; --out takes a folder")
    own = path / STREAM
    if path.is_dir() and not (own / _IDENTITY).is_file():
        # A start that was broken off before it wrote whose stream it is has left these.
        left = {f"{MANIFEST}.lock"} | ({STREAM} if own.is_dir() and not any(own.glob("[!.]*")) else set())
        strangers = [child.name for child in path.iterdir() if child.name not in left]
        if strangers:
            kind = "the tables of a run" if MANIFEST in strangers else f"something else ({strangers[0]})"
            raise ConfigurationError(f"{path} holds {kind}: choose an empty folder, or a new one, for a stream")


def _also_name(file: Path, name: Path) -> None:
    """Give a file that never changes another name; where the file system has no such thing, copy it."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)


def _link(place: Path, target: Path) -> None:
    """Create or replace a link in one step."""
    written = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    written.symlink_to(target)
    written.replace(place)
    make_durable(place.parent)
