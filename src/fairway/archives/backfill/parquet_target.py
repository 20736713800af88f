"""`ParquetTarget`: a folder of Parquet files, to which the backfill adds files.

Invariant: a file appears whole or not at all, on any storage (`Location.put`), and only one backfill writes into a
local folder at a time. So the files record the written messages: a killed backfill loses at most one unfinished file,
and the next start writes its messages again. Two backfills into one remote folder may both write a message; readers
keep one of equal rows.

The hashes of all messages of the folder are in memory, 32 bytes each.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from fairway.archives.backfill.hash_set import HashSet
from fairway.archives.backfill.target import Offered, Settled, Target
from fairway.errors import ConfigurationError, StoreLockedError
from fairway.pipeline.instants import with_instants
from fairway.pipeline.location import Location, without_secrets
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.waku_messages import EXACT_TIME, WAKU_MESSAGES, arrow_batch
from fairway.pipeline.stages.message_hashes import Fit, fits_of
from fairway.storage.archive import HASH_BYTES, ArchivedMessage
from fairway.storage.store_lock import StoreLock

_SCHEMA: Final = arrow_schema(WAKU_MESSAGES)
_ROWS: Final = 1_000
_FILE_ROWS: Final = 50_000
_FILE_BYTES: Final = 67_108_864
"""Bytes of payload after which a file ends; it is in memory until then."""
_LOCK: Final = "_backfill"
_FILE: Final = "backfill-{}.parquet"
_IN_THE_MAKING: Final = re.compile(r"\.backfill-.*\.(new|part)")
"""Names of unfinished files; readers of Parquet skip names with a leading dot."""
_HIDDEN: Final = (".", "_")
_AGAIN: Final = "the written messages stay; run the same command to continue"


class ParquetTarget(Target):
    """A folder, which is created if missing; its files have columns of ``waku_messages``."""

    rows_at_once = _ROWS

    def __init__(self, place: str, *, create: bool, repair: bool = False) -> None:
        if not place or place.endswith(".parquet"):
            raise ConfigurationError(
                f"parquet:{without_secrets(place)} is no folder, and only such a one can get further files; an "
                "example is parquet:waku_messages"
            )
        folder = Location.of(place, "--to")
        self._folder: Final = Location.of(folder.path, "--to") if folder.is_local else folder
        self.name = f"parquet:{self._folder}"
        if self._folder.info().type not in {FileType.Directory, FileType.NotFound}:
            raise ConfigurationError(f"{self._folder} is a file; give a folder, which gets further files")
        self._lock: StoreLock | None = None
        if create:
            with self._folder.being_written(_AGAIN):
                self._folder.make_folder()
                self._lock = self._locked()
        try:
            for left in self._folder.files() if create else ():
                if _IN_THE_MAKING.fullmatch(left.base_name):
                    (self._folder / left.base_name).remove()
            self._schema, self._hashes = self._read()
            self._intact = self._intact_hashes() if repair else HashSet()
        except BaseException:
            self.close()
            raise
        self._batches: list[pa.RecordBatch] = []
        self._pending: set[bytes] = set()
        self._bytes = 0

    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes that the folder or the unfinished file has."""
        return self._hashes.found(tuple(hashes)) | (self._pending & set(hashes))

    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes that have only damaged rows."""
        return set(hashes) - self._intact.found(tuple(hashes)) - self._pending

    def write(self, messages: Sequence[Offered]) -> None:
        """Collect messages for the next file."""
        self._batches.append(arrow_batch([_row(each) for each in messages], self.name))
        self._pending.update(each.message.message_hash for each in messages)
        self._bytes += sum(len(each.message.message.payload) for each in messages)

    def settle(self, *, last: bool) -> Settled:
        """Write a file if enough messages are collected, or if ``last``."""
        enough = len(self._pending) >= _FILE_ROWS or self._bytes >= _FILE_BYTES
        if not self._pending or not (enough or last):
            return Settled()
        with self._folder.being_written(_AGAIN):
            self._write_file()
        settled = Settled(written=len(self._pending))
        self._hashes.add(self._pending)
        self._intact.add(self._pending)
        self._batches, self._pending, self._bytes = [], set(), 0
        return settled

    def close(self) -> None:
        """Release the lock of the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _locked(self) -> StoreLock | None:
        """Return the lock of a local folder; None for a remote one."""
        if not self._folder.is_local:
            return None
        try:
            return StoreLock(self._folder.local / _LOCK, user="backfill", kind="folder")
        except StoreLockedError as error:
            raise StoreLockedError(f"{self._folder}: another backfill writes into it; wait for its end") from error

    def _read(self) -> tuple[pa.Schema, HashSet]:
        """Return the schema of the folder's files, and their message hashes."""
        known = HashSet()
        names = [self._folder.beneath(found) for found in self._folder.files(recursive=True)]
        if not any(name.endswith(".parquet") and not name.startswith(_HIDDEN) for name in names):
            return _SCHEMA, known
        ParquetScan(place=self._folder, source=self.name, is_labelled=True).plan(1)
        dataset = ds.dataset(
            self._folder.path, filesystem=self._folder.filesystem, format="parquet", partitioning="hive"
        )
        others = [name for name in dataset.schema.names if name not in _SCHEMA.names]
        folders = sorted({name.partition("/")[0] for name in names if "=" in name.partition("/")[0] and "/" in name})
        if others or folders:
            what = f"columns {', '.join(others)}" if others else f"the folder {folders[0]}"
            raise ConfigurationError(
                f"{self._folder}: is a table that something else makes, for it has {what}; give a folder of "
                "waku_messages of one store, or a new one"
            )
        if EXACT_TIME not in dataset.schema.names:
            raise ConfigurationError(
                f"{self._folder}: is a table of an older version, without the column {EXACT_TIME}; give a new folder"
            )
        for batch in dataset.to_batches(columns=["message_hash"]):
            hashes = batch.column("message_hash").to_pylist()
            known.add(each for each in hashes if each is not None and len(each) == HASH_BYTES)
        return dataset.schema, known

    def _intact_hashes(self) -> HashSet:
        """Return the hashes of the messages that the folder has intact."""
        intact = HashSet()
        if self._folder.files(recursive=True):
            scan = ParquetScan(place=self._folder, source=self.name, is_labelled=True)
            for part in scan.plan(1):
                for batch in scan.read(part):
                    hashes = batch.filter(pa.array(fits_of(batch) != Fit.DAMAGED))["message_hash"]
                    intact.add(hashes.to_pylist())
        return intact

    def _write_file(self) -> None:
        table = with_instants(pa.Table.from_batches(self._batches), self._schema)
        content = pa.BufferOutputStream()
        pq.write_table(table, content, compression="zstd")
        (self._folder / _FILE.format(uuid.uuid4().hex)).put(content.getvalue())


def _row(each: Offered) -> ArchivedMessage:
    message = each.message.message
    return ArchivedMessage(
        message_hash=each.message.message_hash,
        pubsub_topic=each.message.pubsub_topic,
        content_topic=message.content_topic,
        payload=message.payload,
        version=message.version or 0,
        timestamp_ns=each.timestamp_ns,
        meta=message.meta,
        rate_limit_proof=message.rate_limit_proof or None,
    )
