"""`StreamFolder`: the folder of a stream: a run folder, updated at each refresh, with the stream's own tables.

::

    DIR/run.json, DIR/tables/     a run folder (`fairway.pipeline.run.folder`), as of the last refresh
    DIR/stream/stream.json        the identity of the stream (sources, options, keys); written once
    DIR/stream/recorded/          a Delta table: the rows of the archives, with repetitions
    DIR/stream/late/              a Delta table: late messages (`late`), which are recorded, too
    DIR/stream/emitted/           a Delta table: the output of the cores; ``what`` is delivered, missing or found
    DIR/stream/checkpoints/       Spark's checkpoints: offsets, and the state of the cores
    DIR/stream/aside/             files that are being written

Each micro-batch of Spark is one transaction of one of the tables, so that its rows are written once
(`BatchTable`).
"""

from __future__ import annotations

import json
import secrets
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline.durable import write_json
from fairway.pipeline.keys import ChannelKeys, digest_of
from fairway.pipeline.run.folder import RUN, SALT_BYTES, make_folder, taking
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES
from fairway.pipeline.streaming.batch_table import BatchTable
from fairway.pipeline.streaming.channel_core import EMITTED
from fairway.pipeline.streaming.options import StreamOptions
from fairway.pipeline.tables import SCHEMA_VERSION
from fairway.storage.store_lock import StoreLock

STREAM: Final = "stream"
"""The subfolder of a run folder with the stream's own files."""

RECORD: Final = "record"
"""The query that copies the rows of the archives."""
DELIVER: Final = "deliver"
"""The query that runs the cores over the recorded rows."""

_IDENTITY: Final = "stream.json"
_LAYOUT: Final = 4
"""Version of the folder's layout."""


class StreamFolder:
    """The folder of a stream, locked for this process from `open_for` to `close`."""

    def __init__(self, path: Path, lock: StoreLock) -> None:
        self.path = path
        self._lock = lock
        self.own = path / STREAM
        self.recorded = BatchTable(self.own / "recorded", WAKU_MESSAGES, self.own / "aside")
        self.late = BatchTable(self.own / "late", WAKU_MESSAGES, self.own / "aside")
        self.emitted = emitted_at(self.own)
        self.state_partitions = 0

    @classmethod
    def open_for(
        cls, path: Path, sources: tuple[RunSource, ...], options: StreamOptions, keys: ChannelKeys | None
    ) -> StreamFolder:
        """Open a new folder for a stream, or the folder of an earlier start.

        Raises `ConfigurationError` for a folder with other files, of another stream, or in use.
        """
        path = path.absolute()
        with taking(path, "another stream or run"):
            _refuse_foreign(path)
            make_folder(path, keys)
            (path / STREAM).mkdir(exist_ok=True)
            lock = StoreLock(path / RUN, user="stream", kind="folder")
            try:
                folder = cls(path, lock)
                folder._identify(sources, options, keys)
                shutil.rmtree(folder.own / "aside", ignore_errors=True)
            except BaseException:
                lock.release()
                raise
        return folder

    def checkpoint(self, name: str) -> Path:
        """Return the path of a query's checkpoint."""
        return self.own / "checkpoints" / name

    def compact(self, many: int) -> None:
        """Compact each of the stream's tables with at least ``many`` files."""
        for table in (self.recorded, self.late, self.emitted):
            table.compact(many)

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

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


def emitted_in(path: Path) -> BatchTable:
    """Return the table of the cores' output for readers; raise `ConfigurationError` for a folder without a stream."""
    if not (path / STREAM / _IDENTITY).is_file():
        raise ConfigurationError(f"{path} holds no stream; 'fairway pipeline stream --out' makes one")
    return emitted_at(path / STREAM)


def emitted_at(own: Path) -> BatchTable:
    """Return the table of the cores' output in a stream's own folder (``DIR/stream``)."""
    return BatchTable(own / "emitted", EMITTED, own / "aside")


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
    """Raise `ConfigurationError` unless a folder is empty, missing or of a stream: other files are not overwritten."""
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file; --out takes a folder")
    own = path / STREAM
    if path.is_dir() and not (own / _IDENTITY).is_file():
        # A start that ended before it wrote `_IDENTITY` leaves these files.
        left = {f"{RUN}.lock"} | ({STREAM} if own.is_dir() and not any(own.glob("[!.]*")) else set())
        strangers = [child.name for child in path.iterdir() if child.name not in left]
        if strangers:
            kind = "the tables of a run" if RUN in strangers else f"something else ({strangers[0]})"
            raise ConfigurationError(f"{path} holds {kind}: choose an empty folder, or a new one, for a stream")
