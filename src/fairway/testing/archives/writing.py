"""`write_generated`: writes a generated archive into a folder on any storage, which is whole or is removed.

Where there are folders they are made beside, and renamed in one step. An object store has no such step: there
``plan.json`` comes last, and an archive without it is not whole.
"""

from __future__ import annotations

import os
import posixpath
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.exchange import BLOBS, BatchMapper, note, notes_of
from fairway.pipeline.location import Location, has_folders, uri_within, without_secrets
from fairway.pipeline.run.failures import failure_said
from fairway.testing.archives.block import store_name
from fairway.testing.archives.plan import GeneratorPlan
from fairway.testing.archives.tables import facts_mapper, rows_mapper, task_count, task_numbers

_FOLDER: Final = "the folder of an archive"
_MESSAGES: Final = "waku_messages"
_TRUTH: Final = "truth"
_PLAN: Final = "plan.json"
WRITTEN: Final = (_MESSAGES, _TRUTH)
"""The tables that are written, in order."""
_REMOVED: Final = "nothing of it is left"
_GROUP_BYTES: Final = 16_777_216
_REMOVED_FOR_GOOD: Final = 60
"""So many looks in a row that do not find a folder elsewhere. Spark ends the workers of an interrupted job after 2 to 4
seconds, and until then they may make a file, with which an object store and HDFS make its folders."""
_LOOKS: Final = 300
_BETWEEN_LOOKS_S: Final = 0.1


def check_new(folder: str | PathLike[str]) -> Location:
    """Return the place of a folder that is to be made; raise `ConfigurationError` if it exists or cannot be made."""
    target = Location.of(folder, _FOLDER)
    if target.is_file() or target.is_dir():
        raise ConfigurationError(f"{target} exists; give a new name")
    target.refuse_missing_bucket()
    if target.is_local and not target.local.parent.is_dir():
        raise ConfigurationError(f"{target}: there is no folder {target.local.parent} to make it in")
    if target.is_local and not os.access(target.local.parent, os.W_OK):
        raise ConfigurationError(f"{target}: the folder {target.local.parent} cannot be written to; give another place")
    return target


def write_generated(
    spark: SparkSession,
    plan: GeneratorPlan,
    folder: str | PathLike[str],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a generated archive as Parquet: ``waku_messages``, ``truth`` (partitioned by fact) and ``plan.json``.

    The messages of each store are in a folder of their own, so that a run can be given them as sources
    (`written_sources`). ``folder`` is a path of the driver and of all executors, or a URI (`Location`). ``progress`` is
    called with the name of each table (`WRITTEN`) before it is written. If the work is interrupted or fails, its jobs
    are ended and what it wrote is removed. Raises `ConfigurationError` if the folder exists or cannot be used,
    `StoreFullError` if there is no room for it, and `PipelineError` for other errors of Spark.
    """
    target = check_new(folder)
    token = uuid.uuid4().hex
    parent, name = posixpath.split(target.path)
    is_renamed = has_folders(target.filesystem)
    beside = Location(target.filesystem, posixpath.join(parent, f".{name}.{token[:8]}.part"), target.shown)
    made = beside if is_renamed else target
    spark.addTag(token)
    try:
        with target.being_written(_REMOVED):
            for table in WRITTEN:
                (made / table).make_folder()
            for table, mapper, by in ((_MESSAGES, rows_mapper, "source"), (_TRUTH, facts_mapper, "fact")):
                progress(table)
                _write(spark, plan, mapper(plan, task_count(plan)), _Table(made / table, by))
            (made / _PLAN).put((plan.as_json() + "\n").encode())
            if is_renamed:
                check_new(folder)
                target.filesystem.move(beside.path, target.path)
    except (Py4JJavaError, PythonException) as error:
        _remove(made)
        raise failure_said(str(error), target, f"Spark could not make the archive in {target}", _REMOVED) from error
    except BaseException:
        spark.interruptTag(token)
        _remove(made)
        raise
    finally:
        spark.removeTag(token)


def written_sources(plan: GeneratorPlan, folder: str | PathLike[str], *, shown: bool = False) -> list[str]:
    """Return the URIs of the stores of a written archive, as a run takes them: ``store-0=parquet:...``.

    ``shown`` leaves out keys that the URI of the folder has, which a run then has to find elsewhere.
    """
    place = Location.of(folder, _FOLDER)
    here = str(place) if place.is_local else str(folder)
    names = map(store_name, range(plan.stores))
    uris = {name: uri_within(here, f"{_MESSAGES}/source={name}") for name in names}
    return [f"{name}=parquet:{without_secrets(uri) if shown else uri}" for name, uri in uris.items()]


@dataclass(frozen=True)
class _Table:
    """A table that tasks write, a folder for each value of one of its columns."""

    place: Location
    by: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, and tell the names of the files."""
        files: dict[str, _File] = {}
        for batch in batches:
            kept = [name for name in batch.schema.names if name != self.by]
            for value in pc.unique(batch[self.by]).to_pylist():
                if value not in files:
                    files[value] = _File(self.place / f"{self.by}={value}" / f"part-{uuid.uuid4().hex}.parquet")
                files[value].add(batch.filter(pc.equal(batch[self.by], value)).select(kept))
        for file in files.values():
            file.close()
            yield note(file=posixpath.relpath(file.place.path, self.place.path))


class _File:
    """A file in the making."""

    def __init__(self, place: Location) -> None:
        self.place = place
        if has_folders(place.filesystem):
            # Not those above it: whoever removed the archive meanwhile is not to find it again.
            place.filesystem.create_dir(posixpath.dirname(place.path), recursive=False)
        self._sink = place.filesystem.open_output_stream(place.path)
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._write()

    def close(self) -> None:
        self._write()
        if self._writer is not None:
            self._writer.close()
        self._sink.close()

    def _write(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, table.schema, compression="zstd", store_schema=False)
        self._writer.write_table(table)
        self._held, self._bytes = [], 0


def _write(spark: SparkSession, plan: GeneratorPlan, make: BatchMapper, table: _Table) -> None:
    """Write a table, and remove what attempts of tasks left that do not count."""
    frame = task_numbers(spark, plan).mapInArrow(lambda numbers: table.write(make(numbers)), BLOBS)
    counted = {told["file"] for told in notes_of(row.blob for row in frame.select("blob").collect())}
    for found in table.place.files(recursive=True):
        if table.place.beneath(found) not in counted:
            (table.place / table.place.beneath(found)).remove()


def _remove(folder: Location) -> None:
    """Remove a folder into which tasks that are being ended may still write."""
    missed = 0
    for _ in range(_LOOKS):
        with suppress(StorageError):  # a file was made in it meanwhile
            folder.remove()
        missed = 0 if folder.is_dir() else missed + 1
        if missed == (1 if folder.is_local else _REMOVED_FOR_GOOD):
            return
        time.sleep(_BETWEEN_LOOKS_S)
